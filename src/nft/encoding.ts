import { addressBytes, FAMILY_NAMES, type IPFamily } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import { successor } from './ranges.ts';

// nf_tables registers and set keys: 32-bit words in network order, read as numbers of a little-endian host.

/** The number of words of an address: 1 or 4. */
export const addressWords = (family: IPFamily): 1 | 4 => (family === 'ipv4' ? 1 : 4);

/**
 * Writes the words of the address that `text` contains from index `from` on into `out` at `at`. Throws
 * FairleadError EINVAL for other text.
 */
export function writeAddress(text: string, family: IPFamily, out: Uint32Array, at: number, from = 0): void {
  if (family === 'ipv4') {
    const word = ipv4Word(text, from);
    if (word === null) throw badAddress(text.slice(from), family);
    out[at] = word;
    return;
  }
  const bytes = addressBytes(from === 0 ? text : text.slice(from));
  if (bytes?.length !== 16) throw badAddress(text.slice(from), family);
  for (let i = 0; i < 4; i++) out[at + i] = wordOf(bytes, i * 4);
}

export function wordOf(bytes: Uint8Array, at: number): number {
  return (
    ((bytes[at] ?? 0) |
      ((bytes[at + 1] ?? 0) << 8) |
      ((bytes[at + 2] ?? 0) << 16) |
      ((bytes[at + 3] ?? 0) << 24)) >>>
    0
  );
}

/** Returns words as bytes. */
export function bytesOf(words: ArrayLike<number>): Uint8Array {
  return new Uint8Array(Uint32Array.from(words).buffer);
}

export const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

/** Parses without splitting the text, because a cold start reads a hundred thousand addresses. */
function ipv4Word(text: string, from: number): number | null {
  let word = 0;
  let part = 0;
  let digits = 0;
  let shift = 0;
  for (let i = from; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === 46) {
      if (digits === 0 || shift === 24) return null;
      word |= part << shift;
      shift += 8;
      part = 0;
      digits = 0;
    } else if (code >= 48 && code <= 57) {
      part = part * 10 + code - 48;
      digits++;
      if (part > 255) return null;
    } else return null;
  }
  if (digits === 0 || shift !== 24) return null;
  return (word | (part << 24)) >>> 0;
}

function badAddress(text: string, family: IPFamily): FairleadError {
  return new FairleadError(`${JSON.stringify(text)} is not an ${FAMILY_NAMES[family]} address`, {
    op: 'encode nf_tables element',
    code: 'EINVAL',
    object: text,
  });
}

export const wordsOf = (bytes: Uint8Array): number[] =>
  Array.from({ length: bytes.length / 4 }, (_, i) => wordOf(bytes, i * 4));

/** Returns a port in register encoding: its two bytes first. */
export const be16Port = (port: number): number => ((port & 0xff) << 8) | (port >> 8);

/** Returns an address's words. Throws FairleadError EINVAL for other text. */
export function wordsOfAddress(text: string, family: IPFamily): number[] {
  const words = new Uint32Array(addressWords(family));
  writeAddress(text, family, words, 0);
  return [...words];
}

/** Returns words as a string, for comparisons and as the key of a Map: 16 bits per character. */
export function wordsText(words: Uint32Array, at: number, count: number): string {
  let text = '';
  for (let i = at; i < at + count; i++) {
    const word = words[i] ?? 0;
    text += String.fromCharCode(word & 0xffff, word >>> 16);
  }
  return text;
}

/** Returns the bytes of a key or of data as the same string; the kernel returns a single field without its padding. */
export function bytesText(bytes: Uint8Array): string {
  let text = '';
  for (let i = 0; i < bytes.length; i += 4) {
    const word = wordOf(bytes, i);
    text += String.fromCharCode(word & 0xffff, word >>> 16);
  }
  return text;
}

/** Returns the bytes of a string made by `wordsText` or `bytesText`. */
export function textBytes(text: string): Uint8Array {
  const bytes = new Uint8Array(text.length * 2);
  for (let i = 0; i < text.length; i++) {
    const half = text.charCodeAt(i);
    bytes[2 * i] = half & 0xff;
    bytes[2 * i + 1] = half >> 8;
  }
  return bytes;
}

export function sameWords(a: Uint32Array, b: Uint32Array): boolean {
  if (a === b) return true;
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** Returns the next key in network order; null after the last one. */
export function nextKey(words: Uint32Array): Uint32Array | null {
  const bytes = successor(new Uint8Array(words.slice().buffer));
  return bytes && new Uint32Array(bytes.buffer);
}
