import type { BaseChain, ElementVerdict } from '../kernel/nftables/batch.ts';
import type { DataType, TableFamily } from '../kernel/nftables/constants.ts';
import { wordsOf } from './encoding.ts';
import type { AddressRange } from './ranges.ts';
import type { Rule } from './rule.ts';

export interface ChainSpec {
  readonly name: string;
  /** Absent: only reached from other chains. */
  readonly base?: BaseChain;
  readonly rules: readonly Rule[];
}

export interface SetSpec {
  readonly name: string;
  readonly key: readonly DataType[];
  /** Absent: a set. `verdict`: a verdict map. */
  readonly data?: readonly DataType[] | 'verdict';
  /** Elements are ranges: of the key, or, in a concatenation, of any of its fields. */
  readonly interval?: boolean;
  /** Rules add the elements, which expire; `verify` ignores them. */
  readonly dynamic?: boolean;
  /** Each element counts the packets that find it. */
  readonly counted?: boolean;
  /** The size of the set; absent: one and a half times the number of elements, or a share of the table's, rounded up. */
  readonly size?: number;
  /**
   * `deferred`: the last elements of a head are deleted in the next transaction, or a few milliseconds
   * later, because packets may still be about to look them up. Rules must tolerate a missing element if
   * the head has one of a lower index.
   */
  readonly removal?: 'deferred';
}

/** Chains and sets that only some groups of elements need. */
export interface Fragment {
  /** Chains and sets that already exist, by name, are not added again. */
  readonly chains: readonly ChainSpec[];
  readonly sets: readonly SetSpec[];
  /** Rules to append to chains of the table. */
  readonly rules: readonly ChainSpec[];
}

/**
 * Elements of one set that share verdict and comment. `words`, from `at` on, contains for each element its
 * key; for ranges the first and the last key; then its data. With `head`, each element's key is the head
 * and its index, and `words` contains only data; the table assigns the indexes.
 */
export interface Elements {
  readonly set: string;
  readonly words: Uint32Array;
  readonly at: number;
  readonly count: number;
  readonly head: Uint32Array | null;
  readonly verdict: ElementVerdict | null;
  /** Shown by `nft list`. */
  readonly comment: string | undefined;
}

/** All elements of a table for one owner. */
export interface ElementGroup {
  readonly elements: readonly Elements[];
  /** Equal fragments are the same object in all groups. */
  readonly needs: readonly Fragment[];
  /** The group is the owner's address in this set instead of `elements`. */
  readonly addressSet?: AddressSet;
  /** Chains of the owner alone, which come and go with the group; no rule refers to them. */
  readonly chains?: readonly ChainSpec[];
}

/**
 * A set of single addresses, each with a separate owner, since each is added and removed separately. All these owners
 * share one group (`addressGroup`): objects for each of 300,000 addresses would cost more than writing the elements.
 * `times`: how often the key repeats the address. `prefix`: of the owners' names, unique in a table.
 */
export interface AddressSet {
  readonly set: string;
  readonly times: 1 | 2;
  readonly prefix: string;
}

/** The wanted state of a table of one family. */
export interface TableSpec {
  readonly family: TableFamily;
  readonly name: string;
  readonly chains: readonly ChainSpec[];
  readonly sets: readonly SetSpec[];
  /**
   * By owner: the key of a frontend, or a name such as "node". No two groups contain the same element. A table that is
   * written takes the map over, and changes it: copying one of 300,000 groups would take longer than a change.
   */
  readonly groups: Map<string, ElementGroup>;
}

/**
 * Makes elements of a set from the words of an array; `at`: offset of the first; `count`: number of
 * elements.
 */
export function elements(
  set: string,
  words: Uint32Array,
  {
    at = 0,
    count = 1,
    verdict = null,
    comment,
  }: { at?: number; count?: number; verdict?: ElementVerdict | null; comment?: string | undefined } = {},
): Elements {
  return { set, words, at, count, head: null, verdict, comment };
}

/** Returns elements of an interval set from address ranges; `head`: the words of the fields before the address. */
export function rangeElements(
  set: string,
  ranges: readonly AddressRange[],
  head: Uint32Array = NO_HEAD,
): Elements {
  const words = ranges.flatMap(({ first, last }) => [...head, ...wordsOf(first), ...head, ...wordsOf(last)]);
  return elements(set, Uint32Array.from(words), { count: ranges.length });
}

const NO_HEAD = new Uint32Array(0);

/** Returns elements whose key is `head` and their index. */
export function indexedElements(
  set: string,
  head: Uint32Array,
  { words, at, count }: { readonly words: Uint32Array; readonly at: number; readonly count: number },
): Elements {
  return { set, words, at, count, head, verdict: null, comment: undefined };
}

export const group = (list: readonly Elements[], needs: readonly Fragment[] = NONE): ElementGroup => ({
  elements: list,
  needs,
});

const NONE: readonly Fragment[] = [];

/** The layout of a set's elements in `Elements.words`. */
export interface Shape {
  readonly keyWords: number;
  /** `key-end`: the range's last key is an attribute of its element. `next-key`: the key after the range is a separate element. */
  readonly range: 'none' | 'key-end' | 'next-key';
  readonly dataWords: number;
  /** Words of an element without `head`. */
  readonly stride: number;
}

export function shapeOf({ key, data, interval }: SetSpec): Shape {
  const words = (types: readonly DataType[]) =>
    types.reduce((sum, { length }) => sum + ((length + 3) >> 2), 0);
  const keyWords = words(key);
  const dataWords = data && data !== 'verdict' ? words(data) : 0;
  const range = !interval ? 'none' : key.length > 1 ? 'key-end' : 'next-key';
  return { keyWords, range, dataWords, stride: keyWords * (interval ? 2 : 1) + dataWords };
}
