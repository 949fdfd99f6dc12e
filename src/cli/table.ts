import { wrap } from './help-text.ts';

const GAP = 2;
/** The narrowest last column in which text is wrapped, unless all of its words are shorter. */
const MIN_WRAPPED = 24;
const ELLIPSIS = '…';

/**
 * Formats rows as aligned columns, two spaces apart; the first row is the heading. If the table is wider than `columns`, the
 * last column is wrapped at words; if that is not enough, columns are left out, in the order of `dropped` (headings); at
 * last, the first column is shortened. `columns` null: not a terminal, so that lines are as wide as needed.
 */
export function formatTable(
  rows: readonly (readonly string[])[],
  columns: number | null = null,
  dropped: readonly string[] = [],
): string {
  if (columns === null) return align(rows, null);
  let shown = rows;
  for (const heading of dropped) {
    if (fits(shown, columns)) break;
    const at = shown[0]?.indexOf(heading) ?? -1;
    if (at >= 0) shown = shown.map((row) => row.toSpliced(at, 1));
  }
  return align(fits(shown, columns) ? shown : shortenFirst(shown, columns), columns);
}

function widthsOf(rows: readonly (readonly string[])[]): number[] {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [i, cell] of row.entries()) widths[i] = Math.max(widths[i] ?? 0, cell.length);
  }
  return widths;
}

/** The width of all columns but the last, with the gaps after them. */
const indentOf = (widths: readonly number[]): number =>
  widths.slice(0, -1).reduce((sum, width) => sum + width + GAP, 0);

/** The least width of the last column: that of its longest word. */
function lastWidth(rows: readonly (readonly string[])[]): number {
  const cells = rows.map((row) => row.at(-1) ?? '');
  const whole = longest(cells);
  const word = longest(cells.flatMap((cell) => cell.split(' ')));
  return Math.min(whole, Math.max(word, MIN_WRAPPED));
}

const fits = (rows: readonly (readonly string[])[], columns: number): boolean =>
  indentOf(widthsOf(rows)) + lastWidth(rows) <= columns;

/** Leaves out the middle of long cells of the first column. */
function shortenFirst(rows: readonly (readonly string[])[], columns: number): (readonly string[])[] {
  const others = rows.map((row) => row.slice(1));
  const rest = others.some(({ length }) => length > 0)
    ? GAP + indentOf(widthsOf(others)) + lastWidth(others)
    : 0;
  const room = Math.max(1, columns - rest);
  return rows.map(([first = '', ...cells]) => {
    if (first.length <= room) return [first, ...cells];
    const tail = Math.floor((room - 1) / 2);
    return [`${first.slice(0, room - 1 - tail)}${ELLIPSIS}${tail > 0 ? first.slice(-tail) : ''}`, ...cells];
  });
}

function align(rows: readonly (readonly string[])[], columns: number | null): string {
  const widths = widthsOf(rows);
  const indent = indentOf(widths);
  return rows
    .map((row) => {
      const last = row.at(-1) ?? '';
      const text = columns === null ? last : wrap(last, columns, indent).trimStart();
      const cells = row.slice(0, -1).map((cell, i) => cell.padEnd(widths[i] ?? 0));
      return `${[...cells, text].join(' '.repeat(GAP)).trimEnd()}\n`;
    })
    .join('');
}

/** Returns the length of the longest text; there may be more than a function takes arguments. */
const longest = (texts: readonly string[]): number =>
  texts.reduce((max, { length }) => Math.max(max, length), 0);
