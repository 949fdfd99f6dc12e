import { TAKES_FULL_PRODUCT } from './pairwise.ts';
import type { QuestionRow } from './questions.ts';

/** Pods, loopback, networks outside, and nodes. */
const NO_SERVICE =
  /^(pod\/|127\.|0\.0\.0\.0|localhost|\[::1\]|224\.|255\.|outside:|198\.51\.|172\.30\.0\.78|10\.244\.|NODE\d:|BRIDGE\d:)/;
const NODE_OR_HOST_PORT = /:(30\d{3}|1808\d)(\/|$)/;

/**
 * Returns false if no packet of a row meets the rules of a Service or host port, because its name does not resolve or because
 * its end is none: each mode then does the same, nothing.
 */
export const isDecidedByMode = (row: QuestionRow): boolean =>
  row.in !== undefined ||
  (row.real !== 'unresolved' && (!NO_SERVICE.test(row.to) || NODE_OR_HOST_PORT.test(row.to)));

/**
 * Which rows each mode has. "first has all": the others have those that a mode decides. "sampled": of those, the ones whose
 * outcome differs in a mode, and a third of the others, for a machine on which each takes seconds. "shared": each row is asked in one of
 * the modes, and those whose outcome is another one in tunnels in all, so that each pair of row, mode and option of `up` occurs
 * together with the other files.
 */
export type RowChoice = 'first has all' | 'decided by the mode' | 'sampled' | 'shared';

/** Of the rows with the same outcome in all modes, "sampled" takes one of so many. */
const SAMPLE = 3;

/** Returns the rows of the mode at an index. */
export function chooseRows(
  rows: readonly QuestionRow[],
  choice: RowChoice,
  index: number,
  modes: number,
  isFull = TAKES_FULL_PRODUCT,
): readonly QuestionRow[] {
  if (isFull) return rows;
  switch (choice) {
    case 'first has all':
      return index === 0 ? rows : rows.filter(isDecidedByMode);
    case 'decided by the mode':
      return rows.filter(isDecidedByMode);
    case 'sampled':
      return rows.filter(isDecidedByMode).filter((row, i) => row.in !== undefined || i % SAMPLE === 0);
    case 'shared':
      return rows.filter((row, i) => row.tunnelled !== undefined || i % modes === index);
  }
}
