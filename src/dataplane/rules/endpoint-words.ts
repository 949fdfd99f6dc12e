import type { IPFamily } from '../../lib/address.ts';
import { addressWords, be16Port, writeAddress } from '../../nft/encoding.ts';
import type { Endpoint } from '../../service/model.ts';

/** The words of the addresses and ports of a list of endpoints, from `at` on. */
export interface PoolWords {
  readonly words: Uint32Array;
  readonly at: number;
  readonly count: number;
}

/** The size of the array that the pools of a whole table share: many small arrays would cost a microsecond each. */
const CHUNK_WORDS = 16_384;

/** Encodes endpoints as words while groups are rendered. A list shared by several frontends is encoded once. */
export class EndpointWords {
  readonly #family: IPFamily;
  readonly #width: number;
  readonly #chunkWords: number;
  readonly #known = new Map<readonly Endpoint[], PoolWords>();
  #chunk = new Uint32Array(0);
  #at = 0;

  /** `whole`: for all pools of a table, not only a change's. */
  constructor(family: IPFamily, { whole }: { readonly whole: boolean }) {
    this.#family = family;
    this.#width = addressWords(family) + 1;
    this.#chunkWords = whole ? CHUNK_WORDS : 0;
  }

  /** Throws FairleadError EINVAL for an invalid address. */
  read(endpoints: readonly Endpoint[]): PoolWords {
    const known = this.#known.get(endpoints);
    if (known) return known;
    const length = endpoints.length * this.#width;
    if (this.#at + length > this.#chunk.length) {
      this.#chunk = new Uint32Array(Math.max(length, this.#chunkWords));
      this.#at = 0;
    }
    const words = this.#chunk;
    const start = this.#at;
    let at = start;
    for (const { ip, port } of endpoints) {
      writeAddress(ip, this.#family, words, at);
      words[at + this.#width - 1] = be16Port(port);
      at += this.#width;
    }
    this.#at = at;
    const read = { words, at: start, count: endpoints.length };
    this.#known.set(endpoints, read);
    return read;
  }
}
