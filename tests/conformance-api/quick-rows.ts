import { createHash } from 'node:crypto';
import type { Change } from './delta.ts';
import type { Cause } from './outcome.ts';
import type { Recording, Summary } from './recording.ts';
import { type Row, rowKey } from './rows.ts';

/** Rows of a kind of answer that many fields share are taken one of so many; the others are all taken. */
interface Share {
  readonly name: string;
  readonly oneOf: number;
}

/**
 * Chooses the rows that are compared in seconds, always the same for one recording: the first refusal by each rule of
 * validation, the first creation that shows each default, a share of the other refusals that differ from those of the
 * rows before them, and a share of what the schema alone decides (types, unknown fields) and of the other requests that
 * are accepted.
 */
export function quickRows(recording: Recording): { has(row: Row): boolean } {
  const keys = new Set<string>();
  const seen = new Set<string>();
  for (const row of recording.rows) {
    const summary = recording.summary(row);
    const share =
      'causes' in summary ? shareOfRefused(row, summary.causes, seen) : shareOfAccepted(row, summary, seen);
    if (share !== null && isInShare(row, share)) keys.add(rowKey(row));
  }
  return { has: (row) => keys.has(rowKey(row)) };
}

function shareOfAccepted(
  row: Row,
  { changes }: Extract<Summary, { changes: unknown }>,
  seen: Set<string>,
): Share {
  // A field that was left out has a value in the answer.
  const defaults =
    row.verb === 'create' && row.variation.endsWith(' left out')
      ? changes.filter((change) => change.length === 2).map(defaultOf)
      : [];
  return { name: 'accepted', oneOf: addNew(seen, defaults) ? 1 : ACCEPTED[row.verb] };
}

function shareOfRefused(row: Row, causes: readonly Cause[], seen: Set<string>): Share | null {
  if (causes.length === 0) return { name: 'schema', oneOf: SCHEMA };
  const isFirst = addNew(seen, causes.filter(isOfValidation).map(ruleOf));
  const places = causes.map((cause) => cause.join(' '));
  const text = [row.kind, row.verb.split(' ')[0], ...places].join('\0');
  if (!addNew(seen, [text])) return null;
  return { name: 'refused', oneOf: isFirst ? 1 : REFUSED[row.verb] };
}

/** Adds texts to a set. Returns true if the set did not have one of them. */
function addNew(set: Set<string>, texts: readonly string[]): boolean {
  const before = set.size;
  for (const text of texts) set.add(text);
  return set.size > before;
}

/** Returns a text that names the default, without the place of the field in the object. */
const defaultOf = ([path, value]: Change): string =>
  ['default', ...path.filter((step) => typeof step === 'string').slice(-2), JSON.stringify(value)].join(' ');

/** A conflict names a field that another manager owns: each field would be a rule. */
const isOfValidation = ([reason]: Cause) => reason !== 'FieldManagerConflict';

/** Returns a text that names the rule, without the place of the field in the object and without the refused value. */
function ruleOf([reason, field, message]: Cause): string {
  const name = field
    .replace(/\[[^\]]*\]/g, '')
    .split('.')
    .slice(-2)
    .join('.');
  return [reason, name, message.replace(/"[^"]*"|\d+/g, '')].join(' ');
}

const ACCEPTED = {
  create: 12,
  update: 24,
  apply: 24,
  'apply again': 24,
  'apply over': 10,
  'apply by force': 20,
};
const REFUSED = {
  create: 8,
  update: 12,
  apply: 16,
  'apply again': 20,
  'apply over': 8,
  'apply by force': 10,
};
const SCHEMA = 72;

/** Returns true for one row of so many, always the same ones. */
export function isInShare(row: Row, { name, oneOf }: Share): boolean {
  const digest = createHash('sha256')
    .update(`${name}\0${rowKey(row)}`)
    .digest();
  return digest.readUInt32BE(0) % oneOf === 0;
}
