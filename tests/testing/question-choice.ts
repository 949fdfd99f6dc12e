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
 * Which rows each mode has. "first has all": every row in the first mode; the others have the rows whose outcome differs in a
 * mode, and take turns in a third of those that a mode decides. "sampled": of the rows that a mode decides, those whose
 * outcome differs in a mode, and a sixth of the others. "shared": the modes take turns in a quarter of the rows, and all have
 * those whose outcome is another one in tunnels. The full product, and the check of all flows in each mode, have the rest:
 * `explain` reads the same objects in each mode, and asks the mode what differs.
 */
export type RowChoice = 'first has all' | 'sampled' | 'shared';

/** Of the rows with the same outcome in all modes, each choice takes one of so many. */
const ONE_OF = { 'first has all': 3, sampled: 6, shared: 4 } as const;

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
      return index === 0 ? rows : sampleOf(rows, ONE_OF[choice], index);
    case 'sampled':
      return sampleOf(rows, ONE_OF[choice], index);
    case 'shared':
      return rows.filter((row, i) => row.tunnelled !== undefined || i % (ONE_OF[choice] * modes) === index);
  }
}

/** Returns the rows that a mode decides: those with another outcome in some mode, and one of so many others. */
const sampleOf = (rows: readonly QuestionRow[], oneOf: number, turn: number) =>
  rows.filter(isDecidedByMode).filter((row, i) => row.in !== undefined || i % oneOf === turn % oneOf);
