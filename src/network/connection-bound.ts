import { ConntrackConnection } from '../kernel/conntrack/connection.ts';
import { sampleFlowSources } from '../kernel/conntrack/flow-sources.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { NftConnection } from '../kernel/nftables/connection.ts';
import { DATA_TYPE, NFPROTO } from '../kernel/nftables/constants.ts';
import { PRIORITY } from '../kernel/nftables/priorities.ts';
import { macBytes } from '../kernel/rtnetlink/links.ts';
import { readSysctl } from '../kernel/sysctl.ts';
import type { IPFamily } from '../lib/address.ts';
import { type Clock, systemClock } from '../lib/clock.ts';
import { hasCode, messageOf } from '../lib/errors.ts';
import { type Logger, silentLogger } from '../lib/log.ts';
import { wordsOf } from '../nft/encoding.ts';
import { type KeptTables, keepTables } from '../nft/kept-tables.ts';
import { counter, deviceName, drop, hasNone, inSet } from '../nft/rule.ts';
import { type ElementGroup, elements, group, type TableSpec } from '../nft/spec.ts';
import { connectionsOf, podsToHold, sampleSize, sharedLevel } from './connection-share.ts';

/** The table of each family (`ip` and `ip6`); it exists while a pod is held. */
export const CONNECTIONS_TABLE = 'fairlead-connections';

const FAMILIES = ['ipv4', 'ipv6'] as const;
const HELD = 'held';
/** IPS_CONFIRMED: the connection is in the table. The first packet of a connection enters it when it leaves the node. */
const CONFIRMED = 8;
/**
 * The interval of checks while the table has fewer connections than half a share, with more, and while it is half full: a pod
 * opens some ten thousand connections in a quarter of a second, a small part of a table of the default size.
 */
const CHECK_MS = { few: 1000, many: 250, half: 100 } as const;
/** The part of the node's table that one pod may have by default: a quarter. */
const DEFAULT_PART = 4;

/** A pod with an address. */
export interface AddressOwner {
  /** "namespace/name" */
  readonly pod: string;
  readonly mac: string;
}

/** A pod that has more than its share of the tracked connections. */
export interface HeldPod {
  readonly pod: string;
  /** Counted, or estimated from a sample of the table. */
  readonly connections: number;
  readonly share: number;
}

/**
 * Bounds the tracked connections that one pod opens, and those of all pods: while a pod has more than its share, or, if the table
 * is nearly full, more than the others, its new connections are dropped. The connections are counted four to ten times a second,
 * only while the table has more entries than one share; packets cost nothing before.
 * The kernel's own expression (`ct count`) takes no account of closed connections, which stay in the table for two minutes, and
 * walks all connections of a pod for each new one.
 */
export interface ConnectionBound {
  held(): readonly HeldPod[];
  /** Packets that were dropped, by pod. */
  dropped(): ReadonlyMap<string, number>;
  /** Counts now. */
  check(): Promise<void>;
  /** Stops, and drops nothing any more. */
  close(): void;
}

export interface ConnectionBoundOptions {
  /** The name of the pods' bridge. */
  readonly bridge: string;
  /** The connections that a pod may have; null: a quarter of the kernel's limit. */
  readonly share: number | null;
  /** The connections that the table may have; null: the kernel's limit. */
  readonly max?: number | null;
  /** Returns the pod that sends with an address; null: no pod of this node. */
  readonly ownerOf: (address: string) => AddressOwner | null;
  /** Called when a pod is held that was not. */
  readonly onHeld?: (pod: HeldPod) => void;
  readonly netns?: NetnsRef | undefined;
  /** See KeptTablesOptions. */
  readonly owned?: boolean | undefined;
  readonly clock?: Clock | undefined;
  readonly logger?: Logger | undefined;
}

type HeldPods = ReadonlyMap<string, HeldPod & { readonly mac: string }>;

export function openConnectionBound(options: ConnectionBoundOptions): ConnectionBound {
  const { max: givenMax = null, netns, clock = systemClock, logger = silentLogger } = options;
  const conntrack = new ConntrackConnection(netns);
  const table = createHeldTable(options);
  let closed = false;
  let failure: string | null = null;
  let cancel = () => {};
  let interval: number = CHECK_MS.few;

  async function check(): Promise<void> {
    const max = givenMax ?? trackedLimit(netns);
    const share = max === 0 ? null : (options.share ?? Math.max(1, Math.floor(max / DEFAULT_PART)));
    const total = share === null ? 0 : conntrack.count();
    // With a large share of its own, a pod is held before the table is full.
    const first = Math.min(share ?? 0, max / DEFAULT_PART);
    interval = total > max / 2 ? CHECK_MS.half : total > first / 2 ? CHECK_MS.many : CHECK_MS.few;
    const next: HeldPods =
      share === null || total <= first
        ? new Map()
        : choosePods(options, { max, total, share, first, before: table.held });
    if (next.size > 0 || table.held.size > 0) await table.hold(next);
  }

  let running: Promise<void> = Promise.resolve();
  const checkNext = (): Promise<void> => {
    running = running.catch(() => {}).then(() => (closed ? undefined : check()));
    return running;
  };
  const repeat = async () => {
    try {
      await checkNext();
      failure = null;
    } catch (error) {
      const message = messageOf(error);
      if (!closed && message !== failure)
        logger.warn({ err: error }, `cannot bound the tracked connections of pods: ${message}`);
      failure = message;
    }
    if (!closed) cancel = clock.after(interval, () => void repeat());
  };
  void repeat();

  return {
    held: () => [...table.held.values()].map(({ pod, connections, share }) => ({ pod, connections, share })),
    dropped: table.dropped,
    check: checkNext,
    close() {
      closed = true;
      cancel();
      table.close();
      conntrack.close();
    },
  };
}

/** Chooses the pods to hold by a sample of the tracked connections' sources. */
function choosePods(
  { ownerOf, netns }: Pick<ConnectionBoundOptions, 'ownerOf' | 'netns'>,
  {
    max,
    total,
    share,
    first,
    before,
  }: {
    readonly max: number;
    readonly total: number;
    readonly share: number;
    readonly first: number;
    readonly before: HeldPods;
  },
): HeldPods {
  const macs = new Map<string, string>();
  const known = new Map<string, string | null>();
  const podOf = (source: string): string | null => {
    const owner = ownerOf(source);
    if (owner) macs.set(owner.pod, owner.mac);
    known.set(source, owner?.pod ?? null);
    return owner?.pod ?? null;
  };
  const owners = sampleFlowSources(netns, sampleSize(total, first)).map((source) => {
    const pod = known.get(source);
    return pod === undefined ? podOf(source) : pod;
  });
  const counts = connectionsOf({ total, owners });
  const allowed = Math.min(share, sharedLevel(counts, { max, total }, before.size > 0));
  const numbers = podsToHold(counts, allowed, new Set(before.keys()));
  return new Map(
    [...numbers].map(
      ([pod, connections]) => [pod, { pod, connections, share: allowed, mac: macs.get(pod) ?? '' }] as const,
    ),
  );
}

/** The table that drops the new connections of held pods; there is none while no pod is held. */
function createHeldTable(options: ConnectionBoundOptions) {
  const { bridge, onHeld = () => {} } = options;
  const tables = openTables(options);
  let held: HeldPods = new Map();
  /** Packets that were counted by elements that no longer exist. */
  const before = new Map<string, number>();
  const removeAll = () => {
    for (const family of FAMILIES) tables.write(family, null);
  };
  // Bounds of an agent that was killed.
  removeAll();

  const counted = (): Map<string, number> => {
    const counts = new Map<string, number>();
    for (const { pod, mac } of held.values()) {
      const key = keyOf(bridge, mac);
      for (const family of FAMILIES)
        for (const element of tables.get(family)?.read(HELD) ?? [])
          if (Buffer.compare(key, element.key) === 0)
            counts.set(pod, (counts.get(pod) ?? 0) + element.packets);
    }
    return counts;
  };

  return {
    get held() {
      return held;
    },
    async hold(next: HeldPods): Promise<void> {
      const gone = [...held.values()].filter(({ pod }) => !next.has(pod));
      const fresh = [...next.values()].filter(({ pod }) => !held.has(pod));
      if (gone.length > 0) {
        const counts = counted();
        for (const { pod } of gone) before.set(pod, (before.get(pod) ?? 0) + (counts.get(pod) ?? 0));
      }
      const wasEmpty = held.size === 0;
      held = next;
      for (const family of FAMILIES) {
        if (next.size === 0) tables.write(family, null);
        else if (wasEmpty) tables.write(family, renderHeld(family, bridge, [...next.values()]));
        else {
          for (const { pod } of gone) await tables.change(family, pod, null);
          for (const one of fresh) await tables.change(family, one.pod, renderPod(bridge, one));
        }
      }
      for (const family of FAMILIES)
        for (const error of tables.get(family)?.refused.values() ?? []) throw error;
      for (const one of fresh) onHeld(one);
    },
    dropped(): Map<string, number> {
      const counts = held.size === 0 ? new Map<string, number>() : counted();
      const pods = new Set([...before.keys(), ...counts.keys()]);
      return new Map([...pods].map((pod) => [pod, (before.get(pod) ?? 0) + (counts.get(pod) ?? 0)]));
    },
    close(): void {
      removeAll();
      tables.close();
    },
  };
}

/** Returns the kernel's limit, which the agent itself may set; 0: the kernel tracks nothing. */
const trackedLimit = (netns: NetnsRef | undefined): number =>
  Math.max(0, Number(readSysctl('net.netfilter.nf_conntrack_max', netns)) || 0);

/** Reads the pods that are held, with the packets dropped since, from the kernel. */
export function readHeldPods(netns?: NetnsRef): Map<string, number> {
  const connection = new NftConnection(netns);
  const pods = new Map<string, number>();
  try {
    for (const family of FAMILIES) {
      try {
        for (const { comment, packets } of connection.elements(NFPROTO[family], CONNECTIONS_TABLE, HELD))
          pods.set(comment ?? '', (pods.get(comment ?? '') ?? 0) + packets);
      } catch (error) {
        if (!hasCode(error, 'ENOENT', 'EOPNOTSUPP', 'EAFNOSUPPORT')) throw error;
      }
    }
    return pods;
  } finally {
    connection.close();
  }
}

/** Removes the tables from a node. */
export function removeConnectionBound(netns?: NetnsRef): void {
  const tables = openTables({ netns });
  try {
    for (const family of FAMILIES) tables.write(family, null);
  } finally {
    tables.close();
  }
}

const openTables = (
  options: Pick<ConnectionBoundOptions, 'netns' | 'owned' | 'clock' | 'logger'>,
): KeptTables => keepTables({ ...options, families: FAMILIES, name: CONNECTIONS_TABLE });

/** Renders one family's table. The source guard lets pods send with their own MAC only. */
export function renderHeld(
  family: IPFamily,
  bridge: string,
  pods: readonly Pick<AddressOwner, 'pod' | 'mac'>[],
): TableSpec {
  return {
    family,
    name: CONNECTIONS_TABLE,
    sets: [{ name: HELD, key: [DATA_TYPE.interfaceName, DATA_TYPE.etherAddress], counted: true }],
    chains: [
      {
        name: 'prerouting',
        base: { type: 'filter', hook: 'prerouting', priority: PRIORITY.connectionBound },
        rules: [[hasNone('ct.status', CONFIRMED), inSet(HELD, 'meta.iifname', 'ether.saddr'), counter, drop]],
      },
    ],
    groups: new Map(pods.map((one) => [one.pod, renderPod(bridge, one)])),
  };
}

function renderPod(bridge: string, { pod, mac }: Pick<AddressOwner, 'pod' | 'mac'>): ElementGroup {
  const key = Uint32Array.from(wordsOf(keyOf(bridge, mac)));
  return group([elements(HELD, key, { comment: pod.slice(0, 120) })]);
}

/** The name of the device, and the MAC, which in a concatenation has a multiple of four bytes. */
function keyOf(bridge: string, mac: string): Uint8Array {
  const key = new Uint8Array(24);
  key.set(deviceName(bridge));
  key.set(macBytes(mac), 16);
  return key;
}
