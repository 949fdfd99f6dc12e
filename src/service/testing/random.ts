/** A seeded source of randomness for tests: equal seeds give equal sequences, on every machine. */
export interface Random {
  /** Returns an integer from 0 to `below` - 1. */
  integer(below: number): number;
  /** Returns true with this probability. */
  chance(probability: number): boolean;
  pick<T>(items: readonly T[]): T;
}

/** Creates a Mulberry32 generator: 32 bits of state are plenty for test cases. */
export function createRandom(seed: number): Random {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000;
  };
  const integer = (below: number) => Math.floor(next() * below);
  return {
    integer,
    chance: (probability) => next() < probability,
    pick(items) {
      const item = items[integer(items.length)];
      if (item === undefined && items.length === 0) throw new RangeError('nothing to pick from');
      return item as (typeof items)[number];
    },
  };
}
