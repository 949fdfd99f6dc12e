import { closestName } from '../lib/closest-name.ts';
import { FairleadError } from '../lib/errors.ts';

interface Common {
  /** One letter, for "-f". */
  readonly short?: string;
  /** Its description, without the default, which is appended. */
  readonly help: string;
  /** Shown in the short synopsis of the overview and of README. */
  readonly main?: boolean;
}
export interface Flag extends Common {
  readonly kind: 'flag';
}
export interface Text<F extends string | null = string | null> extends Common {
  readonly kind: 'text';
  /** The placeholder of its value: "FILE". */
  readonly value: string;
  /** Null: none. */
  readonly fallback: F;
  /** How `--help` shows the default, if it is derived. */
  readonly shownFallback?: string;
  /** Returns the default of a run, instead of `fallback`. */
  readonly derive?: () => string;
}
export interface Texts extends Common {
  readonly kind: 'texts';
  readonly value: string;
  /** Returns values that are shown if it has none. */
  readonly examples?: () => readonly string[];
}
export interface WholeNumber extends Common {
  readonly kind: 'number';
  readonly value: string;
  readonly fallback: number;
  readonly min: number;
  readonly max: number;
}
export interface Choice<T extends string = string> extends Common {
  readonly kind: 'choice';
  readonly value: string;
  readonly choices: readonly T[];
  readonly fallback: T;
  /** The choice if the option is given without a value; an explicit value then needs "=". */
  readonly implied?: T;
}
export type Option = Flag | Text | Texts | WholeNumber | Choice;
/** A command's options, by their long names: the source of its parser, its help and its row in README. */
export type OptionTable = Readonly<Record<string, Option>>;

export type ValueOf<O extends Option> = O extends Flag
  ? boolean
  : O extends Text<infer F>
    ? string | F
    : O extends Texts
      ? readonly string[]
      : O extends WholeNumber
        ? number
        : O extends Choice<infer T>
          ? T
          : never;
export type Values<T extends OptionTable> = { readonly [Name in keyof T]: ValueOf<T[Name]> };

type Extra = Pick<Common, 'short' | 'main'>;
type Default = Extra & Pick<Text, 'shownFallback' | 'derive'>;

export const flag = (help: string, extra: Extra = {}): Flag => ({ kind: 'flag', help, ...extra });
export function text(value: string, help: string, extra?: Extra): Text<null>;
export function text(
  value: string,
  help: string,
  extra: Default & { readonly fallback: string },
): Text<string>;
export function text(
  value: string,
  help: string,
  extra: Default & { readonly fallback?: string } = {},
): Text {
  return { kind: 'text', value, help, fallback: null, ...extra };
}
export const texts = (value: string, help: string, extra: Extra & Pick<Texts, 'examples'> = {}): Texts => ({
  kind: 'texts',
  value,
  help,
  ...extra,
});
export const wholeNumber = (
  value: string,
  [fallback, min, max]: readonly [number, number, number],
  help: string,
  extra: Extra = {},
): WholeNumber => ({ kind: 'number', value, fallback, min, max, help, ...extra });
export const choice = <const T extends string>(
  value: string,
  choices: readonly T[],
  fallback: NoInfer<T>,
  help: string,
  extra: Extra & { readonly implied?: NoInfer<T> } = {},
): Choice<T> => ({ kind: 'choice', value, choices, fallback, help, ...extra });

/** A command's argument that is not an option. */
export interface Argument {
  /** Its placeholder: "MODE". */
  readonly name: string;
  readonly help: string;
  readonly optional?: boolean;
  readonly choices?: readonly string[];
  /** The choices are the usual ones; the command accepts others. */
  readonly isOpen?: boolean;
  /** Only of the last one: it takes all words that are left. */
  readonly repeated?: boolean;
}

/** The syntax of a command line. */
export interface Syntax<T extends OptionTable = OptionTable> {
  readonly name: string;
  readonly options: T;
  readonly arguments: readonly Argument[];
  /** The placeholder of a command line, after "--" or after all arguments, which the command then requires. */
  readonly program?: string;
}

export interface Parsed<T extends OptionTable = OptionTable> {
  readonly options: Values<T>;
  /** The names of the options that were given. */
  readonly given: ReadonlySet<string>;
  readonly args: readonly string[];
  /** The words of the program's command line. */
  readonly program: readonly string[];
}

/** Parses a command line. Throws FairleadError "usage", which names the wrong argument and, if known, the right one. */
export function parseWords<T extends OptionTable>(syntax: Syntax<T>, words: readonly string[]): Parsed<T> {
  const values = new Map<string, ValueOf<Option>>();
  const given = new Set<string>();
  const args: string[] = [];
  const { own: typed, program } = splitProgram(syntax, words);
  const own = [...typed];
  let onlyArguments = false;
  for (let i = 0; i < own.length; i++) {
    const word = own[i] ?? '';
    if (onlyArguments || !word.startsWith('-') || word === '-') {
      args.push(word);
      continue;
    }
    if (word === '--') {
      onlyArguments = true;
      continue;
    }
    const { name, option, attached } = findOption(syntax, word);
    const label = word.startsWith('--') ? `--${name}` : word.slice(0, 2);
    const joined = isJoined(word, option);
    if (joined) own.splice(i + 1, 0, `-${word.slice(2)}`);
    const isNeeded = needsValue(option);
    const value = joined ? undefined : (attached ?? (isNeeded ? own[++i] : undefined));
    if (isNeeded && value === undefined)
      throw usageError(syntax.name, `${label} needs a value: ${valuesOf(option)}`);
    if (given.has(name) && option.kind !== 'texts') throw usageError(syntax.name, `${label} is given twice`);
    given.add(name);
    values.set(name, readValue(syntax.name, label, option, value, values.get(name)));
  }
  checkArguments(syntax, args);
  if (syntax.program !== undefined && program.length === 0)
    throw usageError(syntax.name, `missing ${syntax.program}`);
  const options = Object.fromEntries(
    Object.entries(syntax.options).map(([name, option]) => [name, values.get(name) ?? fallbackOf(option)]),
  );
  return { options: options as Values<T>, given, args, program };
}

/**
 * Splits a command line at "--", or after the last argument that the syntax has: `exec POD ls -l`. `program` is empty for
 * commands that run none.
 */
export function splitProgram(
  { arguments: wanted, options, program }: Syntax,
  words: readonly string[],
): { readonly own: readonly string[]; readonly program: readonly string[] } {
  if (program === undefined) return { own: words, program: [] };
  let left = wanted.length;
  for (let i = 0; i < words.length; i++) {
    const word = words[i] ?? '';
    if (word === '--') return { own: words.slice(0, i), program: words.slice(i + 1) };
    if (!word.startsWith('-') || word === '-') {
      if (left-- === 0) return { own: words.slice(0, i), program: words.slice(i) };
    } else if (takesNextWord(options, word)) i++;
  }
  return { own: words, program: [] };
}

/** Whether an option's value is the word after it; false for an unknown option. */
function takesNextWord(options: OptionTable, word: string): boolean {
  const isLong = word.startsWith('--');
  const option = isLong
    ? options[word.slice(2)]
    : Object.values(options).find(({ short }) => short === word.slice(1));
  return option !== undefined && needsValue(option);
}

/** Returns what the value of an option may be. */
function valuesOf(option: Exclude<Option, Flag>): string {
  const known =
    option.kind === 'choice' ? option.choices : option.kind === 'texts' ? option.examples?.() : [];
  if (!known || known.length === 0) return option.value;
  return option.kind === 'choice'
    ? `${option.value} is one of ${known.join(', ')}`
    : `${option.value}, such as a word of these:\n  ${known.join('\n  ')}`;
}

/** Whether an option needs a value: not one that has it implied. */
const needsValue = (option: Option): option is Exclude<Option, Flag> =>
  option.kind !== 'flag' && !(option.kind === 'choice' && option.implied !== undefined);

/** Whether a word has several flags of one letter: "-it". */
const isJoined = (word: string, { kind }: Option): boolean => kind === 'flag' && /^-[a-zA-Z]{2,}$/.test(word);

export function usageError(command: string, message: string): FairleadError {
  return new FairleadError(message, {
    op: `fairlead ${command}`,
    code: 'usage',
    hint: `fairlead ${command} --help`,
  });
}

/** Returns ": did you mean X?", or an empty text. */
export function suggestion(typed: string, names: readonly string[], prefix = ''): string {
  const name = closestName(typed, names);
  return name === null ? '' : `: did you mean ${prefix}${name}?`;
}

/** Options of the commands that work on real clusters; the others say that they do not. */
const REMOTE_NAMES: readonly string[] = ['kubeconfig', 'context'];

function findOption(
  { name: command, options }: Syntax,
  word: string,
): { readonly name: string; readonly option: Option; readonly attached: string | undefined } {
  const isLong = word.startsWith('--');
  const equals = isLong ? word.indexOf('=') : -1;
  const typed = isLong ? word.slice(2, equals < 0 ? undefined : equals) : word.slice(1, 2);
  const attached = isLong
    ? equals < 0
      ? undefined
      : word.slice(equals + 1)
    : word.slice(2).replace(/^=/, '') || undefined;
  const found = Object.entries(options).find(([name, { short }]) => (isLong ? name : short) === typed);
  if (!found) {
    if (REMOTE_NAMES.includes(typed) && 'name' in options)
      throw usageError(command, `${command} works on local clusters only, which --name selects`);
    const known = isLong ? suggestion(typed, Object.keys(options), '--') : '';
    throw usageError(command, `unknown option ${isLong ? `--${typed}` : `-${typed}`}${known}`);
  }
  const [name, option] = found;
  return { name, option, attached };
}

function readValue(
  command: string,
  label: string,
  option: Option,
  value: string | undefined,
  before: ValueOf<Option> | undefined,
): ValueOf<Option> {
  switch (option.kind) {
    case 'flag':
      if (value === undefined) return true;
      throw usageError(command, `${label} takes no value, not ${JSON.stringify(value)}`);
    case 'text':
      return value ?? null;
    case 'texts':
      return [...(Array.isArray(before) ? before : []), value ?? ''];
    case 'number': {
      const number = Number(value);
      if (/^[0-9]+$/.test(value ?? '') && number >= option.min && number <= option.max) return number;
      throw usageError(
        command,
        `${label} takes an integer from ${option.min} to ${option.max}, not ${JSON.stringify(value)}`,
      );
    }
    case 'choice': {
      if (value === undefined && option.implied !== undefined) return option.implied;
      if (option.choices.some((one) => one === value)) return value ?? option.fallback;
      throw usageError(
        command,
        `${label} takes one of ${option.choices.join(', ')}, not ${JSON.stringify(value)}${suggestion(value ?? '', option.choices)}`,
      );
    }
  }
}

function fallbackOf(option: Option): ValueOf<Option> {
  switch (option.kind) {
    case 'flag':
      return false;
    case 'texts':
      return [];
    case 'text':
      return option.derive?.() ?? option.fallback;
    default:
      return option.fallback;
  }
}

function checkArguments({ name: command, arguments: wanted }: Syntax, args: readonly string[]): void {
  const missing = wanted.slice(args.length).filter(({ optional }) => optional !== true);
  if (missing.length > 0) {
    throw usageError(command, `missing ${missing.map(({ name }) => name).join(' and ')}`);
  }
  const extra = args[wanted.length];
  if (extra !== undefined && wanted.at(-1)?.repeated !== true)
    throw usageError(command, `unexpected argument ${JSON.stringify(extra)}`);
  for (const [i, word] of args.entries()) {
    const { name, choices, isOpen } = wanted[i] ?? {};
    if (choices === undefined || isOpen || choices.includes(word)) continue;
    throw usageError(
      command,
      `${name} is one of ${choices.join(', ')}, not ${JSON.stringify(word)}${suggestion(word, choices)}`,
    );
  }
}
