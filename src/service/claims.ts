/** Who holds what when several ask for it: the oldest, then the first by name. */
export interface Rank {
  readonly createdAt: number;
  /** "namespace/name" of the Service. */
  readonly owner: string;
}

/** A claim that lost. */
export interface LostClaim<V> {
  readonly winner: Rank;
  readonly loser: Rank;
  readonly value: V;
}

/** Values that several owners may claim under one key. The result does not depend on the order of the calls. */
export interface Claims<V> {
  /** The winners' values. */
  readonly held: ReadonlyMap<string, V>;
  readonly isContested: boolean;
  /** Claims a key, or replaces the owner's earlier claim on it. */
  set(key: string, rank: Rank, value: V): void;
  /** Gives up the owner's claim. */
  delete(key: string, owner: string): void;
  lost(): Iterable<LostClaim<V>>;
  /** The keys whose held value differs from the last call's, with what was held then and is now. */
  takeChanges(): { key: string; before: V | null; after: V | null }[];
}

/**
 * No claims yet. Contests, which are rare, are kept aside; `rankOf` gives the rank of a value that is held without
 * contest.
 */
export function createClaims<V>(rankOf: (value: V) => Rank): Claims<V> {
  const held = new Map<string, V>();
  const contested = new Map<string, { rank: Rank; value: V }[]>();
  /** What was held under each key that changed; undefined: nothing. */
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
    get isContested() {
      return contested.size > 0;
    },
    set(key, rank, value) {
      const claims = contested.get(key);
      if (claims) {
        const mine = claims.findIndex((claim) => claim.rank.owner === rank.owner);
        claims.splice(mine < 0 ? claims.length : mine, mine < 0 ? 0 : 1, { rank, value });
        hold(key, winner(claims).value);
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
      contested.set(key, both);
      hold(key, winner(both).value);
    },
    delete(key, owner) {
      const claims = contested.get(key);
      if (!claims) {
        hold(key, undefined);
        return;
      }
      const left = claims.filter((claim) => claim.rank.owner !== owner);
      if (left.length > 1) contested.set(key, left);
      else contested.delete(key);
      hold(key, winner(left).value);
    },
    *lost() {
      for (const claims of contested.values()) {
        const best = winner(claims);
        for (const claim of claims) {
          if (claim !== best) yield { winner: best.rank, loser: claim.rank, value: claim.value };
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

function winner<C extends { rank: Rank }>(claims: readonly C[]): C {
  return claims.reduce((best, claim) => (comesFirst(claim.rank, best.rank) ? claim : best));
}

function comesFirst(a: Rank, b: Rank): boolean {
  return a.createdAt === b.createdAt ? a.owner < b.owner : a.createdAt < b.createdAt;
}
