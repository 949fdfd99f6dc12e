/** The rank of a request: the oldest wins; requests of the same age are ordered by name. */
export interface Rank {
  readonly createdAt: number;
  /** "namespace/name" of the Service. */
  readonly owner: string;
}

/** A request for a key that another owner has. */
export interface ResolvedConflict<V> {
  readonly winner: Rank;
  readonly loser: Rank;
  readonly value: V;
}

/**
 * Stores values by key; several owners may request one key, and one of them gets it. The result does not
 * depend on the order of the calls.
 */
export interface ConflictResolution<V> {
  /** The winners' values. */
  readonly held: ReadonlyMap<string, V>;
  readonly hasConflicts: boolean;
  /** Requests a key, or replaces the owner's earlier request for it. */
  set(key: string, rank: Rank, value: V): void;
  /** Withdraws the owner's request for the key. */
  delete(key: string, owner: string): void;
  lost(): Iterable<ResolvedConflict<V>>;
  /** Returns the keys whose winning value has changed since the last call, with both values. */
  takeChanges(): { key: string; before: V | null; after: V | null }[];
}

interface Request<V> {
  readonly rank: Rank;
  readonly value: V;
}

/**
 * Creates an empty table. Conflicts, which are rare, are stored separately; `rankOf` returns the rank of a
 * value without conflict.
 */
export function createConflictResolution<V>(rankOf: (value: V) => Rank): ConflictResolution<V> {
  const held = new Map<string, V>();
  const conflicts = new Map<string, Request<V>[]>();
  /** The previous value of each key that changed; undefined: none. */
  let changed = new Map<string, V | undefined>();

  const hold = (key: string, value: V | undefined) => {
    const before = held.get(key);
    if (before === value) return;
    if (!changed.has(key)) changed.set(key, before);
    if (value === undefined) held.delete(key);
    else held.set(key, value);
  };

  return {
    held,
    get hasConflicts() {
      return conflicts.size > 0;
    },
    set(key, rank, value) {
      const requests = conflicts.get(key);
      if (requests) {
        const own = requests.findIndex((request) => request.rank.owner === rank.owner);
        requests.splice(own < 0 ? requests.length : own, own < 0 ? 0 : 1, { rank, value });
        hold(key, winnerOf(requests).value);
        return;
      }
      const holder = held.get(key);
      const holderRank = holder === undefined ? null : rankOf(holder);
      if (holder === undefined || holderRank === null || holderRank.owner === rank.owner) {
        hold(key, value);
        return;
      }
      const both = [
        { rank: holderRank, value: holder },
        { rank, value },
      ];
      conflicts.set(key, both);
      hold(key, winnerOf(both).value);
    },
    delete(key, owner) {
      const requests = conflicts.get(key);
      if (!requests) {
        hold(key, undefined);
        return;
      }
      const left = requests.filter((request) => request.rank.owner !== owner);
      if (left.length > 1) conflicts.set(key, left);
      else conflicts.delete(key);
      hold(key, winnerOf(left).value);
    },
    *lost() {
      for (const requests of conflicts.values()) {
        const best = winnerOf(requests);
        for (const request of requests) {
          if (request !== best) yield { winner: best.rank, loser: request.rank, value: request.value };
        }
      }
    },
    takeChanges() {
      const changes: { key: string; before: V | null; after: V | null }[] = [];
      for (const [key, before] of changed) {
        const after = held.get(key);
        if (after !== before) changes.push({ key, before: before ?? null, after: after ?? null });
      }
      if (changed.size > 0) changed = new Map();
      return changes;
    },
  };
}

function winnerOf<R extends { rank: Rank }>(requests: readonly R[]): R {
  return requests.reduce((best, request) => (comesFirst(request.rank, best.rank) ? request : best));
}

function comesFirst(a: Rank, b: Rank): boolean {
  return a.createdAt === b.createdAt ? a.owner < b.owner : a.createdAt < b.createdAt;
}
