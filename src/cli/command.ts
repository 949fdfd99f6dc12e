import type { UserRun } from './as-user.ts';
import { withoutControls } from './control-characters.ts';
import { type HelpTexts, helpText, shortSynopsis } from './help-text.ts';
import { type OptionTable, type Parsed, parseWords, type Syntax } from './options.ts';

/** The output streams of a command; tests provide others. */
export interface Output {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  /** Writes the output of another program: control sequences in it reach the terminal. */
  readonly raw: (text: string) => void;
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
  /** How an ordinary user runs it; null: without the user's namespaces. Throws as `run` for wrong arguments. */
  asUser(words: readonly string[]): UserRun | null;
  /** Runs with the arguments after the command's name; resolves to the exit status. */
  run(words: readonly string[], output: Output): Promise<number>;
}

export interface CommandDefinition<T extends OptionTable> extends Syntax<T>, HelpTexts {
  /** How an ordinary user runs it, by the namespaces of the user. Absent: without them. */
  readonly asUser?: (parsed: Parsed<T>) => UserRun | null;
  run(parsed: Parsed<T>, output: Output): Promise<number>;
}

/** Defines a command by its table of options and arguments, from which its parser and its help are derived. */
export function defineCommand<const T extends OptionTable>(definition: CommandDefinition<T>): Command {
  return {
    name: definition.name,
    summary: definition.summary,
    // Most runs need neither.
    get synopsis() {
      return shortSynopsis(definition, definition);
    },
    syntax: definition,
    get help() {
      return helpText(definition, definition);
    },
    asUser: (words) => definition.asUser?.(parseWords(definition, words)) ?? null,
    run: async (words, output) => await definition.run(parseWords(definition, words), output),
  };
}

/** Returns the standard streams of this process. A closed pipe ends neither the process nor the command. */
export function processOutput(): Output {
  const unread = new AbortController();
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
      if (stream === process.stdout) unread.abort();
    });
  }
  const writer = (stream: NodeJS.WriteStream) => (text: string) =>
    void stream.write(stream.isTTY ? withoutControls(text) : text);
  return {
    out: writer(process.stdout),
    err: writer(process.stderr),
    raw: (text) => process.stdout.write(text),
    interactive: process.stderr.isTTY === true,
    columns: process.stdout.isTTY ? process.stdout.columns : null,
    unread: unread.signal,
  };
}

export interface CommandEntry {
  readonly name: string;
  /** Started by other commands, not by users: absent from the help and README. */
  readonly internal?: boolean;
  /** A separate chunk of the bundle, so that a command loads only its own code. */
  readonly load: () => Promise<{ readonly command: Command }>;
  /** Equal to the summary in the command; the overview shows it without loading the command. */
  readonly summary: string;
}
