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

/** A table while it is built. */
interface Build {
  readonly parsed: ParsedTable;
  readonly raw: ParsedTable['raw'];
  readonly chains: ParsedTable['chains'];
  /** The old table. */
  readonly old: ParsedTable['bytes'];
  readonly change: TableChange;
  readonly written: TableChange['written'];
  readonly family: IPFamily;
  readonly layout: (typeof LAYOUT)[IPFamily];
  readonly encoder: RuleEncoder;
  readonly decoder: RuleDecoder;
  /** The table is written where it will be; otherwise the old one is changed in place. */
  readonly isNew: boolean;
  readonly moves: Move[];
  readonly additions: Addition[];
  /** The chains that are written or that new rules jump to, and the written ones by their offset before. */
  readonly places: Map<string, Place>;
  readonly firstByOffset: Map<number, number>;
  /** The verdicts of new jumps, each with its chain at the same index. */
  readonly newJumps: number[];
  readonly newTargets: Place[];
  readonly hookEntries: number[];
  readonly underflows: number[];
  /** Records a jump that the encoder has written. */
  readonly jump: (verdict: number, chain: string) => void;
  memory: ReservedMemory;
  output: ReturnType<typeof outputOf>;
  separate: ReservedMemory | null;
  /** The offset and the number of the next entry. */
  at: number;
  count: number;
  /** The bytes of new entries. */
  added: number;
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
  const { raw, chains } = parsed;
  let rules = change.inserted.length;
  for (const lines of change.written.values()) rules += lines.length + 2;
  // A table of which most is new is written where it will be; otherwise the old one is changed in place.
  const isNew = rules * USUAL_RULE_BYTES > raw.size;
  const memory = reserveMemory(
    REPLACE.bytes + MAX_RULE_BYTES + rules * USUAL_RULE_BYTES + (isNew ? raw.size : 0),
  );
  const build: Build = {
    ...{ parsed, raw, chains, old: parsed.bytes, change, written: change.written },
    ...{ family, layout: LAYOUT[family], encoder, decoder, isNew },
    ...{ memory, output: outputOf(memory.bytes), separate: null, at: 0, count: 0, added: 0 },
    ...{
      moves: [],
      additions: [],
      places: new Map(),
      firstByOffset: new Map(),
      newJumps: [],
      newTargets: [],
    },
    hookEntries: [...raw.hookEntries],
    underflows: [...raw.underflows],
    jump: (verdict, chain) => addJump(build, verdict, chain),
  };
  try {
    for (const chain of chains) if (chain.hook !== null) writeBuiltin(build, chain, chain.hook);
    writeUserChains(build);
    keep(build, parsed.end, raw.size, raw.count - 1, 1);
    const result = assemble(build);
    const table = new Int32Array(result.bytes.buffer, result.bytes.byteOffset + REPLACE.bytes, build.at >> 2);
    moveJumps(build, table, parsed.jumps, false);
    moveJumps(build, table, parsed.continuations, true);
    resolveNewJumps(build, table);
    return {
      memory: result,
      hookEntries: build.hookEntries,
      underflows: build.underflows,
      count: build.count,
      size: build.at,
      movedCounters: (counters) => movedCounters(counters, build.moves, build.count),
      [Symbol.dispose]: () => free(build),
    };
  } catch (error) {
    free(build);
    throw error;
  }
}

function placeOf(build: Build, name: string): Place {
  const known = build.places.get(name);
  if (known) return known;
  const place: Place = { name, first: null };
  build.places.set(name, place);
  return place;
}

function keep(build: Build, from: number, to: number, index: number, entries: number): void {
  const last = build.moves.at(-1);
  if (last && last.to === from && last.target + (last.to - last.from) === build.at) {
    last.to = to;
    last.count += entries;
  } else build.moves.push({ from, to, target: build.at, index, newIndex: build.count, count: entries });
  build.at += to - from;
  build.count += entries;
}

function add(build: Build, length: number): void {
  const from = place(build);
  const last = build.additions.at(-1);
  if (last?.to === from && last.target + (last.to - last.from) === build.at) last.to += length;
  else build.additions.push({ from, to: from + length, target: build.at });
  build.at += length;
  build.added += length;
  build.count++;
}

/** Makes room up to this place. */
function makeRoom(build: Build, end: number): void {
  if (end <= build.memory.bytes.length) return;
  const larger = reserveMemory(2 * end);
  for (const { from, to } of build.additions) build.memory.bytes.copy(larger.bytes, from, from, to);
  build.memory.free();
  build.memory = larger;
  build.output = outputOf(build.memory.bytes);
}

function writeRules(build: Build, lines: readonly string[]): void {
  for (const rule of lines) {
    makeRoom(build, place(build) + MAX_RULE_BYTES);
    add(build, build.encoder.write(rule, build.output, place(build), build.jump));
  }
}

/** Writes an entry without matches. Returns the place of its target. */
function writeEntry(build: Build, targetBytes: number): number {
  makeRoom(build, place(build) + MAX_RULE_BYTES);
  const entry = place(build);
  build.output.u16[(entry + build.layout.target) >> 1] = build.layout.bytes;
  build.output.u16[(entry + build.layout.next) >> 1] = build.layout.bytes + targetBytes;
  build.output.u16[(entry + build.layout.bytes) >> 1] = targetBytes;
  add(build, build.layout.bytes + targetBytes);
  return entry + build.layout.bytes;
}

function writeChain(build: Build, name: string, lines: readonly string[], before: Chain | null): void {
  const target = writeEntry(build, ERROR_BYTES);
  writeText('ERROR', build.output.bytes, target + EXTENSION.name);
  writeText(name, build.output.bytes, target + EXTENSION.bytes);
  placeOf(build, name).first = build.at;
  if (before) build.firstByOffset.set(before.first, build.at);
  writeRules(build, lines);
  const verdict = writeEntry(build, STANDARD_BYTES) + EXTENSION.bytes;
  build.output.u32[verdict >> 2] = RETURN;
}

function writeBuiltin(build: Build, chain: Chain, hook: number): void {
  build.hookEntries[hook] = build.at;
  writeRules(
    build,
    build.change.inserted.flatMap((one) => (one.chain === chain.name ? [one.rule] : [])),
  );
  const removed = build.change.removed.flatMap((one) => (one.chain === chain.name ? [one.rule] : []));
  if (removed.length === 0) keep(build, chain.start, chain.end, chain.index, chain.count);
  else keepWithout(build, chain, removed);
  build.underflows[hook] = build.at - (chain.end - chain.last);
}

function keepWithout(build: Build, chain: Chain, removed: string[]): void {
  const chainAt = chainNames(build.parsed);
  const rulesAt = [...rulesOf(chain, build.old, build.family)];
  for (const [i, ruleAt] of rulesAt.entries()) {
    const found = removed.indexOf(build.decoder.read(build.old, ruleAt, chainAt) ?? '');
    if (found >= 0) removed.splice(found, 1);
    else keep(build, ruleAt, rulesAt[i + 1] ?? chain.last, chain.index + i, 1);
  }
  if (removed.length > 0) throw new UnknownRule(`${chain.name} has no rule ${removed[0]}`);
  keep(build, chain.last, chain.end, chain.index + chain.count - 1, 1);
}

/** Writes and keeps user chains, in the order of libiptc: it inserts new chains by name. */
function writeUserChains(build: Build): void {
  const deleted = new Set(build.change.deleted);
  const users = build.chains.filter(({ hook }) => hook === null);
  const present = new Set<string>();
  for (const { name } of users) if (build.written.has(name)) present.add(name);
  const news = [...build.written].filter(([name]) => !present.has(name)).sort(([a], [b]) => (a < b ? -1 : 1));
  const isSorted =
    news.length > 0 && users.every(({ name }, i) => i === 0 || (users[i - 1]?.name ?? '') < name);
  let next = 0;
  const writeNews = (before: string | null) => {
    for (; next < news.length; next++) {
      const [name, rules] = news[next] ?? ['', []];
      if (before !== null && name >= before) break;
      writeChain(build, name, rules, null);
    }
  };
  for (const chain of users) {
    if (isSorted) writeNews(chain.name);
    const rules = present.has(chain.name) ? build.written.get(chain.name) : undefined;
    if (rules) writeChain(build, chain.name, rules, chain);
    else if (!deleted.has(chain.name)) keep(build, chain.start, chain.end, chain.index, chain.count);
  }
  writeNews(null);
}

/** Returns where an offset of the old table is now; null if nothing of it stayed. */
function movedOffset(build: Build, offset: number): number | null {
  let low = 0;
  let high = build.moves.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((build.moves[middle]?.to ?? 0) <= offset) low = middle + 1;
    else high = middle;
  }
  const move = build.moves[low];
  return move && move.from <= offset ? offset + move.target - move.from : null;
}

/** Corrects the jumps of parts that stayed, in their new places. */
function moveJumps(build: Build, table: Int32Array, verdicts: Uint32Array, isContinuation: boolean): void {
  let i = 0;
  for (const { from, to, target } of build.moves) {
    const delta = target - from;
    while (i < verdicts.length && (verdicts[i] ?? 0) < from) i++;
    for (; i < verdicts.length && (verdicts[i] ?? 0) < to; i++) {
      const verdict = ((verdicts[i] ?? 0) + delta) >> 2;
      const before = table[verdict] ?? 0;
      const now = isContinuation
        ? before + delta
        : (build.firstByOffset.get(before) ?? movedOffset(build, before));
      if (now === null) throw new UnknownRule(`a rule refers to the deleted chain ${nameAt(build, before)}`);
      table[verdict] = now;
    }
  }
}

function resolveNewJumps(build: Build, table: Int32Array): void {
  for (const { hook, name, first } of build.chains) {
    const known = hook === null ? build.places.get(name) : undefined;
    if (known?.first === null) known.first = movedOffset(build, first);
  }
  for (const [i, { name, first }] of build.newTargets.entries()) {
    if (first === null) throw new UnknownRule(`there is no chain ${name}`);
    table[(build.newJumps[i] ?? 0) >> 2] = first;
  }
}

/** Returns the memory of the new table. */
function assemble(build: Build): ReservedMemory {
  const size = REPLACE.bytes + build.at;
  if (build.isNew) makeRoom(build, size);
  const isInPlace = !build.isNew && size <= build.raw.memory.bytes.length;
  if (!build.isNew && !isInPlace) build.separate = reserveMemory(size);
  const result = isInPlace ? build.raw.memory : (build.separate ?? build.memory);
  // In place: parts that move to the left first, from the left; then the others from the right.
  const ordered = [
    ...build.moves.filter(({ from, target }) => target <= from),
    ...build.moves.filter(({ from, target }) => target > from).reverse(),
  ];
  for (const { from, to, target } of ordered) {
    if (!isInPlace || target !== from) build.old.copy(result.bytes, REPLACE.bytes + target, from, to);
  }
  if (!build.isNew) {
    for (const { from, to, target } of build.additions)
      build.memory.bytes.copy(result.bytes, REPLACE.bytes + target, from, to);
  }
  return result;
}

function free(build: Build): void {
  build.memory.free();
  build.separate?.free();
}

const nameAt = (build: Build, first: number): string =>
  build.chains.find((chain) => chain.first === first)?.name ?? `at ${first}`;

/** Where the next new entry is written. */
const place = (build: Build): number => REPLACE.bytes + (build.isNew ? build.at : build.added);

const addJump = (build: Build, verdict: number, chain: string) => {
  build.newJumps.push(verdict - place(build) + build.at);
  build.newTargets.push(placeOf(build, chain));
};

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
