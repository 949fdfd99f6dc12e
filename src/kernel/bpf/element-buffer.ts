import type { BpfMap } from './map.ts';

/** Collects elements of one map to write them with one system call. */
export class ElementBuffer {
  readonly #keyWords: number;
  readonly #valueWords: number;
  keys: Uint32Array;
  values: Uint32Array;
  count = 0;

  /** Sizes in 32-bit words. */
  constructor(keyWords: number, valueWords: number, room = 64) {
    this.#keyWords = keyWords;
    this.#valueWords = valueWords;
    this.keys = new Uint32Array(room * keyWords);
    this.values = new Uint32Array(room * valueWords);
  }

  /** Adds `count` elements and returns the index of the first. */
  add(count: number): number {
    const index = this.count;
    this.count += count;
    if (this.count * this.#keyWords > this.keys.length) {
      this.reserve(Math.max(this.count, (this.keys.length / this.#keyWords) * 2));
    }
    return index;
  }

  /** Makes room for `room` elements in total. */
  reserve(room: number): void {
    if (room * this.#keyWords <= this.keys.length) return;
    this.keys = grown(this.keys, room * this.#keyWords);
    this.values = grown(this.values, room * this.#valueWords);
  }

  /** Returns key and value of an element, valid until the next change. */
  bytesAt(index: number): [key: Uint8Array, value: Uint8Array] {
    const [key, value] = [this.#keyWords * 4, this.#valueWords * 4];
    return [
      new Uint8Array(this.keys.buffer, index * key, key),
      new Uint8Array(this.values.buffer, index * value, value),
    ];
  }

  /** Frees the memory of written elements. */
  trim(): void {
    if (this.count > 0) return;
    this.keys = new Uint32Array(64 * this.#keyWords);
    this.values = new Uint32Array(64 * this.#valueWords);
  }

  addBytes(key: Uint8Array, value: Uint8Array): void {
    const index = this.add(1);
    new Uint8Array(this.keys.buffer, index * this.#keyWords * 4, key.length).set(key);
    new Uint8Array(this.values.buffer, index * this.#valueWords * 4, value.length).set(value);
  }

  /** Adds an element. `words`: the key, then the value. */
  addWords(words: Uint32Array): void {
    const index = this.add(1);
    const [keyWords, valueWords] = [this.#keyWords, this.#valueWords];
    for (let i = 0; i < keyWords; i++) this.keys[index * keyWords + i] = words[i] ?? 0;
    for (let i = 0; i < valueWords; i++) this.values[index * valueWords + i] = words[keyWords + i] ?? 0;
  }

  /** Writes the elements to a map with MMAPABLE. */
  flushToMemory(map: BpfMap): void {
    map.writeMemory(this.keys, this.values, this.count);
    this.count = 0;
  }

  flush(map: BpfMap): void {
    map.updateBatch(new Uint8Array(this.keys.buffer), new Uint8Array(this.values.buffer), this.count);
    this.count = 0;
  }
}

function grown(words: Uint32Array, length: number): Uint32Array {
  const out = new Uint32Array(length);
  out.set(words);
  return out;
}
