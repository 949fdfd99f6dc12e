import { usualCluster } from '../cluster/state.ts';
import { type HelpTexts, helpText, shortSynopsis, wrap } from './help-text.ts';
import { type OptionTable, type Parsed, parseWords, type Syntax, text } from './options.ts';

/** The output streams of a command; tests provide others. */
export interface Output {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  /** Whether standard error is a terminal, so that progress lines may be overwritten. */
  readonly interactive: boolean;
  /** The width of the terminal at standard output; null: not a terminal, so that lines are not wrapped. */
  readonly columns: number | null;
  /** Aborts when standard output is closed. Commands that only print then stop; others continue. */
  readonly unread: AbortSignal;
}

/** One command of the command line. */
export interface Command {
  readonly name: string;
  readonly summary: string;
  /** The command with its arguments and main options. */
  readonly synopsis: string;
  /** Its arguments and options, for completion in shells. */
  readonly syntax: Syntax;
  /** Printed by `--help`. */
  readonly help: string;
  /** Runs with the arguments after the command's name; resolves to the exit status. */
  run(words: readonly string[], output: Output): Promise<number>;
}

export interface CommandDefinition<T extends OptionTable> extends Syntax<T>, HelpTexts {
  run(parsed: Parsed<T>, output: Output): Promise<number>;
}

/** Defines a command by its table of options and arguments, from which its parser and its help are derived. */
export function defineCommand<const T extends OptionTable>(definition: CommandDefinition<T>): Command {
  return {
    name: definition.name,
    summary: definition.summary,
    synopsis: shortSynopsis(definition, definition),
    syntax: definition,
    help: helpText(definition, definition),
    run: async (words, output) => {
      const parsed = parseWords(definition, words);
      const isOfCluster = (definition.options as OptionTable)['name'] === NAME_OPTION;
      const names = isOfCluster && !parsed.given.has('name') ? { name: usualCluster(process.env) } : {};
      return await definition.run({ ...parsed, options: { ...parsed.options, ...names } }, output);
    },
  };
}

/** The option of every command that works on one cluster. */
export const NAME_OPTION = text('NAME', 'the cluster; default: $FAIRLEAD_CLUSTER, or the only cluster', {
  fallback: 'default',
});

/** Returns the standard streams of this process. A closed pipe ends neither the process nor the command. */
export function processOutput(): Output {
  const unread = new AbortController();
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
      if (stream === process.stdout) unread.abort();
    });
  }
  return {
    out: (text) => process.stdout.write(text),
    err: (text) => process.stderr.write(text),
    interactive: process.stderr.isTTY === true,
    columns: process.stdout.isTTY ? process.stdout.columns : null,
    unread: unread.signal,
  };
}

/**
 * Formats rows as aligned columns, two spaces apart; the first row is the heading. With `columns`, words of the last column
 * that would exceed this width continue on the next line.
 */
export function formatTable(rows: readonly (readonly string[])[], columns: number | null = null): string {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [i, cell] of row.entries()) widths[i] = Math.max(widths[i] ?? 0, cell.length);
  }
  const indent = widths.slice(0, -1).reduce((sum, width) => sum + width + 2, 0);
  return rows
    .map((row) => {
      const last = row.at(-1) ?? '';
      const text = columns === null ? last : wrap(last, columns, indent).trimStart();
      const cells = row.slice(0, -1).map((cell, i) => cell.padEnd(widths[i] ?? 0));
      return `${[...cells, text].join('  ').trimEnd()}\n`;
    })
    .join('');
}
