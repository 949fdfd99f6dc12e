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

/**
 * Values that several owners may claim under one key. `held` has the winners' values; contests, which are rare, are
 * kept aside. The result does not depend on the order of the calls.
 */
export class Claims<V> {
  readonly held = new Map<string, V>();
  readonly #contested = new Map<string, { rank: Rank; value: V }[]>();
  readonly #rankOf: (value: V) => Rank;
  /** What was held under each key that changed since the last `takeChanges`; undefined: nothing. */
  #before = new Map<string, V | undefined>();

  /** `rankOf` gives the rank of a value that is held without contest. */
  constructor(rankOf: (value: V) => Rank) {
    this.#rankOf = rankOf;
  }

  get isContested(): boolean {
    return this.#contested.size > 0;
  }

  /** Claims a key, or replaces the owner's earlier claim on it. */
  set(key: string, rank: Rank, value: V): void {
    const claims = this.#contested.get(key);
    if (claims) {
      const mine = claims.findIndex((claim) => claim.rank.owner === rank.owner);
      claims.splice(mine < 0 ? claims.length : mine, mine < 0 ? 0 : 1, { rank, value });
      this.#elect(key, claims);
      return;
    }
    const holder = this.held.get(key);
    const holderRank = holder === undefined ? null : this.#rankOf(holder);
    if (holder === undefined || holderRank === null || holderRank.owner === rank.owner) {
      this.#hold(key, value);
      return;
    }
    const both = [
      { rank: holderRank, value: holder },
      { rank, value },
    ];
    this.#contested.set(key, both);
    this.#elect(key, both);
  }

  /** Gives up the owner's claim. */
  delete(key: string, owner: string): void {
    const claims = this.#contested.get(key);
    if (!claims) {
      this.#hold(key, undefined);
      return;
    }
    const left = claims.filter((claim) => claim.rank.owner !== owner);
    if (left.length > 1) this.#contested.set(key, left);
    else this.#contested.delete(key);
    this.#elect(key, left);
  }

  *lost(): Generator<LostClaim<V>> {
    for (const claims of this.#contested.values()) {
      const best = winner(claims);
      for (const claim of claims) {
        if (claim !== best) yield { winner: best.rank, loser: claim.rank, value: claim.value };
      }
    }
  }

  /** The keys whose held value differs from the last call's, with what was held then and is now. */
  takeChanges(): { key: string; before: V | null; after: V | null }[] {
    const changes: { key: string; before: V | null; after: V | null }[] = [];
    for (const [key, before] of this.#before) {
      const after = this.held.get(key);
      if (after !== before) changes.push({ key, before: before ?? null, after: after ?? null });
    }
    if (this.#before.size > 0) this.#before = new Map();
    return changes;
  }

  #elect(key: string, claims: readonly { rank: Rank; value: V }[]): void {
    this.#hold(key, winner(claims).value);
  }

  #hold(key: string, value: V | undefined): void {
    const before = this.held.get(key);
    if (before === value) return;
    if (!this.#before.has(key)) this.#before.set(key, before);
    if (value === undefined) this.held.delete(key);
    else this.held.set(key, value);
  }
}

function winner<C extends { rank: Rank }>(claims: readonly C[]): C {
  return claims.reduce((best, claim) => (comesFirst(claim.rank, best.rank) ? claim : best));
}

function comesFirst(a: Rank, b: Rank): boolean {
  return a.createdAt === b.createdAt ? a.owner < b.owner : a.createdAt < b.createdAt;
}
