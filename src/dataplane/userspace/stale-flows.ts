import { ConntrackConnection } from '../../kernel/conntrack/connection.ts';
import { FLOW_STATUS, type Flow } from '../../kernel/conntrack/flow.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { listAddresses } from '../../kernel/rtnetlink/addresses.ts';
import { openRouteSocket } from '../../kernel/rtnetlink/links.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { Frontend } from '../../service/model.ts';
import type { ListenAddress } from './elements.ts';
import { PROTOCOL_NUMBER } from './words.ts';

export interface StaleFlowsOptions {
  readonly families: readonly IPFamily[];
  readonly netns: NetnsRef | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * Deletes entries of connection tracking that keep packets from where the rules would send them: connection tracking
 * asks the rules once for each flow. Off the programming path; many changes share a pass.
 */
export interface StaleFlows {
  /** Nothing listens here any more: clients that go on sending datagrams must be sent elsewhere. */
  closed(listeners: readonly ListenAddress[]): void;
  /** There are rules now for what these are sent: what went out before, untranslated and in vain, may start anew. */
  opened(frontends: Iterable<Frontend>): void;
  /** Looks through the table now. */
  flush(): Promise<void>;
  /** Resolves when all that was asked for has been done. */
  settled(): Promise<void>;
  close(): Promise<void>;
}

/** Changes gather for this long, so that a storm of them costs one pass. */
const GATHER_MS = 25;
/** Packets that passed the old rules can confirm an entry after a pass: a second one follows. */
const AGAIN_MS = 1000;

export function createStaleFlows({ families, netns, clock, logger }: StaleFlowsOptions): StaleFlows {
  const connection = new ConntrackConnection(netns);
  const dead = new Set<string>();
  const fresh = new Set<string>();
  let cancel: (() => void) | null = null;
  let running: Promise<void> | null = null;
  let ended = false;
  const waiting: (() => void)[] = [];

  function schedule(ms: number, last: boolean): void {
    if (ended) return;
    cancel?.();
    cancel = clock.after(ms, () => void run(last));
  }

  function run(last: boolean): Promise<void> {
    cancel?.();
    cancel = null;
    running = pass(last).finally(() => {
      running = null;
      if (cancel === null) for (const done of waiting.splice(0)) done();
    });
    return running;
  }

  async function pass(last: boolean): Promise<void> {
    try {
      for (const family of families) await passFamily(family);
    } catch (error) {
      logger.warn({ error: messageOf(error) }, 'connection tracking could not be cleaned; trying again');
      schedule(AGAIN_MS, last);
      return;
    }
    // Something was asked for meanwhile.
    if (cancel !== null) return;
    if (!last) schedule(AGAIN_MS, true);
    else {
      dead.clear();
      fresh.clear();
    }
  }

  async function passFamily(family: IPFamily): Promise<void> {
    const isNodeAddress = nodeAddresses(family);
    const unreplied = { mask: FLOW_STATUS.seenReply, value: 0 };
    const stale: Flow[] = [];
    for (const filter of [
      { protocol: PROTOCOL_NUMBER.UDP },
      ...(fresh.size > 0 ? [{ protocol: PROTOCOL_NUMBER.TCP, status: unreplied }] : []),
    ]) {
      for (const flow of connection.list(family, filter)) if (isStale(flow, isNodeAddress)) stale.push(flow);
    }
    const deleted = await connection.delete(stale);
    if (deleted > 0) logger.debug({ family, deleted }, 'deleted stale connection tracking entries');
  }

  function isStale(
    { family, original, reply, status }: Flow,
    isNodeAddress: (ip: string) => boolean,
  ): boolean {
    if ((status & FLOW_STATUS.destinationNat) !== 0) return dead.has(`${reply.source} ${reply.sourcePort}`);
    if ((status & FLOW_STATUS.seenReply) !== 0) return false;
    const { destination, destinationPort, protocol } = original;
    if (fresh.has(`${destination} ${protocol} ${destinationPort}`)) return true;
    return fresh.has(`${family} ${protocol} ${destinationPort}`) && isNodeAddress(destination);
  }

  /** Read at the first question only: most tables have no flow to a node port's number. */
  function nodeAddresses(family: IPFamily): (address: string) => boolean {
    let addresses: Set<string> | null = null;
    return (address) => {
      if (addresses === null) {
        using socket = openRouteSocket(netns);
        addresses = new Set(listAddresses(socket, { family }).map((a) => a.address));
      }
      return addresses.has(address) || (family === 'ipv4' && address.startsWith('127.'));
    };
  }

  return {
    closed(listeners) {
      if (listeners.length === 0) return;
      for (const { address, port } of listeners) dead.add(`${address} ${port}`);
      schedule(0, false);
    },

    opened(frontends) {
      const before = fresh.size;
      for (const { family, address, protocol, port } of frontends) {
        fresh.add(`${address ?? family} ${PROTOCOL_NUMBER[protocol]} ${port}`);
      }
      if (fresh.size > before) schedule(GATHER_MS, false);
    },

    async flush() {
      await running;
      if (dead.size + fresh.size > 0) await run(false);
    },

    settled() {
      if (cancel === null && running === null) return Promise.resolve();
      return new Promise((resolve) => waiting.push(resolve));
    },

    async close() {
      ended = true;
      cancel?.();
      cancel = null;
      await running;
      for (const done of waiting.splice(0)) done();
      connection.close();
    },
  };
}
