// Runs the test suite, after ./test has set up Node.js and its packages: see USAGE.
import { spawn, spawnSync } from 'node:child_process';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { selectChanged } from './testing/changed.ts';
import { FULL_FILES } from './testing/full-suite.ts';
import { canShareProcess, importGraph } from './testing/import-graph.ts';
import { describeLoad, parseProcessorTimes } from './testing/machine-load.ts';
import { type Part, type PartName, partNamed, partOf } from './testing/parts.ts';
import { allFiles, defaultFiles, leftOutLines, parseCommand } from './testing/plan.ts';
import {
  describeResult,
  describeSlowest,
  describeVerdict,
  parseTimesTable,
  textOf,
  timesTable,
} from './testing/report.ts';
import { type FileResult, filesToRepeat, judge } from './testing/results.ts';
import { groupsOf, type Job, killGroup, logOf, type Running, runJobs } from './testing/run-files.ts';
import { SMALL, WEIGHTS } from './testing/weights.ts';

const USAGE = `usage:
  ./test                  types, lint, unit tests, and the packet tests of the main promise in each mode
  ./test changed [REV]    the tests that concern what differs from REV (default: the last commit of origin, else HEAD)
  ./test all [--full]     everything; --full: all combinations instead of a pairwise choice
  ./test unit [FILE…]     unit tests
  ./test netns [FILE…]    packet tests (need root); also by part: promise, clusters, rooms
  ./test built            comparisons with programs that are built first (helm)
  ./test matrix [FILE…]   packet tests of all combinations, and of a real control plane
  ./test vm [FILE…]       packet tests that need another kernel, in a virtual machine (tests/vm/README.md)
  ./test vm-matrix        the same of all combinations
  ./test real [FILE…]     tests on a cluster of real kubelets, if REAL_CLUSTER names a folder that makes one
  ./test chaos [MODE…]    kills, drift, roll-outs and a full disk under load, in each mode`;

const root = resolve(import.meta.dirname, '..');
process.chdir(root);
const output = resolve(process.env['FAIRLEAD_TEST_OUTPUT'] || '.test-output');
const cores = availableParallelism();
const ownConcurrency = Number(process.env['FAIRLEAD_TEST_CONCURRENCY'] || 0);
/** Below the 90 minutes that CI has, with time for what fails to be run again. */
const MAX_RUN_MS = 75 * 60_000;
const deadline = Date.now() + MAX_RUN_MS;
const MAX_LOG_CHARACTERS = 20_000;

interface Plan {
  readonly files: readonly string[];
  /** Whether types and lint are checked. */
  readonly hasChecks: boolean;
  /** Files that a person named run each in its own process, and show what they print. */
  readonly areNamed: boolean;
  /** The last lines but the counts. */
  readonly notes: readonly string[];
}

const running: Running = new Set();
const wrappers = new Set<number>();
const say = (line: string) => process.stdout.write(`${line}\n`);

function sourceTexts(): ReadonlyMap<string, string> {
  const texts = new Map<string, string>();
  for (const folder of ['src', 'tests', 'tools', 'bench'])
    for (const entry of readdirSync(folder, { withFileTypes: true, recursive: true })) {
      if (!entry.isFile() || !/\.(ts|tsx|mjs)$/.test(entry.name)) continue;
      const file = relative(root, join(entry.parentPath, entry.name));
      texts.set(file, readFileSync(file, 'utf8'));
    }
  return texts;
}

/** Returns the paths that differ from a revision, with those that git does not know. */
function changedPaths(revision: string | null): readonly string[] {
  const base = revision ?? lastOfOrigin() ?? 'HEAD';
  say(`changes since ${base}`);
  const paths = [
    ...git('diff', '--name-only', '--no-renames', '-z', base, '--').split('\0'),
    ...git('ls-files', '--others', '--exclude-standard', '-z').split('\0'),
  ];
  return [...new Set(paths)].filter((path) => path !== '');
}

function lastOfOrigin(): string | null {
  for (const branch of ['@{upstream}', 'origin/HEAD', 'origin/main']) {
    const { status, stdout } = spawnSync('git', ['merge-base', 'HEAD', branch], { encoding: 'utf8' });
    if (status === 0) return stdout.trim();
  }
  return null;
}

function git(...args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync('git', args, { encoding: 'utf8', maxBuffer: 1 << 28 });
  if (status !== 0) throw new Error(`git ${args.join(' ')} failed: ${stderr.trim()}`);
  return stdout;
}

/** Prints why files run, and returns the plan. */
function planOfChanges(revision: string | null, texts: ReadonlyMap<string, string>): Plan {
  const changed = changedPaths(revision);
  const { chosen, leftOut } = selectChanged(changed, importGraph(texts, { withTypes: false }), texts);
  const byReason = Map.groupBy(chosen, ([, reason]) => reason);
  for (const [reason, files] of byReason) {
    const names = files.length > 12 ? `${files.length} files` : files.map(([file]) => file).join(' ');
    say(`${reason}: ${names}`);
  }
  if (chosen.size === 0) say(`${changed.length} changed files concern no test`);
  const byPart = Map.groupBy(leftOut, (file) => partOf(file)?.name ?? 'unit');
  const notes = [...byPart].map(([part, files]) => {
    const command = part === 'unit' ? './test' : `./test ${part}`;
    return `  ${command.padEnd(17)} ${files.length} more files concern a change: ${files.slice(0, 4).join(' ')}${files.length > 4 ? ' …' : ''}`;
  });
  return {
    files: [...chosen.keys()],
    hasChecks: true,
    areNamed: false,
    notes: [...(notes.length > 0 ? ['left out:', ...notes] : []), 'everything: ./test all'],
  };
}

/** Runs set-up.sh once for each kind of part. Returns the reason of those that cannot run. */
async function setUp(
  parts: readonly Part[],
): Promise<ReadonlyMap<string, { reason: string; isSkip: boolean }>> {
  const problems = new Map<string, { reason: string; isSkip: boolean }>();
  for (const name of new Set(parts.map((part) => part.setUp))) {
    const { status, stdout, stderr } = await collect('bash', ['tools/testing/set-up.sh', name]);
    process.stderr.write(stderr);
    if (status !== 0) {
      const reason = stderr.trim().split('\n').at(-1) ?? '';
      problems.set(name, { reason: reason || `set-up.sh ended with ${status}`, isSkip: status === 75 });
    }
    for (const [, key = '', value = ''] of stdout.matchAll(/^([A-Z_]+)=(.*)$/gm)) process.env[key] = value;
  }
  return problems;
}

function collect(
  program: string,
  args: readonly string[],
): Promise<{ readonly status: number | null; readonly stdout: string; readonly stderr: string }> {
  return new Promise((done, failed) => {
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let stdout = '';
    let stderr = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    child.on('error', failed);
    child.on('close', (status) => done({ status, stdout, stderr }));
  });
}

const TYPE_CHECK = ['node_modules/typescript/bin/tsc', '--noEmit', '--incremental', '--tsBuildInfoFile'];
// With the results of the run before, a check of types takes a fifth of the time.
const CHECKS: readonly (readonly [name: string, args: readonly string[]])[] = [
  ['types', [...TYPE_CHECK, '.cache/types/all.tsbuildinfo']],
  ['types of the page', [...TYPE_CHECK, '.cache/types/page.tsbuildinfo', '-p', 'src/ui/page']],
  ['lint', ['node_modules/@biomejs/biome/bin/biome', 'check', '--diagnostic-level=error', '.']],
];

/** Checks types and lint, one after another. */
async function runChecks(): Promise<readonly FileResult[]> {
  const results: FileResult[] = [];
  for (const [name, args] of CHECKS) {
    const begin = performance.now();
    const { status, stdout, stderr } = await collect(process.execPath, args);
    const seconds = (performance.now() - begin) / 1000;
    const message = `${stdout}${stderr}`.trim();
    if (status !== 0) say(message.slice(0, MAX_LOG_CHARACTERS));
    const failures = status === 0 ? [] : [{ names: [], message: message.slice(0, 4000), stack: [] }];
    results.push(checkResult(name, seconds, failures));
  }
  for (const result of results) say(describeResult(result));
  return results;
}

function checkResult(name: string, seconds: number, failures: FileResult['failures']): FileResult {
  const failed = failures.length;
  const counts = { passed: failed > 0 ? 0 : 1, failed, skipped: 0 };
  return {
    part: 'checks',
    file: name,
    ...counts,
    failures,
    seconds,
    testSeconds: seconds,
    processorSeconds: null,
  };
}

/** Prints a result; of a file that failed, with the end of what it printed. */
function showResult(result: FileResult, log: string, areNamed: boolean): void {
  if (result.failures.length > 0 && !areNamed) {
    const text = existsSync(log) ? readFileSync(log, 'utf8') : '';
    say(`--- ${result.file}\n${text.slice(-MAX_LOG_CHARACTERS).trimEnd()}\n---`);
  }
  say(describeResult(result));
}

async function runPlain(jobs: Job[], concurrency: number, isShown: boolean): Promise<readonly FileResult[]> {
  const results: FileResult[] = [];
  const onResult = (result: FileResult, log: string) => {
    results.push(result);
    showResult(result, log, isShown);
  };
  await runJobs(jobs, { concurrency, output, isShown, deadline, onResult }, running);
  return results;
}

/** Runs the files of a part with a wrapper, in which this program reads the jobs from a file and writes the results to another. */
async function runWrapped(
  part: Part,
  files: readonly string[],
  isShown: boolean,
): Promise<readonly FileResult[]> {
  const folder = join(output, `in-${part.name}`);
  const jobsFile = join(folder, 'jobs.json');
  const resultsFile = join(folder, 'results.jsonl');
  mkdirSync(folder, { recursive: true });
  rmSync(resultsFile, { force: true });
  const jobs = files.map((file): Job => ({ part: part.name, files: [file], launcher: part.launcher }));
  writeFileSync(jobsFile, JSON.stringify({ jobs, isShown }));
  const status = await new Promise<number | null>((done, failed) => {
    const child = spawn(
      join(root, part.wrapper ?? ''),
      [
        process.execPath,
        '--disable-warning=ExperimentalWarning',
        'tools/run-tests.ts',
        'run-jobs',
        jobsFile,
        resultsFile,
      ],
      {
        stdio: ['ignore', 'inherit', 'inherit'],
        detached: true,
        env: { ...process.env, FAIRLEAD_TEST_OUTPUT: output },
      },
    );
    if (child.pid !== undefined) wrappers.add(child.pid);
    child.on('error', failed);
    child.on('exit', (code) => {
      if (child.pid !== undefined) wrappers.delete(child.pid);
      done(code);
    });
  });
  const text = existsSync(resultsFile) ? readFileSync(resultsFile, 'utf8') : '';
  const results = text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as FileResult);
  const without = files.filter((file) => !results.some((result) => result.file === file));
  const message = `${part.wrapper} ended with status ${status} before this file`;
  return [
    ...results,
    ...without.map((file) => ({
      ...checkResult(file, 0, [{ names: [], message, stack: [] }]),
      part: part.name,
    })),
  ];
}

/** The inside of runWrapped. */
async function runJobsOfFile(jobsFile: string, resultsFile: string): Promise<void> {
  const { jobs, isShown } = JSON.parse(readFileSync(jobsFile, 'utf8')) as { jobs: Job[]; isShown: boolean };
  const onResult = (result: FileResult, log: string) => {
    showResult(result, log, isShown);
    appendFileSync(resultsFile, `${JSON.stringify(result)}\n`);
  };
  await runJobs(jobs, { concurrency: 1, output, isShown, deadline, onResult }, running);
}

/** More than one, so that a group with long files does not end alone. */
const GROUPS_OF_A_PROCESSOR = 3;

function unitJobs(
  files: readonly string[],
  texts: ReadonlyMap<string, string>,
  areNamed: boolean,
): readonly Job[] {
  const graph = importGraph(texts, { withTypes: false });
  const shared = areNamed
    ? []
    : files.filter((file) => WEIGHTS[file] === undefined && canShareProcess(graph, texts, file));
  const others = files.filter((file) => !shared.includes(file));
  const job = (some: readonly string[]): Job => ({ part: 'unit', files: some, launcher: 'plain' });
  return [...groupsOf(shared, GROUPS_OF_A_PROCESSOR * cores).map(job), ...others.map((file) => job([file]))];
}

/** Sorts the longest first, by an earlier run, else by the known weights. */
function longestFirst(jobs: readonly Job[]): readonly Job[] {
  const table = join(output, 'times.tsv');
  const times = existsSync(table) ? parseTimesTable(readFileSync(table, 'utf8')) : new Map<string, number>();
  const seconds = ({ files }: Job) =>
    files.reduce((sum, file) => sum + (times.get(file) ?? WEIGHTS[file] ?? SMALL), 0);
  return jobs.toSorted((a, b) => seconds(b) - seconds(a));
}

async function run(plan: Plan, texts: ReadonlyMap<string, string>): Promise<boolean> {
  const before = parseProcessorTimes(readFileSync('/proc/stat', 'utf8'));
  say(
    `${cores} processors, ${describeLoad({ total: 0, idle: 0, stolen: 0 }, before, loadavg())} since the machine started`,
  );
  const byPart = Map.groupBy(plan.files, (file) => partOf(file)?.name ?? 'unit');
  const first: FileResult[] = [];
  const isShown = plan.areNamed && plan.files.length === 1;
  const late = setUp([...byPart.keys()].filter(isLate).map(partNamed));
  const { problems, results } = await runUnit(plan, byPart, texts, isShown);
  first.push(...results);
  first.push(...(await runPackets(byPart, problems, late, isShown)));
  const second = plan.areNamed ? [] : await repeatFailed(first);
  const verdict = judge(first, second);
  writeFileSync(join(output, 'times.tsv'), timesTable(first));
  writeFileSync(join(output, 'results.jsonl'), first.map((one) => `${JSON.stringify(one)}\n`).join(''));
  for (const one of verdict.unsteady) noteUnsteady(one);
  if (first.length > 1) say(['', 'took longest:', ...describeSlowest(first)].join('\n'));
  say(`\ntable by file: ${relative(root, join(output, 'times.tsv'))}`);
  for (const [name, { reason }] of problems) say(`not run, ${name}: ${reason}`);
  for (const line of plan.notes) say(line);
  say(describeLoad(before, parseProcessorTimes(readFileSync('/proc/stat', 'utf8')), loadavg()));
  say(describeVerdict(verdict, output));
  return verdict.isPassed;
}

type Problems = ReadonlyMap<string, { readonly reason: string; readonly isSkip: boolean }>;
type ByPart = ReadonlyMap<PartName, readonly string[]>;

/** Runs unit tests, with types and lint beside them; meanwhile the other parts are set up. */
async function runUnit(plan: Plan, byPart: ByPart, texts: ReadonlyMap<string, string>, isShown: boolean) {
  const unit = byPart.get('unit') ?? [];
  const parts = [...byPart.keys()].filter((name) => !isLate(name)).map(partNamed);
  const problems = new Map(await setUp(parts.filter(({ name }) => name === 'unit')));
  const jobs = [...longestFirst(unitJobs(unit, texts, plan.areNamed))];
  const [checks, results, others] = await Promise.all([
    plan.hasChecks ? runChecks() : [],
    runPlain(jobs, ownConcurrency || cores, isShown),
    setUp(parts.filter(({ name }) => name !== 'unit')),
  ]);
  for (const [name, problem] of others) problems.set(name, problem);
  return { problems, results: [...checks, ...results] };
}

/** Returns the parts that can run; says why others are skipped, or fail. */
function runnable(byPart: ByPart, problems: Problems) {
  const failedSetUps: FileResult[] = [];
  const ready = [...byPart].filter(([name]) => {
    const problem = problems.get(partNamed(name).setUp);
    if (problem === undefined) return true;
    if (problem.isSkip) say(`skipped: ${name}: ${problem.reason}`);
    else
      failedSetUps.push(
        checkResult(`set-up of ${name}`, 0, [{ names: [], message: problem.reason, stack: [] }]),
      );
    return false;
  });
  return { ready, failedSetUps };
}

const isLate = (name: PartName) => partNamed(name).isLate === true;
const jobsOf = (parts: readonly (readonly [PartName, readonly string[]])[]): Job[] =>
  parts.flatMap(([name, files]) =>
    files.map((file): Job => ({ part: name, files: [file], launcher: partNamed(name).launcher })),
  );

/**
 * Runs packet tests, and beside them, one after another, the parts with a wrapper, which mostly have one processor, and those
 * of a late set-up; after these, one more packet test at a time, since packet tests wait for a third of their time.
 */
async function runPackets(
  byPart: ByPart,
  problems: Problems,
  late: Promise<Problems>,
  isShown: boolean,
): Promise<readonly FileResult[]> {
  const { ready, failedSetUps } = runnable(byPart, problems);
  const soon = ready.filter(([name]) => name !== 'unit' && !isLate(name));
  const plain = soon.filter(([name]) => partNamed(name).wrapper === undefined);
  const concurrency = plain.some(([name]) => partNamed(name).concurrency === 1) ? 1 : cores;
  const queue = [...longestFirst(jobsOf(plain))];
  const beside = async () => {
    const results: FileResult[] = [];
    for (const [name, files] of soon)
      if (partNamed(name).wrapper !== undefined)
        results.push(...(await runWrapped(partNamed(name), files, isShown)));
    const last = runnable(new Map(ready.filter(([name]) => isLate(name))), await late);
    results.push(...last.failedSetUps, ...(await runPlain(jobsOf(last.ready), 1, isShown)));
    if (results.length > 0 && concurrency > 1) results.push(...(await runPlain(queue, 1, isShown)));
    return results;
  };
  const lanes = await Promise.all([runPlain(queue, ownConcurrency || concurrency, isShown), beside()]);
  return [...failedSetUps, ...lanes.flat()];
}

async function repeatFailed(first: readonly FileResult[]): Promise<readonly FileResult[]> {
  const isRepeated = (name: string) => name !== 'checks' && partNamed(name as PartName).isRepeated;
  const results: FileResult[] = [];
  for (const { part: name, file } of filesToRepeat(first, isRepeated)) {
    const part = partNamed(name as PartName);
    say(`\nonce more by itself: ${file}`);
    const job: Job = { part: part.name, files: [file], launcher: part.launcher };
    results.push(
      ...(part.wrapper === undefined
        ? await runPlain([job], 1, false)
        : await runWrapped(part, [file], false)),
    );
  }
  return results;
}

/** Keeps the first failure of a file that passed when run again. */
function noteUnsteady({ file, failures }: FileResult): void {
  const [failure] = failures;
  const line = {
    time: new Date().toISOString(),
    file,
    names: failure?.names ?? [],
    text: failure === undefined ? '' : textOf(failure).join('\n'),
    log: logOf(output, [file]),
  };
  appendFileSync(join(output, 'unsteady.jsonl'), `${JSON.stringify(line)}\n`);
}

const loadavg = () => readFileSync('/proc/loadavg', 'utf8');

/** Ends all that runs: test files at once; wrappers clean up first. */
function endAtSignal(signal: NodeJS.Signals): void {
  process.on(signal, () => {
    for (const pid of running) killGroup(pid);
    for (const pid of wrappers) process.kill(-pid, 'SIGTERM');
    say(`ended by ${signal}`);
    setTimeout(() => process.exit(130), wrappers.size > 0 ? 15_000 : 0).unref();
    const wait = setInterval(() => {
      if (wrappers.size === 0) {
        clearInterval(wait);
        process.exit(130);
      }
    }, 100);
  });
}

async function main(words: readonly string[]): Promise<number> {
  const [word, jobsFile, resultsFile] = words;
  mkdirSync(output, { recursive: true });
  if (word === 'run-jobs' && jobsFile !== undefined && resultsFile !== undefined) {
    await runJobsOfFile(jobsFile, resultsFile);
    return 0;
  }
  const texts = sourceTexts();
  const files = [...texts.keys()];
  const command = parseCommand(words, files);
  switch (command.kind) {
    case 'help':
      say(USAGE);
      return 0;
    case 'usage':
      process.stderr.write(`${command.reason}\n${USAGE}\n`);
      return 2;
    case 'default': {
      const chosen = defaultFiles(files);
      const notes = ['left out, run by ./test all, or by part:', ...leftOutLines(chosen, files)];
      return status(await run({ files: chosen, hasChecks: true, areNamed: false, notes }, texts));
    }
    case 'all':
      if (command.isFull) process.env['FAIRLEAD_TEST_FULL'] = '1';
      return status(
        await run(
          {
            files: allFiles(files, command.isFull),
            hasChecks: true,
            areNamed: false,
            notes: noteOfFull(command.isFull),
          },
          texts,
        ),
      );
    case 'changed':
      return status(await run(planOfChanges(command.revision, texts), texts));
    case 'chaos': {
      process.env['CHAOS_MODES'] = command.modes.join(' ');
      const chosen = files.filter(partNamed('chaos').has);
      return status(await run({ files: chosen, hasChecks: false, areNamed: true, notes: [] }, texts));
    }
    case 'files': {
      const { files: chosen, areNamed } = command;
      return status(await run({ files: chosen, hasChecks: false, areNamed, notes: [] }, texts));
    }
  }
}

const noteOfFull = (isFull: boolean) =>
  isFull
    ? []
    : [
        `left out: ./test all --full runs all combinations, and ${Object.keys(FULL_FILES).join(' ')}`,
        'left out: ./test chaos, faults under load',
      ];

const status = (isPassed: boolean) => (isPassed ? 0 : 1);

endAtSignal('SIGINT');
endAtSignal('SIGTERM');
process.exitCode = await main(process.argv.slice(2));
