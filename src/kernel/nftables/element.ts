import { type AttributeWriter, NESTED } from './attribute-writer.ts';
import { ELEMENT_INTERVAL_END, NFTA, UDATA_ELEMENT_COMMENT } from './constants.ts';
import { commentUserdata } from './userdata.ts';

export type ElementVerdict = 'accept' | 'drop' | { readonly goto: string };

/** One element of a set or map. */
export interface Element {
  /** Words in the order of registers. */
  readonly key: ArrayLike<number>;
  /** For intervals of a concatenation: the highest key of the interval. */
  readonly keyEnd?: ArrayLike<number> | null;
  readonly data?: ArrayLike<number> | null;
  readonly verdict?: ElementVerdict | null;
  /** For intervals of one field: this is the first key after an interval. */
  readonly intervalEnd?: boolean;
  readonly timeoutMs?: number;
  readonly expiresMs?: number;
  /** Shown by `nft list`. */
  readonly comment?: string | undefined;
}

const COMMENT_LENGTH = 120;

/** Returns the maximum number of words that `writeElement` writes. */
export const wordsOfElement = ({ key, data, comment }: Element): number =>
  120 + key.length * 2 + (data?.length ?? 0) + (comment?.length ?? 0);

export function writeElement(out: AttributeWriter, element: Element): void {
  const { key, keyEnd, data, verdict, comment } = element;
  const at = NFTA.setElement;
  out.nest(NFTA.list.element);
  if (element.intervalEnd) out.be32(at.flags, ELEMENT_INTERVAL_END);
  out.nest(at.key);
  out.wordsAttribute(NFTA.data.value, key);
  out.endNest();
  if (keyEnd) {
    out.nest(at.keyEnd);
    out.wordsAttribute(NFTA.data.value, keyEnd);
    out.endNest();
  }
  if (data) {
    out.nest(at.data);
    out.wordsAttribute(NFTA.data.value, data);
    out.endNest();
  } else if (verdict) {
    out.nest(at.data);
    out.verdict(verdict);
    out.endNest();
  }
  if (element.timeoutMs) out.be64(at.timeout, element.timeoutMs);
  if (element.expiresMs) out.be64(at.expiration, element.expiresMs);
  if (comment !== undefined) writeComment(out, comment.slice(0, COMMENT_LENGTH));
  out.endNest();
}

function writeComment(out: AttributeWriter, comment: string): void {
  // Names of objects are ASCII: their bytes are written in place, because every Service has a comment.
  const { length } = comment;
  const count = (length + 6) >> 2;
  const { at, words, bytes } = out;
  words[at] = (4 + length + 3) | (NFTA.setElement.userdata << 16);
  words[at + count] = 0;
  let p = (at + 1) * 4;
  bytes[p++] = UDATA_ELEMENT_COMMENT;
  bytes[p++] = length + 1;
  for (let i = 0; i < length; i++) {
    const code = comment.charCodeAt(i);
    if (code > 127) {
      out.attribute(NFTA.setElement.userdata, commentUserdata(UDATA_ELEMENT_COMMENT, comment));
      return;
    }
    bytes[p++] = code;
  }
  bytes[p] = 0;
  out.at = at + 1 + count;
}

/** Returns the number of words that `writeMapElement` writes. */
export const wordsOfMapElement = (headWords: number, dataWords: number): number => headWords + dataWords + 6;

/**
 * Writes plain map elements in bulk, the fast path: the first words of the key stay the same, and the last
 * word and the data change. There must be room.
 */
export function writeMapElement(
  out: AttributeWriter,
  head: Uint32Array,
  lastKeyWord: number,
  data: Uint32Array,
  dataAt: number,
  dataWords: number,
): void {
  const { words } = out;
  const headWords = head.length;
  const keyBytes = headWords * 4 + 4;
  let p = out.at;
  words[p++] = ((wordsOfMapElement(headWords, dataWords) * 4) | ((NFTA.list.element | NESTED) << 16)) >>> 0;
  words[p++] = ((keyBytes + 8) | ((NFTA.setElement.key | NESTED) << 16)) >>> 0;
  words[p++] = (keyBytes + 4) | (NFTA.data.value << 16);
  for (let i = 0; i < headWords; i++) words[p++] = head[i] ?? 0;
  words[p++] = lastKeyWord;
  words[p++] = ((dataWords * 4 + 8) | ((NFTA.setElement.data | NESTED) << 16)) >>> 0;
  words[p++] = (dataWords * 4 + 4) | (NFTA.data.value << 16);
  for (let i = 0; i < dataWords; i++) words[p++] = data[dataAt + i] ?? 0;
  out.at = p;
}

/** Returns the number of words that `writeKeyElement` writes. */
export const wordsOfKeyElement = (keyWords: number): number => keyWords + 3;

/**
 * Writes set elements in bulk that consist of a key alone, the fast path: `keyWords` words from `from` on.
 * There must be room.
 */
export function writeKeyElement(
  out: AttributeWriter,
  key: Uint32Array,
  from: number,
  keyWords: number,
): void {
  const { words } = out;
  const keyBytes = keyWords * 4;
  let p = out.at;
  words[p++] = ((keyBytes + 12) | ((NFTA.list.element | NESTED) << 16)) >>> 0;
  words[p++] = ((keyBytes + 8) | ((NFTA.setElement.key | NESTED) << 16)) >>> 0;
  words[p++] = (keyBytes + 4) | (NFTA.data.value << 16);
  for (let i = 0; i < keyWords; i++) words[p++] = key[from + i] ?? 0;
  out.at = p;
}
