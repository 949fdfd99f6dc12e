import type { Element, NftBatch } from '../kernel/nftables/batch.ts';
import { nextKey } from './encoding.ts';
import type { Elements, Shape } from './spec.ts';

/** Writes elements into a transaction: those from index `from` up to `to`. */
export function writeElements(
  batch: NftBatch,
  table: string,
  shape: Shape,
  elements: Elements,
  from: number,
  to: number,
): void {
  const { set, words, at, head, verdict, comment } = elements;
  if (head) {
    batch.addMapElements(table, set, head, from, to, words, at, shape.dataWords);
    return;
  }
  const { stride, keyWords } = shape;
  const hasOnlyKey = stride === keyWords;
  const isKey = hasOnlyKey && verdict === null && comment === undefined;
  for (let i = from; i < to; i++) {
    const start = at + i * stride;
    if (isKey) {
      batch.addKey(table, set, words, start, keyWords);
      continue;
    }
    if (hasOnlyKey) {
      // An array of its own is used as it is: a view of it would cost more than writing the element.
      const key = words.length === keyWords ? words : words.subarray(start, start + keyWords);
      batch.addElement(table, set, { key, verdict, comment });
      continue;
    }
    for (const element of withRangeOrData(elements, shape, start)) batch.addElement(table, set, element);
  }
}

/** Deletes elements in a transaction, which fails (ENOENT) if one is missing. */
export function removeElements(
  batch: NftBatch,
  table: string,
  shape: Shape,
  elements: Elements,
  from: number,
  to: number,
): void {
  const { set, words, at, head } = elements;
  if (head) {
    const key = new Uint32Array(head.length + 1);
    key.set(head);
    for (let i = from; i < to; i++) {
      key[head.length] = i;
      batch.deleteKey(table, set, key, 0, key.length);
    }
    return;
  }
  const { keyWords, stride, range } = shape;
  for (let i = from; i < to; i++) {
    const start = at + i * stride;
    if (range === 'none') batch.deleteKey(table, set, words, start, keyWords);
    else {
      for (const { key, keyEnd = null, intervalEnd = false } of withRangeOrData(elements, shape, start)) {
        batch.deleteElement(table, set, { key, keyEnd, intervalEnd });
      }
    }
  }
}

function withRangeOrData(
  { words, verdict, comment }: Elements,
  { keyWords, range, dataWords, stride }: Shape,
  start: number,
): Element[] {
  const key = words.subarray(start, start + keyWords);
  const data = dataWords > 0 ? words.subarray(start + stride - dataWords, start + stride) : null;
  if (range === 'none') return [{ key, data, verdict, comment }];
  const last = words.subarray(start + keyWords, start + 2 * keyWords);
  if (range === 'key-end') return [{ key, keyEnd: last, data, verdict, comment }];
  const next = nextKey(last);
  return [{ key, data, verdict, comment }, ...(next ? [{ key: next, intervalEnd: true }] : [])];
}
