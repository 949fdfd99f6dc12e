import { readFileSync } from 'node:fs';
import { outcomeDifference } from './compare.ts';
import type { ApiClient } from './oracle.ts';
import { type Outcome, outcomeOf } from './outcome.ts';
import { type Row, rowKey, runRows, type Verb } from './rows.ts';

/** A row that our server answers in another way. */
export interface Finding {
  readonly row: Row;
  readonly difference: string;
}

/** Rows that are known to differ. */
export interface KnownDifference {
  readonly kind: string;
  readonly verbs: readonly Verb[];
  /** The names of the objects, and of the variations of each. */
  readonly rows: Readonly<Record<string, readonly string[]>>;
  readonly reason: string;
}

/** Reads the differences that are known; the comparisons with the recording and with a live server share them. */
export function knownDifferences(): KnownDifference[] {
  return JSON.parse(readFileSync(new URL('./known-differences.json', import.meta.url), 'utf8'));
}

/** Reports whether a difference is known. */
export function isKnown(known: readonly KnownDifference[], { kind, object, verb, variation }: Row): boolean {
  return known.some(
    (one) => one.kind === kind && one.verbs.includes(verb) && one.rows[object]?.includes(variation),
  );
}

/** Returns the keys of all rows that are known to differ. */
export const knownRows = (known: readonly KnownDifference[]): string[] =>
  known.flatMap(({ kind, verbs, rows }) =>
    Object.entries(rows).flatMap(([object, variations]) =>
      variations.flatMap((variation) => verbs.map((verb) => rowKey({ kind, object, verb, variation }))),
    ),
  );

/** Formats a finding: the object, the change, upstream's answer and ours. */
export const findingText = ({ row, difference }: Finding): string =>
  `${row.kind} ${row.object}, ${row.verb}: ${row.variation}: ${difference}`;

/** Sends rows to our server and compares with the expected outcomes. Returns the findings and the number of rows. */
export async function compareRows(
  send: ApiClient,
  expected: (row: Row) => Outcome,
  selected: (row: Row) => boolean,
): Promise<{ readonly findings: Finding[]; readonly count: number }> {
  const findings: Finding[] = [];
  let count = 0;
  const refused = await runRows(
    [send],
    (row, [answer]) => {
      if (!answer) return;
      count++;
      const difference = outcomeDifference(expected(row), outcomeOf(answer, row.verb.startsWith('apply')));
      if (difference !== null) findings.push({ row, difference });
    },
    { selected },
  );
  if (refused.length > 0) throw new Error(`objects that upstream stores are refused:\n${refused.join('\n')}`);
  return { findings, count };
}
