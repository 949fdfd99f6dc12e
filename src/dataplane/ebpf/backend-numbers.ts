import { FairleadError } from '../../lib/errors.ts';
import { FRONTEND_KEY } from './generated/layout.ts';

/** Words of an endpoint's key as written by `writeKey`. */
export const BACKEND_KEY_WORDS = FRONTEND_KEY.size / 4;
const TOMBSTONE = -1;

/**
 * Assigns a number to each endpoint in use: its index in the map `backends`. An endpoint of several Services has one
 * number. An open-addressing hash table over plain numbers: with objects and strings for a hundred thousand endpoints, a
 * cold start would take twice as long.
 */
export class BackendNumbers {
  readonly #capacity: number;
  readonly #isFresh: boolean;
  /** The endpoints' keys, by number. */
  readonly #keys: Uint32Array;
  readonly #users: Uint32Array;
  /** Number + 1, 0 where free, TOMBSTONE where removed; its length is a power of two. */
  #index: Int32Array;
  /** Entries of the index that are not 0. */
  #occupied = 0;
  readonly #free: number[] = [];
  #next = 0;
  #reused: number[] = [];
  #adopted: number[] = [];

  /** `isFresh`: the map has no state under any number yet. */
  constructor(capacity: number, isFresh: boolean) {
    this.#capacity = capacity;
    this.#isFresh = isFresh;
    this.#keys = new Uint32Array(capacity * BACKEND_KEY_WORDS);
    this.#users = new Uint32Array(capacity);
    this.#index = new Int32Array(2 ** Math.ceil(Math.log2((capacity * 4) / 3)));
  }

  /** Returns the number of the endpoint whose key is at `at`, or -1. */
  find(words: Uint32Array, at: number): number {
    const place = this.#placeOf(words, at);
    return place < 0 ? -1 : (this.#index[place] ?? 0) - 1;
  }

  /**
   * Returns the endpoint's number, assigned if necessary; -1 if all are in use. Each call needs a
   * `release`.
   */
  acquire(words: Uint32Array, at: number): number {
    const place = this.#placeOf(words, at);
    if (place >= 0) {
      const known = (this.#index[place] ?? 0) - 1;
      this.#users[known] = (this.#users[known] ?? 0) + 1;
      return known;
    }
    const isUnused = this.#next < this.#capacity;
    const number = isUnused ? this.#next++ : this.#free.shift();
    if (number === undefined) return -1;
    if (!this.#isFresh || !isUnused) this.#reused.push(number);
    this.#write(words, at, number, 1);
    this.#enter(number, ~place);
    return number;
  }

  /** Releases one use of a number. Returns true if it was the last one. */
  release(number: number): boolean {
    const users = (this.#users[number] ?? 0) - 1;
    this.#users[number] = Math.max(0, users);
    if (users > 0) return false;
    this.#remove(number);
    return true;
  }

  isUsed(number: number): boolean {
    return (this.#users[number] ?? 0) > 0;
  }

  /** Returns the key of the endpoint that has or last had a number. */
  wordsOf(number: number): Uint32Array {
    return this.#keys.slice(number * BACKEND_KEY_WORDS, (number + 1) * BACKEND_KEY_WORDS);
  }

  /** Adopts the numbers that an earlier process assigned. Call it before any `acquire`. */
  adopt(backends: readonly { readonly words: Uint32Array; readonly number: number }[]): void {
    const used = new Set<number>();
    for (const { words, number } of backends) {
      if (number >= this.#capacity || used.has(number) || this.find(words, 0) >= 0) continue;
      used.add(number);
      this.#adopted.push(number);
      this.#write(words, 0, number, 0);
      this.#enter(number, ~this.#placeOf(words, 0));
      this.#next = Math.max(this.#next, number + 1);
    }
    for (let number = 0; number < this.#next; number++) if (!used.has(number)) this.#free.push(number);
  }

  /** Releases the adopted numbers without a user, and returns them. */
  dropUnused(): number[] {
    const dropped = this.#adopted.filter(
      (number) =>
        (this.#users[number] ?? 0) === 0 && this.find(this.#keys, number * BACKEND_KEY_WORDS) === number,
    );
    this.#adopted = [];
    for (const number of dropped) this.#remove(number);
    return dropped;
  }

  /** Returns the numbers assigned to another endpoint since the last call: their state has to be reset. */
  takeReused(): readonly number[] {
    const reused = this.#reused;
    this.#reused = [];
    return reused;
  }

  #write(words: Uint32Array, at: number, number: number, users: number): void {
    for (let i = 0; i < BACKEND_KEY_WORDS; i++) {
      this.#keys[number * BACKEND_KEY_WORDS + i] = words[at + i] ?? 0;
    }
    this.#users[number] = users;
  }

  #remove(number: number): void {
    const place = this.#placeOf(this.#keys, number * BACKEND_KEY_WORDS);
    if (place < 0) {
      throw new FairleadError('an endpoint without a number was released', {
        op: 'number endpoints',
        code: 'EIO',
      });
    }
    this.#index[place] = TOMBSTONE;
    this.#free.push(number);
  }

  /** Returns the position of a key in the index, or ~ of the free position for it. */
  #placeOf(words: Uint32Array, at: number): number {
    const index = this.#index;
    const keys = this.#keys;
    const mask = index.length - 1;
    for (let place = hashOf(words, at) & mask; ; place = (place + 1) & mask) {
      const entry = index[place] ?? 0;
      if (entry === 0) return ~place;
      if (entry === TOMBSTONE) continue;
      const base = (entry - 1) * BACKEND_KEY_WORDS;
      let i = 0;
      while (i < BACKEND_KEY_WORDS && keys[base + i] === words[at + i]) i++;
      if (i === BACKEND_KEY_WORDS) return place;
    }
  }

  #enter(number: number, place: number): void {
    if ((this.#occupied + 1) * 2 > this.#index.length) {
      this.#rebuild();
      place = ~this.#placeOf(this.#keys, number * BACKEND_KEY_WORDS);
    }
    this.#index[place] = number + 1;
    this.#occupied++;
  }

  /** Removes tombstones and makes the index at most a quarter full. */
  #rebuild(): void {
    const numbers = this.#index.filter((entry) => entry > 0);
    let size = this.#index.length;
    while (size < (numbers.length + 1) * 4) size *= 2;
    this.#index = new Int32Array(size);
    this.#occupied = 0;
    for (const entry of numbers) {
      this.#index[~this.#placeOf(this.#keys, (entry - 1) * BACKEND_KEY_WORDS)] = entry;
      this.#occupied++;
    }
  }
}

/**
 * Returns the hash of a key. Ends with the finalizer of MurmurHash3, since addresses differ in few bits.
 */
function hashOf(words: Uint32Array, at: number): number {
  let hash = 0;
  for (let i = at; i < at + BACKEND_KEY_WORDS; i++) hash = Math.imul(hash ^ (words[i] ?? 0), 0x9e3779b1);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
