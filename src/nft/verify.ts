import { setImmediate } from 'node:timers/promises';
import type { NetlinkMessage } from '../kernel/netlink/socket.ts';
import { encodeExpressions } from '../kernel/nftables/batch.ts';
import type { NftConnection } from '../kernel/nftables/connection.ts';
import { NFPROTO, type TableFamily } from '../kernel/nftables/constants.ts';
import { type DumpedElement, isShownAs, readElements } from '../kernel/nftables/dump.ts';
import { elementsOf } from './address-set.ts';
import { bytesText, nextKey, textBytes, wordsText } from './encoding.ts';
import { formatKey, tableTitle } from './print.ts';
import { compileRule } from './rule.ts';
import type { ChainSpec, ElementGroup, Elements, SetSpec, Shape } from './spec.ts';

/** An object that differs in the kernel. */
export interface Difference {
  /** "table ip fairlead map services element 10.96.0.10 . tcp . 80". */
  readonly object: string;
  readonly kind: 'missing' | 'unexpected' | 'different';
}

export interface WrittenTable {
  readonly chains: ReadonlyMap<string, ChainSpec>;
  readonly sets: ReadonlyMap<string, { readonly spec: SetSpec; readonly shape: Shape }>;
  readonly groups: ReadonlyMap<string, ElementGroup>;
  /** Elements that may still exist. */
  readonly deferred: readonly { readonly elements: Elements; readonly from: number; readonly to: number }[];
}

type Reader = Pick<NftConnection, 'chains' | 'elementMessages' | 'rules' | 'sets' | 'tables'>;

/** By key (the bytes as text): its value; null: any value, or none. */
type Contents = Map<string, string | null>;

const INTERVAL_END = 'end';

/** Elements, or owners' groups of them, between two pauses: some milliseconds of work. */
const SLICE = 4000;

/**
 * Compares a table with the kernel's. `written` null: expects no table. A large table takes hundreds of milliseconds, so
 * that the event loop runs in between; `written` must not change meanwhile.
 */
export async function compareTable(
  connection: Reader,
  family: TableFamily,
  name: string,
  written: WrittenTable | null,
): Promise<Difference[]> {
  const protocol = NFPROTO[family];
  const title = `table ${tableTitle(family, name)}`;
  const exists = connection.tables(protocol).some((table) => table.name === name);
  if (!written) return exists ? [{ object: title, kind: 'unexpected' }] : [];
  if (!exists) return [{ object: title, kind: 'missing' }];
  const slices = createSlices();
  const wanted = await contentsOf(written, family, slices);
  const shown = new Set(connection.sets(protocol, name).map((set) => set.name));
  const differences = compareChains(connection, family, name, title, written.chains);
  for (const { spec } of written.sets.values()) {
    const object = `${title} map ${spec.name}`;
    if (!shown.has(spec.name)) differences.push({ object, kind: 'missing' });
    else if (!spec.dynamic) {
      const there = connection.elementMessages(protocol, name, spec.name);
      await compareSet(object, spec, wanted.get(spec.name) ?? new Map(), there, differences, slices);
    }
  }
  for (const set of shown)
    if (!written.sets.has(set)) differences.push({ object: `${title} map ${set}`, kind: 'unexpected' });
  return differences;
}

/** Counts work, and lets the event loop run after each slice of it. */
interface Slices {
  /** Returns a promise after each slice, else undefined. */
  done(count: number): Promise<void> | undefined;
}

function createSlices(): Slices {
  let left = SLICE;
  return {
    done(count) {
      left -= count;
      if (left > 0) return undefined;
      left = SLICE;
      return setImmediate();
    },
  };
}

function compareChains(
  connection: Reader,
  family: TableFamily,
  name: string,
  title: string,
  chains: ReadonlyMap<string, ChainSpec>,
): Difference[] {
  const differences: Difference[] = [];
  const shown = new Set(connection.chains(NFPROTO[family], name));
  const rules = connection.rules(NFPROTO[family], name);
  for (const chain of shown) {
    if (!chains.has(chain)) differences.push({ object: `${title} chain ${chain}`, kind: 'unexpected' });
  }
  for (const chain of chains.values()) {
    const object = `${title} chain ${chain.name}`;
    const there = rules.get(chain.name) ?? [];
    const isSame =
      there.length === chain.rules.length &&
      chain.rules.every((rule, i) =>
        isShownAs(encodeExpressions(compileRule(rule, family)), there[i] ?? new Uint8Array(0)),
      );
    if (!shown.has(chain.name)) differences.push({ object, kind: 'missing' });
    else if (!isSame) differences.push({ object, kind: 'different' });
  }
  return differences;
}

/** Compares a set, and adds what differs: after a flush, that may be hundreds of thousands of elements. */
async function compareSet(
  object: string,
  { key: types }: SetSpec,
  wanted: Contents,
  shown: readonly NetlinkMessage[],
  differences: Difference[],
  slices: Slices,
): Promise<void> {
  const note = (key: string, kind: Difference['kind']) =>
    differences.push({ object: `${object} element ${formatKey(types, textBytes(key))}`, kind });
  const there = new Map<string, string>();
  for (const message of shown) {
    const elements = readElements(message);
    for (const element of elements) {
      const text = bytesText(element.key);
      // A range may start at the end of another.
      if (!element.intervalEnd || !there.has(text)) there.set(text, valueShown(element));
    }
    const pause = slices.done(elements.length);
    if (pause) await pause;
  }
  for (const [key, value] of wanted) {
    const pause = slices.done(1);
    if (pause) await pause;
    const other = there.get(key);
    if (value === null) continue;
    if (other === undefined) note(key, 'missing');
    else if (other !== value) note(key, 'different');
  }
  for (const [key, value] of there) {
    const pause = slices.done(1);
    if (pause) await pause;
    // The kernel returns the start of the gap between two ranges.
    if (!wanted.has(key) && value !== INTERVAL_END) note(key, 'unexpected');
  }
}

function valueShown({ verdict, data, keyEnd, intervalEnd }: DumpedElement): string {
  const value = verdict ?? (data ? bytesText(data) : '');
  return intervalEnd ? INTERVAL_END : keyEnd ? `${bytesText(keyEnd)} ${value}` : value;
}

async function contentsOf(
  { groups, sets, deferred }: WrittenTable,
  family: TableFamily,
  slices: Slices,
): Promise<Map<string, Contents>> {
  const all = new Map<string, Contents>([...sets.keys()].map((name) => [name, new Map()]));
  const put = (elements: Elements, from: number, to: number, isThere: boolean) => {
    const contents = all.get(elements.set);
    const shape = sets.get(elements.set)?.shape;
    if (contents && shape) putElements(contents, shape, elements, from, to, isThere);
  };
  for (const { elements, from, to } of deferred) put(elements, from, to, false);
  for (const [owner, group] of groups) {
    let count = 0;
    for (const one of elementsOf(owner, group, family)) {
      put(one, 0, one.count, true);
      count += one.count;
    }
    const pause = slices.done(count);
    if (pause) await pause;
  }
  return all;
}

function putElements(
  contents: Contents,
  { keyWords, range, dataWords, stride }: Shape,
  { words, at, head, verdict }: Elements,
  from: number,
  to: number,
  isThere: boolean,
): void {
  const key = head && new Uint32Array(keyWords);
  if (key && head) key.set(head);
  for (let i = from; i < to; i++) {
    const start = at + i * (head ? dataWords : stride);
    if (key) key[keyWords - 1] = i;
    const keyText = key ? wordsText(key, 0, keyWords) : wordsText(words, start, keyWords);
    if (!isThere) {
      contents.set(keyText, null);
      continue;
    }
    const data = dataWords > 0 ? wordsText(words, start + (head ? 0 : stride - dataWords), dataWords) : '';
    const value = verdict === null ? data : typeof verdict === 'string' ? verdict : `goto ${verdict.goto}`;
    if (range === 'key-end')
      contents.set(keyText, `${wordsText(words, start + keyWords, keyWords)} ${value}`);
    else contents.set(keyText, value);
    const next = range === 'next-key' && nextKey(words.subarray(start + keyWords, start + 2 * keyWords));
    const nextText = next ? wordsText(next, 0, keyWords) : null;
    if (nextText !== null && !contents.has(nextText)) contents.set(nextText, INTERVAL_END);
  }
}
