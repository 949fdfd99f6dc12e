/** The tracked connections of a node, as counted or estimated from a sample. */
export interface ConnectionSample {
  /** The number of connections in the table. */
  readonly total: number;
  /** The owner of each connection of the sample: the pod that opened it; null: not a pod of this node. */
  readonly owners: readonly (string | null)[];
}

/** A pod that was held off may open connections again below this part of its share: else it would alternate. */
const RELEASE_AT = 0.9;
/** Connections of a pod with a whole share in a sample: enough to estimate its number within about a tenth. */
const WANTED_HITS = 256;
const MIN_SAMPLE = 1024;
const MAX_SAMPLE = 16_384;

/** Returns the size of a sample that tells whether a pod has more than its share. */
export const sampleSize = (total: number, share: number): number =>
  Math.min(MAX_SAMPLE, Math.max(MIN_SAMPLE, Math.ceil((WANTED_HITS * total) / Math.max(share, 1))));

/** Returns the numbers of connections of the pods in a sample. */
export function connectionsOf({ total, owners }: ConnectionSample): Map<string, number> {
  const hits = new Map<string, number>();
  for (const owner of owners) if (owner !== null) hits.set(owner, (hits.get(owner) ?? 0) + 1);
  const weight = owners.length === 0 ? 0 : Math.max(1, total / owners.length);
  return new Map([...hits].map(([owner, count]) => [owner, Math.round(count * weight)]));
}

/** Returns the pods that may open no connections, with their numbers of connections. `held`: those of the last time. */
export function podsToHold(
  connections: ReadonlyMap<string, number>,
  share: number,
  held: ReadonlySet<string>,
): Map<string, number> {
  return new Map([...connections].filter(([pod, count]) => count > share * (held.has(pod) ? RELEASE_AT : 1)));
}

/** The table of a node: its size, and the connections in it. */
export interface TrackedTable {
  readonly max: number;
  readonly total: number;
}

/** The pods of a node open no connections in this part of its table, in sum: it is for the node and for connections from outside. */
const RESERVE = 1 / 8;
/** A pod with less than this part of the table opens connections in any case: others may fill it that are not pods. */
const LEAST = 1 / 64;

/**
 * Returns how many connections each pod may have so that all pods together leave the reserve: those with the most are held first;
 * infinity: as many as they like. `isTight`: pods are held already.
 */
export function sharedLevel(
  connections: ReadonlyMap<string, number>,
  { max, total }: TrackedTable,
  isTight: boolean,
): number {
  const room = max * (1 - RESERVE) * (isTight ? RELEASE_AT : 1);
  if (total <= room) return Number.POSITIVE_INFINITY;
  const counts = [...connections.values()].sort((a, b) => a - b);
  let left = room - Math.max(0, total - counts.reduce((sum, count) => sum + count, 0));
  for (const [at, count] of counts.entries()) {
    const level = left / (counts.length - at);
    if (level < count) return Math.max(max * LEAST, Math.floor(level));
    left -= count;
  }
  return Number.POSITIVE_INFINITY;
}
