import { sameWords, wordsText } from './encoding.ts';
import type { ElementGroup, Elements, Shape } from './spec.ts';

/** The writes that change a table's elements from one group to another. Ranges of elements: `from` up to `to`. */
export interface ChangeSink {
  add(elements: Elements, from: number, to: number): void;
  /**
   * `succeeded`: an element with the same key is added in the same change, or the head keeps elements of
   * lower indexes.
   */
  remove(elements: Elements, from: number, to: number, succeeded: boolean): void;
}

/**
 * Writes the difference of two groups of one owner, deletions before additions. Returns the second group with the indexes
 * in use: elements keep their index while others are added or removed.
 */
export function changeGroup(
  before: ElementGroup | null,
  after: ElementGroup | null,
  shapeOf: (set: string) => Shape,
  sink: ChangeSink,
): ElementGroup | null {
  if (!before || !after) {
    for (const one of before?.elements ?? []) sink.remove(one, 0, one.count, false);
    for (const one of after?.elements ?? []) sink.add(one, 0, one.count);
    return after;
  }
  const old = before.elements;
  const oldOf = bySet(old);
  const next = after.elements.map((next) => {
    if (!next.head) return next;
    const was = partner(next, oldOf(next.set));
    return was ? place(was, next, shapeOf(next.set).dataWords) : next;
  });
  const nextOf = bySet(next);
  for (const one of old)
    each(one, nextOf(one.set), shapeOf(one.set), (from, to, succeeded) =>
      sink.remove(one, from, to, succeeded),
    );
  for (const one of next) each(one, oldOf(one.set), shapeOf(one.set), (from, to) => sink.add(one, from, to));
  return { ...after, elements: next };
}

/** Groups of at most so many lists are searched in less time than an index of them is made. */
const FEW_LISTS = 16;
const NONE: readonly Elements[] = [];

/** Returns what finds the lists that may be of a set: a pod that thousands of rules select is in as many sets. */
function bySet(lists: readonly Elements[]): (set: string) => readonly Elements[] {
  if (lists.length <= FEW_LISTS) return () => lists;
  const index = new Map<string, Elements[]>();
  for (const one of lists) {
    const known = index.get(one.set);
    if (known) known.push(one);
    else index.set(one.set, [one]);
  }
  return (set) => index.get(set) ?? NONE;
}

/** Calls back with the elements that are not in `others`; `succeeded` as in `ChangeSink`. */
function each(
  one: Elements,
  others: readonly Elements[],
  shape: Shape,
  use: (from: number, to: number, succeeded: boolean) => void,
): void {
  if (one.head) {
    const other = partner(one, others);
    const common = other ? Math.min(one.count, other.count) : 0;
    for (let i = 0; i < common; i++) {
      if (other && !sameData(one, other, i, shape.dataWords)) use(i, i + 1, true);
    }
    if (common < one.count) use(common, one.count, common > 0);
    return;
  }
  const same = others.filter((other) => other.set === one.set && other.head === null);
  const [first] = same;
  if (!first) {
    use(0, one.count, false);
    return;
  }
  if (same.length === 1 && isSame(one, first, shape.stride)) return;
  const { keyWords, stride } = shape;
  const keys = new Set<string>();
  const all = new Set<string>();
  for (const other of same) {
    const label = labelOf(other);
    for (let i = 0; i < other.count; i++) {
      const at = other.at + i * stride;
      keys.add(wordsText(other.words, at, keyWords));
      all.add(wordsText(other.words, at, stride) + label);
    }
  }
  const label = labelOf(one);
  for (let i = 0; i < one.count; i++) {
    const at = one.at + i * stride;
    if (all.has(wordsText(one.words, at, stride) + label)) continue;
    use(i, i + 1, keys.has(wordsText(one.words, at, keyWords)));
  }
}

function partner(one: Elements, others: readonly Elements[]): Elements | undefined {
  return others.find(
    (other) => other.set === one.set && other.head && one.head && sameWords(other.head, one.head),
  );
}

/** Returns true if both have the same elements in the same order, with the same label. */
function isSame(a: Elements, b: Elements, stride: number): boolean {
  if (a.count !== b.count || a.comment !== b.comment || labelOf(a) !== labelOf(b)) return false;
  for (let i = 0; i < a.count; i++) if (!sameData(a, b, i, stride)) return false;
  return true;
}

const labelOf = ({ verdict, comment }: Elements): string =>
  `${verdict === null ? '' : typeof verdict === 'string' ? verdict : verdict.goto} ${comment ?? ''}`;

function sameData(a: Elements, b: Elements, index: number, width: number): boolean {
  const [from, to] = [a.at + index * width, b.at + index * width];
  for (let i = 0; i < width; i++) if (a.words[from + i] !== b.words[to + i]) return false;
  return true;
}

/** Orders the second elements so that elements in both keep their index; new ones fill the gaps. */
function place(before: Elements, wanted: Elements, width: number): Elements {
  const { count } = wanted;
  const common = Math.min(before.count, count);
  let same = 0;
  while (same < common && sameData(before, wanted, same, width)) same++;
  if (same === common) return wanted;
  const remaining = new Map<number | string, number>();
  for (let i = 0; i < count; i++) remaining.set(dataKey(wanted, i, width), i);
  const words = new Uint32Array(count * width);
  const put = (from: number, to: number) => {
    const at = wanted.at + from * width;
    for (let i = 0; i < width; i++) words[to * width + i] = wanted.words[at + i] ?? 0;
  };
  const gaps: number[] = [];
  for (let i = 0; i < count; i++) {
    const key = i < before.count ? dataKey(before, i, width) : null;
    const found = key === null ? undefined : remaining.get(key);
    if (found === undefined || key === null) gaps.push(i);
    else {
      put(found, i);
      remaining.delete(key);
    }
  }
  const fresh = remaining.values();
  for (const gap of gaps) put(fresh.next().value ?? 0, gap);
  return { ...wanted, words, at: 0 };
}

/** Returns an element's data as the key of a Map: an IPv4 address and a port make one number, which is faster to look up. */
function dataKey({ words, at }: Elements, index: number, width: number): number | string {
  const from = at + index * width;
  const [first = 0, second = 0] = [words[from], words[from + 1]];
  return width === 2 && second < 0x10000 ? first * 0x10000 + second : wordsText(words, from, width);
}
