import { type ImportGraph, importersOf } from './import-graph.ts';
import { type PartName, partOf } from './parts.ts';

/**
 * The tests that read files which are not imported: of a changed path that matches, these run. Tests that name the path,
 * or its folder, in a string are found by that.
 */
const READERS: readonly (readonly [changed: RegExp, tests: readonly string[]])[] = [
  [/^src\/.*\.tsx?$/, ['tests/imports.test.ts', 'tests/bare-errors.test.ts']],
  [/\.(ts|tsx|mjs|md|sh|ya?ml|c|go)$/, ['tests/retired-words.test.ts']],
  [/\.md$|^package\.json$|^(src|bench|tools|tests|deploy|examples|bpf|cni)\//, ['tests/documents.test.ts']],
  [/^docs\/architecture\.md$/, ['tests/imports.test.ts']],
  [/^docs\/conformance\.md$|^tests\/e2e\/results\//, ['tests/e2e/results.test.ts']],
  [/^(bpf\/|tools\/build-bpf\.mjs|src\/.*\/generated\/)/, ['tools/build-bpf.test.ts']],
  [/^(cni\/|tools\/build-cni\.mjs)/, ['tools/build-cni.test.ts']],
  [
    /^(deploy\/|docs\/(alerts|operating)\.md$)/,
    [
      'src/cli/deployment-files.test.ts',
      'src/cli/helm-chart.built.test.ts',
      'tests/helm-release.built.test.ts',
      'tests/monitoring.test.ts',
      'tests/manifests.test.ts',
    ],
  ],
  [/^(src\/cli\/|README\.md$)/, ['src/cli/commands.test.ts']],
  [/^(action\.yml$|examples\/ci\/)/, ['tests/ci-examples.test.ts']],
  [/^tools\/schema\//, ['src/apiserver/schema/schema.test.ts']],
  [/^(tools\/(build\.mjs|setup\.sh)|fairlead|package\.json)$/, ['tests/npm-package.netns.test.ts']],
  [/^tools\/private-node$/, ['src/network/pod-network.netns.test.ts']],
  [/^(tools\/testing\/in-virtual-machine$|tests\/vm\/)/, ['src/dataplane/ipvs/ipvs.vm.test.ts']],
  [/^bpf\//, ['src/dataplane/ebpf/ebpf.netns.test.ts']],
];

/** The proof of a mode on a whole cluster, which is named for changes of the mode: it takes more than a minute. */
const PROOFS: readonly (readonly [changed: RegExp, test: (mode: string) => RegExp])[] = [
  [/^src\/dataplane\/(\w+)\//, (mode) => new RegExp(`^tests/promise/${mode}\\.`)],
];

/**
 * How many files of a part run because they import a change, the nearest first: more would take longer than a minute.
 * Unit files all run. A file that itself differs, or that READERS names, always runs.
 */
const LIMITS: Readonly<Record<PartName, number>> = {
  unit: Number.POSITIVE_INFINITY,
  rooms: 4,
  clusters: 1,
  promise: 1,
  vm: 1,
  matrix: 0,
  built: 0,
  'vm-matrix': 0,
  real: 0,
  chaos: 0,
};

export interface Selection {
  /** The reason of each file that runs. */
  readonly chosen: ReadonlyMap<string, string>;
  /** Files that a change concerns, and that do not run because they take too long. */
  readonly leftOut: readonly string[];
}

/** Chooses the test files that changed paths concern. `texts`: the source files, by path. */
export function selectChanged(
  changed: readonly string[],
  graph: ImportGraph,
  texts: ReadonlyMap<string, string>,
): Selection {
  const tests = [...texts.keys()].filter((file) => partOf(file) !== null).sort();
  const chosen = new Map<string, string>();
  const choose = (file: string, reason: string) => {
    if (texts.has(file) && partOf(file) !== null && !chosen.has(file)) chosen.set(file, reason);
  };
  for (const path of changed) choose(path, 'differs');
  const named: string[] = [];
  for (const path of changed) {
    for (const [pattern, readers] of READERS)
      if (pattern.test(path)) for (const reader of readers) choose(reader, `reads ${path}`);
    // Source files are imported, not read.
    if (!/\.(ts|tsx|mjs)$/.test(path))
      named.push(...tests.filter((test) => names(texts.get(test) ?? '', path)));
  }
  for (const file of named) if (partOf(file)?.name === 'unit') choose(file, 'names a change');
  const steps = importersOf(graph, changed);
  const importers = tests
    .filter((file) => steps.has(file) && !chosen.has(file))
    .sort((a, b) => rank(a, changed, steps) - rank(b, changed, steps));
  const counts = new Map<PartName, number>();
  const leftOut = named.filter((file) => !chosen.has(file));
  for (const file of importers) {
    const part = partOf(file)?.name ?? 'unit';
    const count = counts.get(part) ?? 0;
    // Beyond its own room, a packet test says little about the change.
    const isNear = part === 'unit' || isOfRoomOf(file, changed);
    if (!isNear || count >= LIMITS[part]) {
      leftOut.push(file);
    } else {
      counts.set(part, count + 1);
      choose(file, 'imports a change');
    }
  }
  for (const path of changed)
    for (const [pattern, proof] of PROOFS) {
      const [, mode] = pattern.exec(path) ?? [];
      if (mode !== undefined) leftOut.push(...tests.filter((test) => proof(mode).test(test)));
    }
  return { chosen, leftOut: [...new Set(leftOut)].filter((file) => !chosen.has(file)) };
}

/** Nearest first: in the room of a change, then by the number of imports between. */
function rank(file: string, changed: readonly string[], steps: ReadonlyMap<string, number>): number {
  return (isOfRoomOf(file, changed) ? 0 : 1000) + (steps.get(file) ?? 999);
}

function isOfRoomOf(file: string, changed: readonly string[]): boolean {
  return changed.some((path) => roomOf(path) === roomOf(file));
}

/** The folder of src/, or of a mode's dataplane; tests/ is one room. */
function roomOf(path: string): string {
  const [top = '', room = '', mode = ''] = path.split('/');
  if (top !== 'src') return top;
  return room === 'dataplane' && mode.includes('.') === false ? `${room}/${mode}` : room;
}

/** Whether a test's text has a string with the path, its end, or its file's name. */
function names(text: string, path: string): boolean {
  const parts = path.split('/');
  return parts.some((_, i) => {
    const end = parts.slice(i).join('/');
    return end.includes('.') && [`'${end}'`, `/${end}'`, `/${end}\``].some((quoted) => text.includes(quoted));
  });
}
