import { createHash } from 'node:crypto';
import type { Outcome } from './outcome.ts';
import type { Recording } from './recording.ts';
import { type Row, rowKey } from './rows.ts';

/** Rows of a kind of answer that many fields share are taken one of so many; the others are all taken. */
interface Share {
  readonly name: string;
  readonly oneOf: number;
}

/**
 * Chooses the rows that are compared in seconds, always the same for one recording: every refusal by validation that
 * differs from those of the rows before it, and a share of what the schema alone decides (types, unknown fields) and of
 * the requests that are accepted. The comparison with a live server takes all.
 */
export function quickRows(recording: Recording): { has(row: Row): boolean } {
  const keys = new Set<string>();
  const seen = new Set<string>();
  for (const row of recording.rows) {
    const share = shareOf(row, recording.outcome(row), seen);
    if (share !== null && isInShare(row, share)) keys.add(rowKey(row));
  }
  return { has: (row) => keys.has(rowKey(row)) };
}

function shareOf(row: Row, outcome: Outcome, seen: Set<string>): Share | null {
  if ('object' in outcome) return { name: 'accepted', oneOf: ACCEPTED[row.verb] };
  if (outcome.causes.length === 0) return { name: 'schema', oneOf: SCHEMA };
  const places = outcome.causes.map(([reason, field, message]) => `${reason} ${field} ${message}`);
  const text = [row.kind, row.verb.split(' ')[0], ...places].join('\0');
  if (seen.has(text)) return null;
  seen.add(text);
  return { name: 'refused', oneOf: REFUSED[row.verb] };
}

const ACCEPTED = { create: 6, update: 8, apply: 8, 'apply again': 8, 'apply over': 10, 'apply by force': 10 };
const REFUSED = { create: 1, update: 2, apply: 8, 'apply again': 10, 'apply over': 4, 'apply by force': 10 };
const SCHEMA = 24;

function isInShare(row: Row, { name, oneOf }: Share): boolean {
  const digest = createHash('sha256')
    .update(`${name}\0${rowKey(row)}`)
    .digest();
  return digest.readUInt32BE(0) % oneOf === 0;
}
