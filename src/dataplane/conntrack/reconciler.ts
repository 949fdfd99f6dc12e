import { ConntrackConnection } from '../../kernel/conntrack/connection.ts';
import { FLOW_STATUS, type Flow } from '../../kernel/conntrack/flow.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import { listAddresses } from '../../kernel/rtnetlink/addresses.ts';
import { openRouteSocket } from '../../kernel/rtnetlink/links.ts';
import { sendStraySynAck } from '../../kernel/tcp-segment.ts';
import type { IPFamily } from '../../lib/address.ts';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import { type Logger, silentLogger } from '../../lib/log.ts';
import { type Change, type ServiceMap, SOURCE_CLASSES } from '../../service/model.ts';
import type { SocketAddress } from '../dataplane.ts';
import { createServingIndex } from './serving-index.ts';

export interface ConntrackOptions {
  readonly families: readonly IPFamily[];
  /** Default: the namespace of this process. */
  readonly netns?: NetnsRef;
  readonly logger?: Logger;
  readonly clock?: Clock;
  /** `Dataplane.listening` of the modes at work. Default: none has listeners. */
  readonly listening?: (at: SocketAddress) => boolean;
  /** For metrics: after each look through a family's table. */
  readonly onPass?: (pass: ConntrackPass) => void;
}

export interface ConntrackPass {
  readonly family: IPFamily;
  readonly examined: number;
  readonly deleted: number;
  readonly durationMs: number;
}

/**
 * Deletes entries of connection tracking that would send packets where nothing serves, for any mode that translates
 * by it. Works off the programming path, in passes over the table that many changes share.
 */
export interface ConntrackReconciler {
  /** All is as in `map` now: everything is looked through. */
  sync(map: ServiceMap): void;
  /** This change is programmed. Returns at once. */
  apply(change: Change): void;
  /**
   * Ends TCP and SCTP connections to endpoints that are gone, by deleting their entries: the client's next packet is
   * taken for a new connection to another endpoint, which resets it. TCP clients are made to send one at once. Needs
   * net.netfilter.nf_conntrack_tcp_loose, which is the kernel's default. Returns how many.
   */
  endConnections(endpoints: readonly SocketAddress[]): Promise<number>;
  /** Those of the endpoints that clients of Services have TCP or SCTP connections to. */
  connected<T extends SocketAddress>(endpoints: readonly T[]): T[];
  /** Resolves when all that was asked for has been done. */
  settled(): Promise<void>;
  close(): Promise<void>;
}

/** Changes gather for this long, so that a storm of them costs one pass. */
const GATHER_MS = 25;
/** Packets that passed the old rules can confirm an entry after a pass: a second one follows. */
const AGAIN_MS = 1000;

export function createConntrackReconciler(options: ConntrackOptions): ConntrackReconciler {
  const { families, netns, logger = silentLogger, clock = systemClock, listening, onPass } = options;
  const connection = new ConntrackConnection(netns);
  const index = createServingIndex();
  let cancel: (() => void) | null = null;
  let dueAgain = false;
  let running: Promise<void> | null = null;
  let closed = false;
  let waiting: (() => void)[] = [];

  function schedule(ms: number, again: boolean): void {
    if (closed) return;
    cancel?.();
    dueAgain = again;
    cancel = clock.after(ms, () => {
      cancel = null;
      running = pass().finally(() => {
        running = null;
        const resolve = waiting;
        waiting = [];
        for (const done of resolve) done();
      });
    });
  }

  async function pass(): Promise<void> {
    const again = dueAgain;
    try {
      for (const family of families) await passFamily(family);
    } catch (error) {
      logger.warn({ error: messageOf(error) }, 'connection tracking could not be cleaned; trying again');
      schedule(AGAIN_MS, again);
      return;
    }
    if (cancel !== null) return;
    if (again) schedule(AGAIN_MS, false);
    else index.forgetGone();
  }

  async function passFamily(family: IPFamily): Promise<void> {
    const started = performance.now();
    const isNodeAddress = nodeAddresses(family);
    const unreplied = { mask: FLOW_STATUS.seenReply, value: 0 };
    let examined = 0;
    const stale: Flow[] = [];
    for (const filter of [
      { protocol: PROTOCOL_NUMBER.UDP },
      { protocol: PROTOCOL_NUMBER.TCP, status: unreplied },
      { protocol: PROTOCOL_NUMBER.SCTP, status: unreplied },
    ]) {
      for (const flow of connection.list(family, filter)) {
        examined++;
        if (!index.isStale(flow, isNodeAddress)) continue;
        const { source: ip, sourcePort: port } = flow.reply;
        if (!listening?.({ ip, port })) stale.push(flow);
      }
    }
    const deleted = await connection.delete(stale);
    if (deleted > 0) logger.debug({ family, deleted }, 'deleted stale connection tracking entries');
    onPass?.({ family, examined, deleted, durationMs: performance.now() - started });
  }

  /** IPVS sets no status bit for what it translates: the addresses tell. */
  function connectionsTo(endpoints: readonly SocketAddress[]): Flow[] {
    const wanted = new Set(endpoints.map(({ ip, port }) => `${ip} ${port}`));
    return families.flatMap((family) =>
      [PROTOCOL_NUMBER.TCP, PROTOCOL_NUMBER.SCTP].flatMap((protocol) =>
        connection
          .list(family, { protocol })
          .filter(
            ({ original, reply }) => wanted.has(nameOf(reply)) && original.destination !== reply.source,
          ),
      ),
    );
  }

  /**
   * A client that waits for an answer would not send anything, and so not learn that its server is gone. What it
   * says to this goes the way of any packet of its connection: to an endpoint that knows nothing of it, or to a
   * rule that refuses it; either resets it, with the right numbers.
   */
  function resetClient({ original }: Flow): void {
    const service = { ip: original.destination, port: original.destinationPort };
    const client = { ip: original.source, port: original.sourcePort };
    try {
      sendStraySynAck(service, client, netns);
    } catch (error) {
      logger.debug(
        { client: client.ip, error: messageOf(error) },
        'a client was not told that its server is gone',
      );
    }
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
    sync(map) {
      index.reset(map);
      schedule(0, true);
    },

    apply(change) {
      index.apply(change);
      if (change.frontends.some(needsPass)) schedule(GATHER_MS, true);
    },

    async endConnections(endpoints) {
      const flows = connectionsTo(endpoints);
      const deleted = await connection.delete(flows);
      for (const flow of flows) {
        if (flow.original.protocol === PROTOCOL_NUMBER.TCP) resetClient(flow);
      }
      return deleted;
    },

    connected(endpoints) {
      const found = new Set(connectionsTo(endpoints).map(({ reply }) => nameOf(reply)));
      return endpoints.filter(({ ip, port }) => found.has(`${ip} ${port}`));
    },

    settled() {
      if (cancel === null && running === null) return Promise.resolve();
      return new Promise((resolve) => waiting.push(resolve));
    },

    async close() {
      closed = true;
      cancel?.();
      cancel = null;
      await running;
      for (const done of waiting) done();
      connection.close();
    },
  };
}

const nameOf = ({ source, sourcePort }: Flow['reply']): string => `${source} ${sourcePort}`;

/** New frontends may find untranslated flows; of others only UDP's that lost an endpoint or a listener matter. */
function needsPass({ before, after }: Change['frontends'][number]): boolean {
  if (!before) return true;
  if (before.protocol !== 'UDP') return false;
  if (!after) return true;
  return SOURCE_CLASSES.some((source) => {
    const [old, now] = [before.routes[source], after.routes[source]];
    if (old === now || old.action !== 'forward') return false;
    // A pool of another name has another listener, where modes have these.
    if (now.action !== 'forward' || now.pool.id !== old.pool.id) return true;
    const serving = new Set(now.pool.endpoints.map(({ ip, port }) => `${ip} ${port}`));
    return old.pool.endpoints.some(({ ip, port }) => !serving.has(`${ip} ${port}`));
  });
}
