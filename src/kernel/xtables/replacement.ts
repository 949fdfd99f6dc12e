import type { IPFamily } from '../../lib/address.ts';
import { type ReservedMemory, reserveMemory } from '../mapped-memory.ts';
import { isZero, outputOf } from './codec.ts';
import { COUNTER_BYTES, COUNTERS_BYTES, REPLACE, type Replacement } from './connection.ts';
import { ERROR_BYTES, EXTENSION, LAYOUT, RETURN, STANDARD_BYTES } from './layout.ts';
import type { RuleDecoder } from './rule-decoder.ts';
import { MAX_RULE_BYTES, type RuleEncoder } from './rule-encoder.ts';
import { type Chain, chainNames, type ParsedTable, rulesOf } from './table.ts';
import { UnknownRule } from './words.ts';

/** Changes of one table, as a part of iptables-restore's input describes them. Rules are texts. */
export interface TableChange {
  /** User chains with all their rules. */
  readonly written: ReadonlyMap<string, readonly string[]>;
  readonly deleted: readonly string[];
  /** Rules to insert at the head of built-in chains, in this order. */
  readonly inserted: readonly { readonly chain: string; readonly rule: string }[];
  /** Rules to remove from built-in chains: the first with this text. */
  readonly removed: readonly { readonly chain: string; readonly rule: string }[];
}

/** A table to write, and how the counters of its entries move. */
export interface BuiltTable extends Replacement, Disposable {
  /** Returns the counters to add; null if all are zero. */
  movedCounters(old: ReservedMemory): ReservedMemory | null;
}

/** A part of the old table that stays. Parts have the same order before and after. */
interface Move {
  /** Offsets before: from `from` to before `to`. */
  readonly from: number;
  to: number;
  /** Offset now. */
  readonly target: number;
  /** Number of the first entry before and now. */
  readonly index: number;
  readonly newIndex: number;
  count: number;
}

/** Where a chain's first rule begins now; null: not yet known, or there is no such chain. */
interface Place {
  readonly name: string;
  first: number | null;
}

/** A new part: from one place of the memory for new entries to before another, and its offset in the table. */
interface Addition {
  readonly from: number;
  to: number;
  readonly target: number;
}

/**
 * Builds the table that a change makes from the one that was read, whose memory it may reuse. Other rules are moved as bytes,
 * only the offsets of jumps change. Throws UnknownRule if a text cannot be written, or if a rule that stays refers to a
 * deleted chain.
 */
export function buildTable(
  parsed: ParsedTable,
  change: TableChange,
  family: IPFamily,
  encoder: RuleEncoder,
  decoder: RuleDecoder,
): BuiltTable {
  const layout = LAYOUT[family];
  const { raw, chains, bytes: old } = parsed;
  const { written } = change;
  let rules = change.inserted.length;
  for (const lines of written.values()) rules += lines.length + 2;
  // A table of which most is new is written where it will be; otherwise the old one is changed in place.
  const isNew = rules * USUAL_RULE_BYTES > raw.size;
  let memory = reserveMemory(
    REPLACE.bytes + MAX_RULE_BYTES + rules * USUAL_RULE_BYTES + (isNew ? raw.size : 0),
  );
  let output = outputOf(memory.bytes);
  const moves: Move[] = [];
  const additions: Addition[] = [];
  /** The chains that are written or that new rules jump to, and the written ones by their offset before. */
  const places = new Map<string, Place>();
  const firstByOffset = new Map<number, number>();
  /** The verdicts of new jumps, each with its chain at the same index. */
  const newJumps: number[] = [];
  const newTargets: Place[] = [];
  const hookEntries = [...raw.hookEntries];
  const underflows = [...raw.underflows];
  /** The offset and the number of the next entry. */
  let at = 0;
  let count = 0;
  let added = 0;
  let separate: ReservedMemory | null = null;
  /** Where the next new entry is written. */
  const place = (): number => REPLACE.bytes + (isNew ? at : added);
  const jump = (verdict: number, chain: string) => {
    newJumps.push(verdict - place() + at);
    newTargets.push(placeOf(chain));
  };

  function placeOf(name: string): Place {
    const known = places.get(name);
    if (known) return known;
    const place: Place = { name, first: null };
    places.set(name, place);
    return place;
  }

  function keep(from: number, to: number, index: number, entries: number): void {
    const last = moves.at(-1);
    if (last && last.to === from && last.target + (last.to - last.from) === at) {
      last.to = to;
      last.count += entries;
    } else moves.push({ from, to, target: at, index, newIndex: count, count: entries });
    at += to - from;
    count += entries;
  }

  function add(length: number): void {
    const from = place();
    const last = additions.at(-1);
    if (last?.to === from && last.target + (last.to - last.from) === at) last.to += length;
    else additions.push({ from, to: from + length, target: at });
    at += length;
    added += length;
    count++;
  }

  /** Makes room up to this place. */
  function makeRoom(end: number): void {
    if (end <= memory.bytes.length) return;
    const larger = reserveMemory(2 * end);
    for (const { from, to } of additions) memory.bytes.copy(larger.bytes, from, from, to);
    memory.free();
    memory = larger;
    output = outputOf(memory.bytes);
  }

  function writeRules(lines: readonly string[]): void {
    for (const rule of lines) {
      makeRoom(place() + MAX_RULE_BYTES);
      add(encoder.write(rule, output, place(), jump));
    }
  }

  /** Writes an entry without matches. Returns the place of its target. */
  function writeEntry(targetBytes: number): number {
    makeRoom(place() + MAX_RULE_BYTES);
    const entry = place();
    output.u16[(entry + layout.target) >> 1] = layout.bytes;
    output.u16[(entry + layout.next) >> 1] = layout.bytes + targetBytes;
    output.u16[(entry + layout.bytes) >> 1] = targetBytes;
    add(layout.bytes + targetBytes);
    return entry + layout.bytes;
  }

  function writeChain(name: string, lines: readonly string[], before: Chain | null): void {
    const target = writeEntry(ERROR_BYTES);
    writeText('ERROR', output.bytes, target + EXTENSION.name);
    writeText(name, output.bytes, target + EXTENSION.bytes);
    placeOf(name).first = at;
    if (before) firstByOffset.set(before.first, at);
    writeRules(lines);
    const verdict = writeEntry(STANDARD_BYTES) + EXTENSION.bytes;
    output.u32[verdict >> 2] = RETURN;
  }

  function writeBuiltin(chain: Chain, hook: number): void {
    hookEntries[hook] = at;
    writeRules(change.inserted.flatMap((one) => (one.chain === chain.name ? [one.rule] : [])));
    const removed = change.removed.flatMap((one) => (one.chain === chain.name ? [one.rule] : []));
    if (removed.length === 0) keep(chain.start, chain.end, chain.index, chain.count);
    else keepWithout(chain, removed);
    underflows[hook] = at - (chain.end - chain.last);
  }

  function keepWithout(chain: Chain, removed: string[]): void {
    const chainAt = chainNames(parsed);
    const rulesAt = [...rulesOf(chain, old, family)];
    for (const [i, ruleAt] of rulesAt.entries()) {
      const found = removed.indexOf(decoder.read(old, ruleAt, chainAt) ?? '');
      if (found >= 0) removed.splice(found, 1);
      else keep(ruleAt, rulesAt[i + 1] ?? chain.last, chain.index + i, 1);
    }
    if (removed.length > 0) throw new UnknownRule(`${chain.name} has no rule ${removed[0]}`);
    keep(chain.last, chain.end, chain.index + chain.count - 1, 1);
  }

  /** Writes and keeps user chains, in the order of libiptc: it inserts new chains by name. */
  function writeUserChains(): void {
    const deleted = new Set(change.deleted);
    const users = chains.filter(({ hook }) => hook === null);
    const present = new Set<string>();
    for (const { name } of users) if (written.has(name)) present.add(name);
    const news = [...written].filter(([name]) => !present.has(name)).sort(([a], [b]) => (a < b ? -1 : 1));
    const isSorted =
      news.length > 0 && users.every(({ name }, i) => i === 0 || (users[i - 1]?.name ?? '') < name);
    let next = 0;
    const writeNews = (before: string | null) => {
      for (; next < news.length; next++) {
        const [name, rules] = news[next] ?? ['', []];
        if (before !== null && name >= before) break;
        writeChain(name, rules, null);
      }
    };
    for (const chain of users) {
      if (isSorted) writeNews(chain.name);
      const rules = present.has(chain.name) ? written.get(chain.name) : undefined;
      if (rules) writeChain(chain.name, rules, chain);
      else if (!deleted.has(chain.name)) keep(chain.start, chain.end, chain.index, chain.count);
    }
    writeNews(null);
  }

  /** Returns where an offset of the old table is now; null if nothing of it stayed. */
  function movedOffset(offset: number): number | null {
    let low = 0;
    let high = moves.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((moves[middle]?.to ?? 0) <= offset) low = middle + 1;
      else high = middle;
    }
    const move = moves[low];
    return move && move.from <= offset ? offset + move.target - move.from : null;
  }

  /** Corrects the jumps of parts that stayed, in their new places. */
  function moveJumps(table: Int32Array, verdicts: Uint32Array, isContinuation: boolean): void {
    let i = 0;
    for (const { from, to, target } of moves) {
      const delta = target - from;
      while (i < verdicts.length && (verdicts[i] ?? 0) < from) i++;
      for (; i < verdicts.length && (verdicts[i] ?? 0) < to; i++) {
        const verdict = ((verdicts[i] ?? 0) + delta) >> 2;
        const before = table[verdict] ?? 0;
        const now = isContinuation ? before + delta : (firstByOffset.get(before) ?? movedOffset(before));
        if (now === null) throw new UnknownRule(`a rule refers to the deleted chain ${nameAt(before)}`);
        table[verdict] = now;
      }
    }
  }

  const nameAt = (first: number): string =>
    chains.find((chain) => chain.first === first)?.name ?? `at ${first}`;

  function resolveNewJumps(table: Int32Array): void {
    for (const { hook, name, first } of chains) {
      const known = hook === null ? places.get(name) : undefined;
      if (known?.first === null) known.first = movedOffset(first);
    }
    for (const [i, { name, first }] of newTargets.entries()) {
      if (first === null) throw new UnknownRule(`there is no chain ${name}`);
      table[(newJumps[i] ?? 0) >> 2] = first;
    }
  }

  /** Returns the memory of the new table. */
  function assemble(): ReservedMemory {
    const size = REPLACE.bytes + at;
    if (isNew) makeRoom(size);
    const isInPlace = !isNew && size <= raw.memory.bytes.length;
    if (!isNew && !isInPlace) separate = reserveMemory(size);
    const result = isInPlace ? raw.memory : (separate ?? memory);
    // In place: parts that move to the left first, from the left; then the others from the right.
    const ordered = [
      ...moves.filter(({ from, target }) => target <= from),
      ...moves.filter(({ from, target }) => target > from).reverse(),
    ];
    for (const { from, to, target } of ordered) {
      if (!isInPlace || target !== from) old.copy(result.bytes, REPLACE.bytes + target, from, to);
    }
    if (!isNew) {
      for (const { from, to, target } of additions)
        memory.bytes.copy(result.bytes, REPLACE.bytes + target, from, to);
    }
    return result;
  }

  function free(): void {
    memory.free();
    separate?.free();
  }

  try {
    for (const chain of chains) if (chain.hook !== null) writeBuiltin(chain, chain.hook);
    writeUserChains();
    keep(parsed.end, raw.size, raw.count - 1, 1);
    const result = assemble();
    const table = new Int32Array(result.bytes.buffer, result.bytes.byteOffset + REPLACE.bytes, at >> 2);
    moveJumps(table, parsed.jumps, false);
    moveJumps(table, parsed.continuations, true);
    resolveNewJumps(table);
    return {
      memory: result,
      hookEntries,
      underflows,
      count,
      size: at,
      movedCounters: (counters) => movedCounters(counters, moves, count),
      [Symbol.dispose]: free,
    };
  } catch (error) {
    free();
    throw error;
  }
}

/** Faster than Buffer.write for short texts. */
function writeText(text: string, out: Uint8Array, at: number): void {
  for (let i = 0; i < text.length; i++) out[at + i] = text.charCodeAt(i);
}

/** The mean of this project's rules, rounded up; more memory is taken when it does not suffice. */
const USUAL_RULE_BYTES = 512;

/** Returns the counters of a new table, in memory for `addCounters`; null if all are zero. */
function movedCounters(before: ReservedMemory, moves: readonly Move[], count: number): ReservedMemory | null {
  const { bytes } = before;
  if (isZero(bytes, 0, bytes.length)) return null;
  const memory = reserveMemory(COUNTERS_BYTES + count * COUNTER_BYTES);
  for (const { index, newIndex, count: entries } of moves) {
    const target = COUNTERS_BYTES + newIndex * COUNTER_BYTES;
    bytes.copy(memory.bytes, target, index * COUNTER_BYTES, (index + entries) * COUNTER_BYTES);
  }
  return memory;
}
