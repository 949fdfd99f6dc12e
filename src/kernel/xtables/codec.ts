import { addressBytes, type IPFamily } from '../../lib/address.ts';
import type { Words } from './words.ts';

/** The numbers of ipset's sets in a namespace. */
export interface SetIndex {
  /** Returns a set's number; null if there is no such set. */
  numberOf(name: string): number | null;
  /** Returns a set's name; null if there is no such set. */
  nameOf(number: number): string | null;
}

/** Memory for entries, whose numbers are aligned to their size; all begin at a multiple of 8. */
export interface Output {
  readonly bytes: Buffer;
  readonly u16: Uint16Array;
  readonly u32: Uint32Array;
}

/** Returns memory as an output. */
export const outputOf = (bytes: Buffer): Output => ({
  bytes,
  u16: new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length >> 1),
  u32: new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length >> 2),
});

/** The text and bytes of a match or target, in one revision. Text: iptables-save's, without "-m NAME" or "-j NAME". */
export interface Codec {
  readonly name: string;
  readonly revision: number;
  /** Size of the struct, rounded up to 8 (XT_ALIGN). */
  readonly bytes: number;
  /** Takes the options from `words` and writes the struct into zeroed memory. Throws UnknownRule. */
  write(words: Words, out: Output, at: number, sets: SetIndex): void;
  /** Returns the options; null if they are others than `write` knows. */
  read(bytes: Buffer, at: number, sets: SetIndex): string | null;
}

/** Returns true if all bytes from `from` to before `to` are zero. */
export function isZero(bytes: Uint8Array, from: number, to: number): boolean {
  for (let i = from; i < to; i++) if (bytes[i] !== 0) return false;
  return true;
}

/** Returns the length of the prefix that a mask covers; null for a mask that is not a prefix. */
export function prefixOf(bytes: Uint8Array, mask: number, length: number): number | null {
  const isSet = (bit: number) => ((bytes[mask + (bit >> 3)] ?? 0) & (0x80 >> (bit & 7))) !== 0;
  let prefix = 0;
  while (prefix < 8 * length && isSet(prefix)) prefix++;
  for (let bit = prefix; bit < 8 * length; bit++) if (isSet(bit)) return null;
  return prefix;
}

/** Takes a network, "10.0.0.0/8", and the end of its word; writes its address and its mask. Throws UnknownRule. */
export function takeNetwork(words: Words, family: IPFamily, out: Uint8Array, at: number, mask: number): void {
  const length = family === 'ipv4' ? 4 : 16;
  if (family === 'ipv4') {
    words.dotted(out, at);
    if (!words.isNext('/')) throw words.unknown();
  } else {
    const bytes = addressBytes(words.takeUntil('/'));
    if (bytes?.length !== length) throw words.unknown();
    out.set(bytes, at);
  }
  const prefix = words.number(8 * length);
  words.end();
  for (let i = 0; i < length; i++) {
    const bits = Math.min(8, Math.max(0, prefix - 8 * i));
    const byte = (0xff00 >> bits) & 0xff;
    out[mask + i] = byte;
    // The program writes the network's first address, and prints that.
    if (((out[at + i] ?? 0) & ~byte) !== 0) throw words.unknown();
  }
}
