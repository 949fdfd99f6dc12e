import { type ParseArgsOptionsConfig, parseArgs } from 'node:util';
import { FairleadError, messageOf } from '../lib/errors.ts';

/** Where a command writes; tests pass their own. */
export interface Output {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  /** Standard error is a terminal: progress may be drawn over. */
  readonly interactive: boolean;
}

/** One command of the command line. */
export interface Command {
  /** Printed by `--help`: usage line, what it does, options, examples. */
  readonly help: string;
  /** Runs with the arguments after the command's name; resolves to the exit status. */
  run(argv: readonly string[], output: Output): Promise<number>;
}

export const processOutput: Output = {
  out: (text) => process.stdout.write(text),
  err: (text) => process.stderr.write(text),
  interactive: process.stderr.isTTY === true,
};

export interface Parsed {
  readonly values: Record<string, string | boolean | (string | boolean)[] | undefined>;
  readonly positionals: string[];
}

/**
 * Reads a command's arguments. Throws FairleadError "usage" naming the argument that is wrong.
 * `passthrough`: everything after "--" is kept as it stands at the end of the positionals.
 */
export function parseArguments(
  command: string,
  argv: readonly string[],
  options: ParseArgsOptionsConfig,
  positionals: { readonly least: number; readonly most: number; readonly names: string },
): Parsed {
  let parsed: Parsed;
  try {
    parsed = parseArgs({ args: [...argv], options, allowPositionals: true, strict: true });
  } catch (error) {
    throw usageError(command, messageOf(error).split('. To specify')[0] ?? messageOf(error));
  }
  const count = parsed.positionals.length;
  if (count < positionals.least || count > positionals.most) {
    throw usageError(
      command,
      count < positionals.least
        ? `${positionals.names} is missing`
        : `unexpected argument ${JSON.stringify(parsed.positionals[positionals.most])}`,
    );
  }
  return parsed;
}

export function usageError(command: string, message: string): FairleadError {
  return new FairleadError(message, {
    op: `fairlead ${command}`,
    code: 'usage',
    hint: `see: fairlead ${command} --help`,
  });
}

/** The text of an option that may be given once, or its default. */
export function textOption(parsed: Parsed, name: string, fallback: string): string {
  const value = parsed.values[name];
  return typeof value === 'string' ? value : fallback;
}

/** The texts of an option that may be given several times. */
export function textOptions(parsed: Parsed, name: string): string[] {
  const value = parsed.values[name];
  return Array.isArray(value) ? value.filter((item) => typeof item === 'string') : [];
}

/** A whole number within bounds; throws naming the option. */
export function numberOption(
  command: string,
  parsed: Parsed,
  name: string,
  fallback: number,
  least: number,
  most: number,
): number {
  const text = textOption(parsed, name, String(fallback));
  const value = Number(text);
  if (!/^[0-9]+$/.test(text) || value < least || value > most) {
    throw usageError(
      command,
      `--${name} takes a whole number from ${least} to ${most}, not ${JSON.stringify(text)}`,
    );
  }
  return value;
}

/** One of the choices; throws naming the option and the choices. */
export function choiceOption<T extends string>(
  command: string,
  parsed: Parsed,
  name: string,
  fallback: T,
  choices: readonly T[],
): T {
  const text = textOption(parsed, name, fallback);
  const found = choices.find((choice) => choice === text);
  if (!found)
    throw usageError(command, `--${name} takes one of ${choices.join(', ')}, not ${JSON.stringify(text)}`);
  return found;
}

/** Rows as aligned columns, two spaces apart; the first row is the heading. */
export function formatTable(rows: readonly (readonly string[])[]): string {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [i, cell] of row.entries()) widths[i] = Math.max(widths[i] ?? 0, cell.length);
  }
  return rows
    .map((row) =>
      row.map((cell, i) => (i === row.length - 1 ? cell : cell.padEnd(widths[i] ?? 0))).join('  '),
    )
    .map((line) => `${line.trimEnd()}\n`)
    .join('');
}
