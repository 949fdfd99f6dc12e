import { type AttributeWriter, NESTED } from './attribute-writer.ts';
import { UDATA_ELEMENT_COMMENT } from './constants.ts';
import { commentUserdata } from './userdata.ts';

export type ElementVerdict = 'accept' | 'drop' | { readonly goto: string };

/** One element of a set or map. */
export interface Element {
  /** Words as they stand in registers. */
  readonly key: ArrayLike<number>;
  /** For intervals of a concatenation: the highest key that belongs to it. */
  readonly keyEnd?: ArrayLike<number>;
  readonly data?: ArrayLike<number>;
  readonly verdict?: ElementVerdict;
  /** For intervals of one field: this is the first key that no longer belongs to one. */
  readonly intervalEnd?: boolean;
  readonly timeoutMs?: number;
  readonly expiresMs?: number;
  /** Shown by `nft list`. */
  readonly comment?: string;
}

const COMMENT_LENGTH = 120;

/** At most how many words `writeElement` writes. */
export const wordsOfElement = ({ key, data, comment }: Element): number =>
  120 + key.length * 2 + (data?.length ?? 0) + (comment?.length ?? 0);

export function writeElement(out: AttributeWriter, element: Element): void {
  const { key, keyEnd, data, verdict, comment } = element;
  out.nest(1);
  if (element.intervalEnd) out.be32(3, 1);
  out.nest(1);
  out.wordsAttribute(1, key);
  out.endNest();
  if (keyEnd) {
    out.nest(10);
    out.wordsAttribute(1, keyEnd);
    out.endNest();
  }
  if (data) {
    out.nest(2);
    out.wordsAttribute(1, data);
    out.endNest();
  } else if (verdict) {
    out.nest(2);
    out.verdict(verdict);
    out.endNest();
  }
  if (element.timeoutMs) out.be64(4, element.timeoutMs);
  if (element.expiresMs) out.be64(5, element.expiresMs);
  if (comment !== undefined) writeComment(out, comment.slice(0, COMMENT_LENGTH));
  out.endNest();
}

function writeComment(out: AttributeWriter, comment: string): void {
  // Names of objects are ASCII: their bytes are written in place, since there is one comment a Service.
  const { length } = comment;
  const count = (length + 6) >> 2;
  const { at, words, bytes } = out;
  words[at] = (4 + length + 3) | (6 << 16);
  words[at + count] = 0;
  let p = (at + 1) * 4;
  bytes[p++] = UDATA_ELEMENT_COMMENT;
  bytes[p++] = length + 1;
  for (let i = 0; i < length; i++) {
    const code = comment.charCodeAt(i);
    if (code > 127) {
      out.attribute(6, commentUserdata(UDATA_ELEMENT_COMMENT, comment));
      return;
    }
    bytes[p++] = code;
  }
  bytes[p] = 0;
  out.at = at + 1 + count;
}

/** How many words `writeMapElement` writes. */
export const wordsOfMapElement = (headWords: number, dataWords: number): number => headWords + dataWords + 6;

/**
 * The fast way for plain map elements in bulk: the same head words of the key again and again, one changing last word,
 * and data. There must be room.
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
  words[p++] = ((wordsOfMapElement(headWords, dataWords) * 4) | ((1 | NESTED) << 16)) >>> 0;
  words[p++] = ((keyBytes + 8) | ((1 | NESTED) << 16)) >>> 0;
  words[p++] = (keyBytes + 4) | (1 << 16);
  for (let i = 0; i < headWords; i++) words[p++] = head[i] ?? 0;
  words[p++] = lastKeyWord;
  words[p++] = ((dataWords * 4 + 8) | ((2 | NESTED) << 16)) >>> 0;
  words[p++] = (dataWords * 4 + 4) | (1 << 16);
  for (let i = 0; i < dataWords; i++) words[p++] = data[dataAt + i] ?? 0;
  out.at = p;
}
