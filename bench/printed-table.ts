/** Where a printed table has a value. */
export interface Place {
  readonly row: RegExp;
  /** The column's title; absent: all of the row. */
  readonly column?: RegExp;
  /** Which of several columns with such a title; 0: the first. */
  readonly which?: number;
}

/** Returns a cell of the tables that a benchmark has printed, by Markdown or by aligned columns; null: it has none. */
export function readCell(output: string, { row, column, which = 0 }: Place): string | null {
  const lines = output.split('\n');
  const at = lines.findIndex((line) => row.test(line));
  const cells = cellsOf(lines[at] ?? '');
  if (at < 0) return null;
  if (!column) return cells.slice(1).join(', ');
  for (const line of lines.slice(0, at).reverse()) {
    const titles = cellsOf(line);
    const columns = titles.flatMap((title, i) => (column.test(title) ? [i] : []));
    const found = columns[which];
    // The first column may have no title: cells are counted from the right.
    if (found !== undefined) return cells.at(found - titles.length) ?? null;
  }
  return null;
}

function cellsOf(line: string): string[] {
  if (line.startsWith('|'))
    return line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim());
  return line.trim().split(/\s{2,}/);
}
