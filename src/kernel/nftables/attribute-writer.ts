import { NFTA, VERDICT } from './constants.ts';

/** Returns a 32-bit word whose bytes in memory are `value` in network order (hosts are little-endian). */
export function be32(value: number): number {
  return (
    (((value & 0xff) << 24) |
      ((value & 0xff00) << 8) |
      ((value >>> 8) & 0xff00) |
      ((value >>> 24) & 0xff)) >>>
    0
  );
}

/**
 * Does the same for a 16-bit number in the first two bytes of a word, the position of ports in registers.
 */
export function be16(value: number): number {
  return ((value & 0xff) << 8) | ((value >>> 8) & 0xff);
}

export type RuleVerdict =
  | 'accept'
  | 'drop'
  | 'return'
  | { readonly goto: string }
  | { readonly jump: string };

export const NESTED = 0x8000;

/**
 * Writes attributes of nf_tables messages into a growing buffer. Everything in netlink is aligned to 32
 * bits, so the writer works word by word; numbers are in network order.
 */
export class AttributeWriter {
  /** The buffer, as words and as bytes; replaced whenever it grows. */
  words: Uint32Array<ArrayBuffer>;
  bytes: Uint8Array<ArrayBuffer>;
  /** Number of words written. */
  at = 0;
  readonly #nests: number[] = [];

  /** `capacity`: bytes. */
  constructor(capacity: number) {
    const buffer = new ArrayBuffer((capacity + 3) & ~3);
    this.words = new Uint32Array(buffer);
    this.bytes = new Uint8Array(buffer);
  }

  /** Returns the bytes written so far; valid until the next write. */
  written(): Uint8Array {
    return this.bytes.subarray(0, this.at * 4);
  }

  /** Makes room for this many more words. */
  room(count: number): void {
    const needed = this.at + count;
    if (needed <= this.words.length) return;
    let length = this.words.length * 2;
    while (length < needed) length *= 2;
    const words = new Uint32Array(length);
    words.set(this.words.subarray(0, this.at));
    this.words = words;
    this.bytes = new Uint8Array(words.buffer);
  }

  be32(type: number, value: number): void {
    this.room(2);
    this.words[this.at++] = 8 | (type << 16);
    this.words[this.at++] = be32(value);
  }

  u8(type: number, value: number): void {
    this.room(2);
    this.words[this.at++] = 5 | (type << 16);
    this.words[this.at++] = value & 0xff;
  }

  be64(type: number, value: number): void {
    this.room(3);
    this.words[this.at++] = 12 | (type << 16);
    this.words[this.at++] = be32(Math.floor(value / 2 ** 32));
    this.words[this.at++] = be32(value >>> 0);
  }

  /** Writes ASCII text, terminated by a zero. */
  text(type: number, value: string): void {
    const length = value.length + 1;
    const count = (length + 3) >> 2;
    this.room(count + 1);
    this.words[this.at] = (4 + length) | (type << 16);
    this.words[this.at + count] = 0;
    let p = (this.at + 1) * 4;
    const end = p + count * 4;
    for (let i = 0; i < value.length; i++) this.bytes[p++] = value.charCodeAt(i);
    this.bytes.fill(0, p, end);
    this.at += 1 + count;
  }

  attribute(type: number, value: Uint8Array): void {
    const count = (value.length + 3) >> 2;
    this.room(count + 1);
    this.words[this.at] = (4 + value.length) | (type << 16);
    this.words[this.at + count] = count > 0 ? 0 : (this.words[this.at] ?? 0);
    this.bytes.set(value, (this.at + 1) * 4);
    this.at += 1 + count;
  }

  /** Writes words in the order of registers. */
  wordsAttribute(type: number, value: ArrayLike<number>): void {
    this.room(value.length + 1);
    this.words[this.at++] = (4 + value.length * 4) | (type << 16);
    for (let i = 0; i < value.length; i++) this.words[this.at++] = value[i] ?? 0;
  }

  nest(type: number): void {
    this.room(1);
    this.#nests.push(this.at);
    this.words[this.at++] = ((type | NESTED) << 16) >>> 0;
  }

  endNest(): void {
    const start = this.#nests.pop();
    if (start === undefined) throw new Error('no nest is open');
    this.words[start] = ((this.words[start] ?? 0) | ((this.at - start) * 4)) >>> 0;
  }

  /** Writes one expression of a rule; `type`: of the attribute, for an expression inside another one. */
  expression(name: string, write: () => void, type: number = NFTA.list.element): void {
    this.nest(type);
    this.text(NFTA.expression.name, name);
    this.nest(NFTA.expression.data);
    write();
    this.endNest();
    this.endNest();
  }

  /** Writes the attribute NFTA_DATA_VERDICT. */
  verdict(verdict: RuleVerdict): void {
    const { code, chain } = NFTA.verdict;
    this.nest(NFTA.data.verdict);
    if (typeof verdict === 'string') this.be32(code, VERDICT[verdict] >>> 0);
    else if ('goto' in verdict) {
      this.be32(code, VERDICT.goto >>> 0);
      this.text(chain, verdict.goto);
    } else {
      this.be32(code, VERDICT.jump >>> 0);
      this.text(chain, verdict.jump);
    }
    this.endNest();
  }
}
