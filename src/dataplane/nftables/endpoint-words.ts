import type { IPFamily } from '../../lib/address.ts';
import { addressWords, be16Port, writeAddress } from '../../nft/encoding.ts';
import type { Endpoint } from '../../service/model.ts';

/** Kept between transactions. */
const KEPT_WORDS = 4096;

/**
 * The addresses and ports of endpoints as words, while a transaction is written. Each list is read once, of which many
 * frontends share the same: a cold start writes a hundred thousand and more.
 */
export class EndpointWords {
  readonly #family: IPFamily;
  readonly #address: 1 | 4;
  /** Words of an endpoint. */
  readonly width: number;
  #words = new Uint32Array(KEPT_WORDS);
  #end = 0;
  /** Where each list begins. */
  readonly #starts = new Map<readonly Endpoint[], number>();

  constructor(family: IPFamily) {
    this.#family = family;
    this.#address = addressWords(family);
    this.width = this.#address + 1;
  }

  /** Another array whenever it has grown. */
  get words(): Uint32Array {
    return this.#words;
  }

  /** Where in `words` a list's endpoints begin. Throws FairleadError EINVAL for a bad address. */
  read(endpoints: readonly Endpoint[]): number {
    const known = this.#starts.get(endpoints);
    if (known !== undefined) return known;
    const start = this.#end;
    const end = start + endpoints.length * this.width;
    if (end > this.#words.length) {
      const grown = new Uint32Array(end * 2);
      grown.set(this.#words.subarray(0, start));
      this.#words = grown;
    }
    let at = start;
    for (const { ip, port } of endpoints) {
      writeAddress(ip, this.#family, this.#words, at);
      this.#words[at + this.#address] = be16Port(port);
      at += this.width;
    }
    this.#end = end;
    this.#starts.set(endpoints, start);
    return start;
  }

  /** The transaction is written. */
  forget(): void {
    this.#starts.clear();
    this.#end = 0;
    if (this.#words.length > KEPT_WORDS) this.#words = new Uint32Array(KEPT_WORDS);
  }
}
