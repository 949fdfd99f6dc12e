import type { IPFamily } from '../../lib/address.ts';
import { addressWords, be16Port, writeAddress } from '../../nft/encoding.ts';
import type { Endpoint } from '../../service/model.ts';

/** Words of the addresses and ports of a list of endpoints, from `at` on. */
export interface PoolWords {
  readonly words: Uint32Array;
  readonly at: number;
  readonly count: number;
}

/** Words that the pools of a whole table share one array for: of so many small ones, each costs a microsecond. */
const CHUNK_WORDS = 16_384;

/** Writes endpoints as words while groups are rendered. A list that several frontends share is written once. */
export class EndpointWords {
  readonly #family: IPFamily;
  readonly #width: number;
  readonly #chunkWords: number;
  readonly #known = new Map<readonly Endpoint[], PoolWords>();
  #chunk = new Uint32Array(0);
  #at = 0;

  /** `whole`: for all pools of a table, not those of a change. */
  constructor(family: IPFamily, { whole }: { readonly whole: boolean }) {
    this.#family = family;
    this.#width = addressWords(family) + 1;
    this.#chunkWords = whole ? CHUNK_WORDS : 0;
  }

  /** Throws FairleadError EINVAL for a bad address. */
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
