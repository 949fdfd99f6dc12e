import type { Argument, Option, Syntax } from './options.ts';

const COLUMNS = 80;

/** The texts of a command's help except its options and arguments. */
export interface HelpTexts {
  readonly summary: string;
  /** Paragraphs; a line that begins with spaces is not wrapped. */
  readonly description: readonly string[];
  /** Command lines, without "fairlead". */
  readonly examples?: readonly string[];
  /** Replaces the synopsis that is derived from the arguments. */
  readonly synopsis?: readonly string[];
}

/** Renders `fairlead COMMAND --help`, at most 80 columns wide. */
export function helpText(syntax: Syntax, texts: HelpTexts): string {
  const { name, options, arguments: args } = syntax;
  const usages = (
    texts.synopsis?.map((one) => `${one} [OPTION…]`) ?? [argumentSynopsis(syntax, ['[OPTION…]'])]
  ).map((one) => [`fairlead ${name}`, one].filter(Boolean).join(' '));
  const sections = [
    usages.map((usage, i) => `${i === 0 ? 'Usage:' : '      '} ${usage}`).join('\n'),
    ...texts.description.map((paragraph) => (paragraph.startsWith(' ') ? paragraph : wrap(paragraph))),
    definitions(args.filter(({ help }) => help !== '').map((arg) => [arg.name, argumentHelp(arg)])),
    definitions(
      Object.entries(options).map(([long, option]) => [optionLabel(long, option), optionHelp(option)]),
    ),
    (texts.examples ?? []).map((example) => `  fairlead ${example}`).join('\n'),
  ];
  return `${sections.filter((section) => section !== '').join('\n\n')}\n`;
}

/**
 * Returns the command with its arguments and main options, for one row of a table: "mode MODE [--node
 * NODE]".
 */
export function shortSynopsis(syntax: Syntax, texts: HelpTexts): string {
  const main = Object.entries(syntax.options).filter(([, option]) => option.main === true);
  const options = main.map(([long, option]) => `[${shortLabel(long, option)}]`);
  const synopsis = texts.synopsis?.join(' | ') ?? argumentSynopsis(syntax, options);
  return [syntax.name, synopsis].filter(Boolean).join(' ');
}

/** Breaks a paragraph at spaces; every line begins with `indent` spaces. */
export function wrap(paragraph: string, columns = COLUMNS, indent = 0): string {
  const lines: string[] = [];
  for (const word of paragraph.split(' ')) {
    const last = lines.at(-1);
    if (last !== undefined && indent + shownLength(last) + 1 + shownLength(word) <= columns)
      lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines.map((line) => ' '.repeat(indent) + line).join('\n');
}

/**
 * Breaks lines at spaces where they are wider than a terminal; what continues is indented two spaces more. `columns` null: not
 * a terminal, so that the text stays as it is.
 */
export function wrapLines(text: string, columns: number | null): string {
  if (columns === null) return text;
  return text
    .split('\n')
    .map((line) => {
      if (shownLength(line) <= columns) return line;
      const indent = line.search(/[^ ]|$/);
      return `${line.slice(0, indent)}${wrap(line.slice(indent), columns, indent + 2).trimStart()}`;
    })
    .join('\n');
}

/** Sequences that set colours (ECMA-48). */
const COLOUR_SEQUENCES = /\u001b\[[0-9;]*m/g;
const shownLength = (text: string): number => text.replace(COLOUR_SEQUENCES, '').length;

/** Formats terms with their explanations in a second column. */
export function definitions(rows: readonly (readonly [term: string, text: string])[]): string {
  const width = Math.max(0, ...rows.map(([term]) => term.length).filter((length) => length <= 26));
  const indent = width + 4;
  return rows
    .map(([term, text]) => {
      const body = wrap(text, COLUMNS, indent);
      return term.length > width ? `  ${term}\n${body}` : `  ${term.padEnd(width)}  ${body.slice(indent)}`;
    })
    .join('\n');
}

function argumentSynopsis({ arguments: args, program }: Syntax, options: readonly string[] = []): string {
  const words = args.map(({ name, optional }) => (optional === true ? `[${name}]` : name));
  return [...words, ...options, ...(program === undefined ? [] : [`-- ${program}`])].join(' ');
}

const argumentHelp = ({ help, choices }: Argument) =>
  choices === undefined ? help : `${help}${help === '' ? '' : ': '}${choices.join(', ')}`;

function optionLabel(long: string, option: Option): string {
  return `${option.short === undefined ? '' : `-${option.short}, `}--${long}${valueLabel(option)}`;
}

function shortLabel(long: string, option: Option): string {
  const label = option.short === undefined ? `--${long}` : `-${option.short}`;
  return `${label}${valueLabel(option)}${option.kind === 'texts' ? '…' : ''}`;
}

function valueLabel(option: Option): string {
  if (option.kind === 'flag') return '';
  if (option.kind === 'choice' && option.implied !== undefined) return `[=${option.value}]`;
  return ` ${option.value}`;
}

function optionHelp(option: Option): string {
  const notes = [
    ...(option.kind === 'texts' ? ['may be given several times'] : []),
    ...((option.kind === 'text' || option.kind === 'number' || option.kind === 'choice') &&
    option.fallback !== null &&
    option.fallback !== '' &&
    !(option.kind === 'choice' && option.implied !== undefined)
      ? [`default: ${(option.kind === 'text' ? option.shownFallback : undefined) ?? option.fallback}`]
      : []),
  ];
  const choices =
    option.kind === 'choice' && option.implied === undefined ? `: ${option.choices.join(', ')}` : '';
  return `${option.help}${choices}${notes.length > 0 ? ` (${notes.join('; ')})` : ''}`;
}
