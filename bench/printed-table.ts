/** Where a printed table has a value. */
export interface Place {
  readonly row: RegExp;
  /** The column's title. */
  readonly column: RegExp;
  /** Which of several columns with such a title; 0: the first. */
  readonly which?: number;
}

interface Cell {
  readonly text: string;
  /** Offsets in the line; in Markdown, the number of the column. */
  readonly start: number;
  readonly end: number;
}

/** Returns a cell of the tables that a benchmark has printed, by Markdown or by aligned columns; null: it has none. */
export function readCell(output: string, { row, column, which = 0 }: Place): string | null {
  const lines = output.split('\n');
  const at = lines.findIndex((line) => row.test(line));
  const cells = cellsOf(lines[at] ?? '');
  if (at < 0) return null;
  for (const line of lines.slice(0, at).reverse()) {
    const title = cellsOf(line).filter(({ text }) => column.test(text))[which];
    // Columns are aligned to the right or to the left; cells without a value are blank.
    if (title)
      return cells.find(({ start, end }) => end === title.end || start === title.start)?.text ?? null;
  }
  return null;
}

function cellsOf(line: string): Cell[] {
  if (line.startsWith('|')) {
    return line.split('|').map((cell, i) => ({ text: cell.trim(), start: i, end: i }));
  }
  return [...line.matchAll(/\S+(?: \S+)*/g)].map(({ 0: text, index }) => ({
    text,
    start: index,
    end: index + text.length,
  }));
}
