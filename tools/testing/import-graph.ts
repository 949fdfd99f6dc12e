import { dirname, join, normalize } from 'node:path';

/** What the source files of the repository import. All paths are relative to the repository. */
export interface ImportGraph {
  /** The files of the repository that a file imports, also by `import type` and dynamically. */
  readonly files: ReadonlyMap<string, ReadonlySet<string>>;
  /** The packages and modules of Node.js that a file imports as values. */
  readonly packages: ReadonlyMap<string, ReadonlySet<string>>;
}

export interface GraphOptions {
  /** Whether `import type` counts: a change of a type can only fail the type check, not a test. */
  readonly withTypes: boolean;
}

const STATIC = /^\s*(?:import|export)\b(\s+type\b(?!\s+from\b))?(?:[^'";]*?\bfrom)?\s*'([^']+)'/gm;
const DYNAMIC = /\bimport\(\s*'([^']+)'\s*\)/g;

/** Builds the graph of the source texts by path. */
export function importGraph(texts: ReadonlyMap<string, string>, { withTypes }: GraphOptions): ImportGraph {
  const files = new Map<string, Set<string>>();
  const packages = new Map<string, Set<string>>();
  for (const [file, text] of texts) {
    const imported = new Set<string>();
    const named = new Set<string>();
    for (const { specifier, isType } of importsOf(text)) {
      if (!specifier.startsWith('.')) {
        if (!isType) named.add(specifier);
      } else if (withTypes || !isType) {
        const path = normalize(join(dirname(file), specifier));
        if (texts.has(path)) imported.add(path);
      }
    }
    files.set(file, imported);
    packages.set(file, named);
  }
  return { files, packages };
}

function importsOf(text: string): readonly { readonly specifier: string; readonly isType: boolean }[] {
  return [
    ...[...text.matchAll(STATIC)].map(([, type, specifier = '']) => ({
      specifier,
      isType: type !== undefined,
    })),
    ...[...text.matchAll(DYNAMIC)].map(([, specifier = '']) => ({ specifier, isType: false })),
  ];
}

/** Returns a file and all files that it imports, directly or not. */
export function closureOf(graph: ImportGraph, file: string): ReadonlySet<string> {
  const seen = new Set([file]);
  for (const one of seen) for (const other of graph.files.get(one) ?? []) seen.add(other);
  return seen;
}

/** Returns the files that import one of `files`, directly or not, and these themselves, with the least number of imports. */
export function importersOf(graph: ImportGraph, files: readonly string[]): ReadonlyMap<string, number> {
  const importers = new Map<string, string[]>();
  for (const [file, imported] of graph.files)
    for (const one of imported) importers.set(one, [...(importers.get(one) ?? []), file]);
  const steps = new Map(files.filter((file) => graph.files.has(file)).map((file) => [file, 0]));
  for (const [file, step] of steps)
    for (const importer of importers.get(file) ?? []) if (!steps.has(importer)) steps.set(importer, step + 1);
  return steps;
}

/** Modules that start processes and threads, call the kernel, or measure the process. */
const OUTWARD = /^(node:)?(child_process|worker_threads|cluster|inspector|repl|v8)(\/|$)|^(koffi|ws)$/;
/** Modules that open anything. */
const OPENING =
  /^(node:)?(fs|child_process|net|http|https|http2|tls|dgram|dns|worker_threads|cluster|inspector|repl|v8)(\/|$)|^(koffi|ws)$/;
/** Helpers of tests, which do for a test file what it would do itself. */
const HELPER = /(^|\/)testing\//;
/** Rooms whose tests bound the memory of their process, count its files, or wait for its children. */
const OWN_PROCESS = /^src\/(kernel|runtime|dataplane|network|agent\/pod-runtime)\//;
/** State of the whole process, which one test file would leave to the next one. */
const PROCESS_WIDE =
  /\bprocess\.(env(\.\w+|\[[^\]]+\])\s*(\?\?|\|\|)?=[^=]|chdir\(|umask\(|on\(|once\(|exitCode\s*=|exit\(|execPath\s*=)|\bdelete process\.env|\bglobalThis\.\w+\s*=[^=>]/;
/** Mocks of the module, not of a test's context, which stay. */
const SHARED_MOCK = /(?<![.\w])mock\.(timers|method|fn|module|property|getter|setter)/;
/** Random comparisons with an oracle take seconds of processor time each: they run beside each other. */
const LONG = /\.property\.test\.ts$/;

/**
 * Whether a test file can share a process with others, which saves its start and imports: it and its helpers open at most
 * files and sockets of their own, and nothing that it imports changes the process.
 */
export function canShareProcess(
  graph: ImportGraph,
  texts: ReadonlyMap<string, string>,
  file: string,
): boolean {
  if (LONG.test(file) || SHARED_MOCK.test(texts.get(file) ?? '')) return false;
  const closure = [...closureOf(graph, file)];
  const opens = (one: string, modules: RegExp) =>
    [...(graph.packages.get(one) ?? [])].some((name) => modules.test(name));
  if (OWN_PROCESS.test(file) && closure.some((one) => opens(one, OPENING))) return false;
  return closure.every(
    (one) =>
      !((one === file || HELPER.test(one)) && opens(one, OUTWARD)) &&
      !PROCESS_WIDE.test(texts.get(one) ?? ''),
  );
}
