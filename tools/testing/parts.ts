/** The parts of the test suite: which files each one has, and how these run. */

/** `plain`: a process. `private`: a process in namespaces of its own (tools/private-node). */
export type Launcher = 'plain' | 'private';

export interface Part {
  readonly name: PartName;
  readonly summary: string;
  /** Whether a file, relative to the repository, belongs to the part. */
  readonly has: (file: string) => boolean;
  readonly launcher: Launcher;
  /** An argument of tools/testing/set-up.sh, which brings in the programs that the files need. */
  readonly setUp: string;
  /** A program, relative to the repository, that makes a surrounding for a command, and runs it there. */
  readonly wrapper?: string;
  /** Files that run at a time; null: one for each processor. */
  readonly concurrency: number | null;
  /** Whether the set-up takes minutes, so that the files run last, and other parts do not wait. */
  readonly isLate?: true;
  /** Whether a file may take an hour: all combinations, other projects' suites and faults under load. */
  readonly isLong?: true;
  /** Whether a file that fails runs once more by itself: packets and clocks can be delayed by a busy machine. */
  readonly isRepeated: boolean;
}

export type PartName =
  | 'unit'
  | 'promise'
  | 'clusters'
  | 'rooms'
  | 'matrix'
  | 'built'
  | 'vm'
  | 'vm-matrix'
  | 'real'
  | 'chaos';

const packets = { launcher: 'private', setUp: 'netns', concurrency: null, isRepeated: true } as const;
// One file at a time: the machine has one processor, and two files would delay each other's packets by seconds.
const machine = {
  launcher: 'plain',
  setUp: 'vm',
  wrapper: 'tools/testing/in-virtual-machine',
  concurrency: 1,
  isRepeated: true,
} as const;

const OTHER_KINDS = /\.(netns|vm|real|matrix|built)\.test\.ts$/;

export const PARTS: readonly Part[] = [
  {
    name: 'unit',
    summary: 'tests without packets',
    has: (file) => file.endsWith('.test.ts') && !OTHER_KINDS.test(file),
    launcher: 'plain',
    setUp: 'unit',
    concurrency: null,
    isRepeated: false,
  },
  {
    name: 'promise',
    summary: 'the main promise in each mode, on whole clusters',
    has: (file) => file.startsWith('tests/promise/') && file.endsWith('.netns.test.ts'),
    ...packets,
  },
  {
    name: 'clusters',
    summary: 'packet tests of whole clusters',
    has: (file) => /^tests\/(?!promise\/).*\.netns\.test\.ts$/.test(file),
    ...packets,
  },
  {
    name: 'rooms',
    summary: 'packet tests of single rooms',
    has: (file) => /^(src|tools)\/.*\.netns\.test\.ts$/.test(file),
    ...packets,
  },
  {
    name: 'matrix',
    isLong: true,
    summary: 'all combinations of mode, origin and outcome, and a real control plane',
    has: (file) => file.endsWith('.matrix.test.ts'),
    ...packets,
  },
  {
    name: 'built',
    summary: 'comparisons with programs that are built first (helm)',
    has: (file) => file.endsWith('.built.test.ts'),
    launcher: 'plain',
    setUp: 'built',
    isLate: true,
    concurrency: null,
    isRepeated: false,
  },
  {
    name: 'vm',
    summary: 'packet tests that need another kernel, in a virtual machine',
    has: (file) => file.endsWith('.vm.test.ts') && !file.endsWith('.matrix.vm.test.ts'),
    ...machine,
  },
  {
    name: 'vm-matrix',
    isLong: true,
    summary: 'all combinations that need another kernel, in a virtual machine',
    has: (file) => file.endsWith('.matrix.vm.test.ts'),
    ...machine,
  },
  {
    name: 'real',
    isLong: true,
    summary: 'tests on a cluster of real kubelets',
    has: (file) => file.endsWith('.real.test.ts'),
    launcher: 'private',
    setUp: 'real',
    wrapper: 'tools/testing/in-real-cluster',
    // All files have the same cluster folder.
    concurrency: 1,
    isRepeated: true,
  },
  {
    name: 'chaos',
    isLong: true,
    summary: 'kills, drift, roll-outs and a full disk under load, in each mode',
    has: (file) => file.endsWith('.chaos.ts'),
    launcher: 'private',
    setUp: 'chaos',
    concurrency: 1,
    isRepeated: false,
  },
];

/** The parts that several names of the command line stand for. */
export const PART_GROUPS: Readonly<Record<string, readonly PartName[]>> = {
  netns: ['promise', 'clusters', 'rooms'],
};

/** Everything but chaos, which is run by itself. */
export const ALL_PARTS: readonly PartName[] = [
  'unit',
  'matrix',
  'clusters',
  'promise',
  'rooms',
  'built',
  'vm',
  'vm-matrix',
  'real',
];

export function partOf(file: string): Part | null {
  return PARTS.find(({ has }) => has(file)) ?? null;
}

/** Throws if there is no part of the name. */
export function partNamed(name: PartName): Part {
  const part = PARTS.find((one) => one.name === name);
  if (part === undefined) throw new Error(`there is no part ${name}`);
  return part;
}

/** Returns the parts that a word of the command line names; null if it names none. */
export function partsOfWord(word: string): readonly Part[] | null {
  const names = PART_GROUPS[word];
  if (names !== undefined) return names.map(partNamed);
  const part = PARTS.find(({ name }) => name === word);
  return part === undefined ? null : [part];
}

/** Returns a part's files in the order in which they start: those of many packets, which sort late, first. */
export function filesOf(part: Part, files: readonly string[]): readonly string[] {
  const found = files.filter(part.has).sort();
  return part.name === 'unit' ? found : found.reverse();
}
