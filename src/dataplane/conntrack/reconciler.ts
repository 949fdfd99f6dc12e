import { ConntrackConnection } from '../../kernel/conntrack/connection.ts';
import { FLOW_STATUS, type Flow } from '../../kernel/conntrack/flow.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import { listAddresses } from '../../kernel/rtnetlink/addresses.ts';
import { openRouteSocket } from '../../kernel/rtnetlink/links.ts';
import { sendStraySynAck } from '../../kernel/tcp-segment.ts';
import type { IPFamily, SocketAddress } from '../../lib/address.ts';
import { systemClock } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import { type Logger, silentLogger } from '../../lib/log.ts';
import { type Change, type ServiceMap, SOURCE_CLASSES } from '../../service/model.ts';
import { endpointPlace, servingPlaces } from '../../service/pools.ts';
import type { DataplaneOptions } from '../dataplane.ts';
import { createServingIndex, type ServingIndex } from './serving-index.ts';

export interface ConntrackOptions extends Pick<DataplaneOptions, 'families' | 'netns' | 'logger' | 'clock'> {
  /** `OwnListeners.has` of the modes in use. Default: none has listeners. */
  readonly isListener?: (at: SocketAddress) => boolean;
  /** Whether nothing was tracked shortly before the first programming, as on a node that has just been made. Default: no. */
  readonly startsEmpty?: boolean;
  /** Called after each pass over a family's table. For metrics. */
  readonly onPass?: (pass: ConntrackPass) => void;
}

export interface ConntrackPass {
  readonly family: IPFamily;
  readonly examined: number;
  readonly deleted: number;
  readonly durationMs: number;
}

/**
 * Deletes entries of connection tracking that lead to endpoints that no longer serve, in all modes: in eBPF mode the
 * fallback tables translate flows from outside, and those of processes outside of the mode's control group. Runs outside
 * of the programming path, in passes over the table that many changes share.
 */
export interface ConntrackReconciler {
  /** `map` was programmed completely: checks all entries. */
  sync(map: ServiceMap): void;
  /** A change was programmed. Returns at once. */
  apply(change: Change): void;
  /**
   * Ends TCP and SCTP connections to removed endpoints by deleting their entries: the client's next packet
   * goes to another endpoint as a new connection, which resets it. TCP clients are made to send a packet at
   * once. Needs net.netfilter.nf_conntrack_tcp_loose, which is on by default. Returns the number of ended
   * connections.
   */
  endConnections(endpoints: readonly SocketAddress[]): Promise<number>;
  /** Returns the endpoints that clients of Services have TCP or SCTP connections to. */
  connected<T extends SocketAddress>(endpoints: readonly T[]): T[];
  /** Resolves when no flow leads to endpoints that changes until now have removed, except flows that are being opened. */
  passed(): Promise<void>;
  /** Resolves when all requested passes are done. */
  settled(): Promise<void>;
  close(): Promise<void>;
}

/** Changes within this time share one pass, which walks the table of all namespaces. */
const GATHER_MS = { lost: 25, new: 500 } as const;
/** A second pass follows: packets that passed the old rules can still confirm an entry after the first. */
const AGAIN_MS = 1000;

/** A pass that is planned. */
interface DuePass {
  /** In the clock's milliseconds. */
  readonly at: number;
  /** Whether a second pass follows. */
  readonly again: boolean;
  readonly cancel: () => void;
}

/** Deletes the stale entries of all families, and reports each family. */
async function deleteStale(
  { families, netns, logger = silentLogger, isListener, onPass }: ConntrackOptions,
  using: {
    readonly connection: ConntrackConnection;
    readonly reader: ConntrackConnection;
    readonly index: ServingIndex;
  },
): Promise<void> {
  const started = performance.now();
  const unreplied = { mask: FLOW_STATUS.seenReply, value: 0 };
  const listed = await using.reader.listAnyAsync(families, [
    { protocol: PROTOCOL_NUMBER.UDP },
    { protocol: PROTOCOL_NUMBER.TCP, status: unreplied },
    { protocol: PROTOCOL_NUMBER.SCTP, status: unreplied },
  ]);
  let listing = performance.now() - started;
  for (const family of families) {
    const deleting = performance.now();
    const isNodeAddress = nodeAddresses(family, netns);
    const flows = listed.filter((flow) => flow.family === family);
    const stale = flows.filter((flow) => {
      const { source: ip, sourcePort: port } = flow.reply;
      return using.index.isStale(flow, isNodeAddress) && !isListener?.({ ip, port });
    });
    const deleted = await using.connection.delete(stale);
    if (deleted > 0) logger.debug({ family, deleted }, 'deleted stale connection tracking entries');
    // The first family counts the listing of all.
    const durationMs = listing + performance.now() - deleting;
    listing = 0;
    onPass?.({ family, examined: flows.length, deleted, durationMs });
  }
}

export function createConntrackReconciler(options: ConntrackOptions): ConntrackReconciler {
  const { families, netns, logger = silentLogger, clock = systemClock } = options;
  const connection = new ConntrackConnection(netns);
  // A pass lists on a thread, while connections may have to end.
  const reader = new ConntrackConnection(netns);
  const index = createServingIndex();
  let isEmpty = options.startsEmpty ?? false;
  let due: DuePass | null = null;
  let running: Promise<void> | null = null;
  let closed = false;
  let waiting: (() => void)[] = [];
  /** The number of changes that needed a pass, and for how many of them it is done. */
  let needed = 0;
  let done = 0;
  let passing: { readonly change: number; readonly resolve: () => void }[] = [];

  function schedule(ms: number, again: boolean): void {
    if (closed) return;
    // A pass that is due is for this change, too.
    const next = { at: clock.now() + ms, again: again || due?.again === true };
    if (due !== null && due.at <= next.at) {
      due = { ...due, again: next.again };
      return;
    }
    due?.cancel();
    const cancel = clock.after(ms, () => {
      const isAgain = due?.again === true;
      due = null;
      running = pass(isAgain).finally(() => {
        running = null;
        const resolve = waiting;
        waiting = [];
        for (const settle of resolve) settle();
      });
    });
    due = { ...next, cancel };
  }

  async function pass(again: boolean): Promise<void> {
    const covered = needed;
    try {
      await deleteStale(options, { connection, reader, index });
      done = Math.max(done, covered);
      for (const { change, resolve } of passing) if (change <= done) resolve();
      passing = passing.filter(({ change }) => change > done);
    } catch (error) {
      logger.warn(
        { error: messageOf(error) },
        'failed to delete stale connection tracking entries: trying again',
      );
      schedule(AGAIN_MS, again);
      return;
    }
    if (due !== null) return;
    if (again) schedule(AGAIN_MS, false);
    else index.forgetGone();
  }

  return {
    sync(map) {
      index.reset(map);
      needed++;
      // Each pass walks the table of all namespaces. The moments until the first programming are for the second pass.
      if (isEmpty) schedule(AGAIN_MS, false);
      else schedule(0, true);
      isEmpty = false;
    },

    apply(change) {
      index.apply(change);
      const delays = change.frontends.flatMap((one) => delayOf(one) ?? []);
      if (delays.length === 0) return;
      const delay = Math.min(...delays);
      if (delay === GATHER_MS.lost) needed++;
      schedule(delay, true);
    },

    async endConnections(endpoints) {
      const flows = connectionsTo(endpoints, connection, families);
      const deleted = await connection.delete(flows);
      for (const flow of flows) {
        if (flow.original.protocol === PROTOCOL_NUMBER.TCP) resetClient(flow, netns, logger);
      }
      return deleted;
    },

    connected(endpoints) {
      const found = new Set(connectionsTo(endpoints, connection, families).map(({ reply }) => nameOf(reply)));
      return endpoints.filter((endpoint) => found.has(endpointPlace(endpoint)));
    },

    passed() {
      if (done >= needed || closed) return Promise.resolve();
      return new Promise((resolve) => passing.push({ change: needed, resolve }));
    },

    settled() {
      if (due === null && running === null) return Promise.resolve();
      return new Promise((resolve) => waiting.push(resolve));
    },

    async close() {
      closed = true;
      due?.cancel();
      due = null;
      await running;
      for (const settle of waiting) settle();
      for (const { resolve } of passing) resolve();
      connection.close();
      reader.close();
    },
  };
}

const nameOf = ({ source, sourcePort }: Flow['reply']): string => `${source} ${sourcePort}`;

/** Returns the milliseconds after which to look for entries that a change can leave stale; null: it leaves none. */
function delayOf({ before, after }: Change['frontends'][number]): number | null {
  // Its clients have waited for it; Services are often made one after the other.
  if (!before) return GATHER_MS.new;
  if (before.protocol !== 'UDP') return null;
  if (!after) return GATHER_MS.lost;
  // Spared endpoints count: most endpoints are spared before they leave.
  if (!servingPlaces(before).isSubsetOf(servingPlaces(after))) return GATHER_MS.lost;
  // In the userspace mode another pool has another listener.
  const isOther = SOURCE_CLASSES.some((source) => {
    const [old, now] = [before.routes[source], after.routes[source]];
    return old.action === 'forward' && now.action === 'forward' && now.pool.id !== old.pool.id;
  });
  return isOther ? GATHER_MS.lost : null;
}

/** Compares addresses, because IPVS sets no status bit for translated flows. */
function connectionsTo(
  endpoints: readonly SocketAddress[],
  connection: ConntrackConnection,
  families: readonly IPFamily[],
): Flow[] {
  const wanted = new Set(endpoints.map(endpointPlace));
  return connection
    .listAny(families, [{ protocol: PROTOCOL_NUMBER.TCP }, { protocol: PROTOCOL_NUMBER.SCTP }])
    .filter(({ original, reply }) => wanted.has(nameOf(reply)) && original.destination !== reply.source);
}

/**
 * Makes a waiting client send a packet, so that it detects the loss of its server. The packet goes to another endpoint,
 * which does not know the connection, or to a reject rule; either resets the client with valid sequence numbers.
 */
function resetClient({ original }: Flow, netns: NetnsRef | undefined, logger: Logger): void {
  const service = { ip: original.destination, port: original.destinationPort };
  const client = { ip: original.source, port: original.sourcePort };
  try {
    sendStraySynAck(service, client, netns);
  } catch (error) {
    logger.debug(
      { client: client.ip, error: messageOf(error) },
      'failed to reset a client of a removed endpoint',
    );
  }
}

/** Reads the addresses on the first call: most tables have no flow to a node port. */
function nodeAddresses(family: IPFamily, netns: NetnsRef | undefined): (address: string) => boolean {
  let addresses: Set<string> | null = null;
  return (address) => {
    if (addresses === null) {
      using socket = openRouteSocket(netns);
      addresses = new Set(listAddresses(socket, { family }).map((a) => a.address));
    }
    return addresses.has(address) || (family === 'ipv4' && address.startsWith('127.'));
  };
}
