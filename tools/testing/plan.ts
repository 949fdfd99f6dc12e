import { DEFAULT_FILES } from './default-suite.ts';
import { FULL_FILES } from './full-suite.ts';
import { ALL_PARTS, filesOf, partNamed, partOf, partsOfWord } from './parts.ts';

/** What the command line asks for. */
export type Command =
  | { readonly kind: 'default' }
  | { readonly kind: 'all'; readonly isFull: boolean }
  | { readonly kind: 'changed'; readonly revision: string | null }
  | { readonly kind: 'files'; readonly files: readonly string[]; readonly areNamed: boolean }
  | { readonly kind: 'chaos'; readonly modes: readonly string[] }
  | { readonly kind: 'help' }
  | { readonly kind: 'usage'; readonly reason: string };

/** Reads the arguments of `./test`. `files`: the files of the repository. */
export function parseCommand(words: readonly string[], files: readonly string[]): Command {
  const [word, ...rest] = words;
  if (word === undefined) return { kind: 'default' };
  if (word === 'all') {
    const unknown = rest.find((one) => one !== '--full');
    if (unknown !== undefined) return { kind: 'usage', reason: `all has no argument ${unknown}` };
    return { kind: 'all', isFull: rest.length > 0 };
  }
  if (word === 'changed') {
    const [revision = null, ...more] = rest;
    if (more.length > 0) return { kind: 'usage', reason: 'changed has one argument at most' };
    return { kind: 'changed', revision };
  }
  if (word === 'chaos') return { kind: 'chaos', modes: rest };
  if (word === 'help' || word === '--help') return { kind: 'help' };
  const parts = partsOfWord(word);
  if (parts === null) return { kind: 'usage', reason: `there is no part ${word}` };
  if (rest.length === 0) {
    return { kind: 'files', files: parts.flatMap((part) => filesOf(part, files)), areNamed: false };
  }
  const named = rest.map((file) => file.replace(/^\.\//, ''));
  const missing = named.find((file) => !files.includes(file));
  if (missing !== undefined) return { kind: 'usage', reason: `there is no file ${missing}` };
  const foreign = named.find((file) => partOf(file) === null);
  if (foreign !== undefined) return { kind: 'usage', reason: `${foreign} is not a test file` };
  return { kind: 'files', files: named, areNamed: true };
}

/** Returns the files of `./test all`; `isFull`: also those whose tests other files repeat in part. */
export function allFiles(files: readonly string[], isFull: boolean): readonly string[] {
  return ALL_PARTS.flatMap((name) => filesOf(partNamed(name), files)).filter(
    (file) => isFull || !(file in FULL_FILES),
  );
}

/** Returns the files of `./test`: all unit files, the main promise in each mode, and the quick files of the rooms. */
export function defaultFiles(files: readonly string[]): readonly string[] {
  return allFiles(files, false).filter(
    (file) => partOf(file)?.name === 'unit' || file.startsWith('tests/promise/') || file in DEFAULT_FILES,
  );
}

/** Returns, for each part, a line that says how many of its files do not run, and the command that runs them. */
export function leftOutLines(ran: readonly string[], files: readonly string[]): readonly string[] {
  const chosen = new Set(ran);
  return ALL_PARTS.flatMap((name) => {
    const part = partNamed(name);
    const all = filesOf(part, files);
    const left = all.filter((file) => !chosen.has(file)).length;
    return left === 0
      ? []
      : [`  ./test ${name.padEnd(10)} ${left} of ${all.length} files left out: ${part.summary}`];
  });
}
