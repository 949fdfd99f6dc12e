import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { brotliCompressSync, brotliDecompressSync, constants } from 'node:zlib';
import { type Change, changedBy, changesOf } from './delta.ts';
import { variedObjects } from './objects.ts';
import type { Cause, Outcome } from './outcome.ts';
import { type Row, rowKey, VERBS } from './rows.ts';
import { variationsOf } from './variations.ts';

type Json = Record<string, unknown>;

/** Upstream's answers to all rows, for one version of Kubernetes. */
export interface Recording {
  /** The version of kube-apiserver. */
  readonly version: string;
  readonly rows: readonly Row[];
  /** Returns the answer to a row. Throws Error if the row was not recorded, or the object has changed since. */
  outcome(row: Row): Outcome;
  /** Returns a part of the answer at less cost. Throws Error like `outcome`. */
  summary(row: Row): Summary;
}

/** The differences of an accepted object from the first accepted one of its section, or the causes of a refusal. */
export type Summary = { readonly changes: readonly Change[] } | { readonly causes: readonly Cause[] };

export const RECORDING = new URL('./recorded-1.36.jsonl.br', import.meta.url);

/** The first line. */
interface Head {
  readonly version: string;
  /** A digest of all objects and variations: the answers are to these requests only. */
  readonly requests: string;
}

/**
 * A line before the rows of one object and verb. `unchanged`: the object in the answers, of which each accepted row lists
 * the differences.
 */
interface Section {
  readonly kind: string;
  readonly object: string;
  readonly verb: Row['verb'];
  readonly unchanged: Json;
}

/** A row: accepted with a status and the differences, or refused. */
type Line =
  | readonly [variation: string, status: number, changes: readonly Change[]]
  | readonly [variation: string, status: number, reason: string, causes: readonly Cause[], message: string];

/** Formats answers as lines of JSON, in an order that does not depend on the order of the answers. */
export function formatRecording(version: string, outcomes: ReadonlyMap<Row, Outcome>): string {
  const sections = Map.groupBy(outcomes, ([{ kind, object, verb }]) => [kind, object, verb].join('\0'));
  const order = new Map(rowNames().map((key, index) => [key, index]));
  const rank = (row: Row) => order.get(rowKey(row)) ?? 0;
  const head: Head = { version, requests: requestDigest() };
  const lines: unknown[] = [head];
  const sorted = [...sections.values()]
    .map((rows) => rows.sort(([a], [b]) => rank(a) - rank(b)))
    .sort(([a], [b]) => (a && b ? rank(a[0]) - rank(b[0]) : 0));
  for (const rows of sorted) {
    const [first] = rows;
    if (!first) continue;
    const { kind, object, verb } = first[0];
    const accepted = rows.find(([, outcome]) => 'object' in outcome)?.[1];
    const unchanged = accepted && 'object' in accepted ? accepted.object : {};
    lines.push({ kind, object, verb, unchanged } satisfies Section);
    for (const [{ variation }, outcome] of rows) lines.push(lineOf(variation, outcome, unchanged));
  }
  return `${lines.map((line) => JSON.stringify(line)).join('\n')}\n`;
}

function lineOf(variation: string, outcome: Outcome, unchanged: Json): Line {
  return 'object' in outcome
    ? [variation, outcome.status, changesOf(unchanged, outcome.object)]
    : [variation, outcome.status, outcome.reason, outcome.causes, outcome.message];
}

/** Reads lines of a recording. Throws Error if the requests are not those that were recorded. */
export function parseRecording(text: string): Recording {
  const [first = '{}', ...rest] = text.trimEnd().split('\n');
  const head = JSON.parse(first) as Head;
  if (head.requests !== requestDigest()) {
    throw new Error(
      'objects or variations have changed since upstream’s answers were recorded: run record.ts',
    );
  }
  const rows: Row[] = [];
  const lines = new Map<string, readonly [section: Section, line: Line]>();
  let section: Section | null = null;
  for (const text of rest) {
    const line = JSON.parse(text) as Section | Line;
    if (!Array.isArray(line)) section = line as Section;
    else if (section) {
      const { kind, object, verb } = section;
      const row: Row = { kind, object, verb, variation: String(line[0]) };
      rows.push(row);
      lines.set(rowKey(row), [section, line as Line]);
    }
  }
  const lineFor = (row: Row) => {
    const found = lines.get(rowKey(row));
    if (!found) throw new Error(`not recorded: ${Object.values(row).join(', ')}`);
    return found;
  };
  return {
    version: head.version,
    rows,
    summary(row) {
      const [, line] = lineFor(row);
      return line.length === 3 ? { changes: line[2] } : { causes: line[3] };
    },
    outcome(row) {
      const [{ unchanged }, line] = lineFor(row);
      if (line.length === 3) return { status: line[1], object: changedBy(unchanged, line[2]) as Json };
      const [, status, reason, causes, message] = line;
      return { status, reason, causes, message };
    },
  };
}

export function readRecording(): Recording {
  return parseRecording(brotliDecompressSync(readFileSync(RECORDING)).toString());
}

/** Writes a recording, unless the file has it already: compressors of other versions have other bytes. */
export function writeRecording(text: string): 'written' | 'unchanged' {
  if (existsSync(RECORDING) && brotliDecompressSync(readFileSync(RECORDING)).toString() === text)
    return 'unchanged';
  const params = { [constants.BROTLI_PARAM_LGWIN]: 24, [constants.BROTLI_PARAM_SIZE_HINT]: text.length };
  writeFileSync(RECORDING, brotliCompressSync(Buffer.from(text), { params }));
  return 'written';
}

function rowNames(): string[] {
  return variedObjects().flatMap((base) => {
    const variations = variationsOf(base);
    return VERBS.flatMap((verb) =>
      variations.map(({ name }) =>
        rowKey({ kind: base.kind, object: base.metadata.name, verb, variation: name }),
      ),
    );
  });
}

function requestDigest(): string {
  const hash = createHash('sha256');
  for (const base of variedObjects()) {
    for (const { name, query = '', of } of variationsOf(base))
      hash.update(`${name}\0${query}\0${JSON.stringify(of(base))}\0`);
  }
  return hash.digest('hex').slice(0, 16);
}
