import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import type { IPFamily } from '../../lib/address.ts';
import { addressWords, be16Port, writeAddress } from '../../nft/encoding.ts';
import type { Endpoint, Frontend } from '../../service/model.ts';

/** What stands in one family's sets and maps, as words of registers. All throw FairleadError EINVAL for bad addresses. */
export class RegisterKeys {
  readonly family: IPFamily;
  /** Of an address. */
  readonly words: 1 | 4;

  constructor(family: IPFamily) {
    this.family = family;
    this.words = addressWords(family);
  }

  isOurs(address: string): boolean {
    return address.includes(':') === (this.family === 'ipv6');
  }

  /** The first words of a frontend's keys, in the order of `layout.key`. */
  head({ address, port, protocol }: Frontend): Uint32Array {
    const words = address === null ? 0 : this.words;
    const head = new Uint32Array(words + 2);
    if (address !== null) writeAddress(address, this.family, head, 0);
    head[words] = PROTOCOL_NUMBER[protocol];
    head[words + 1] = be16Port(port);
    return head;
  }

  endpoint({ ip, port }: Pick<Endpoint, 'ip' | 'port'>): Uint32Array {
    const words = new Uint32Array(this.words + 1);
    writeAddress(ip, this.family, words, 0);
    words[this.words] = be16Port(port);
    return words;
  }

  /** An address, so many times over. */
  address(ip: string, times = 1): Uint32Array {
    const words = new Uint32Array(this.words * times);
    for (let i = 0; i < times; i++) writeAddress(ip, this.family, words, i * this.words);
    return words;
  }
}
