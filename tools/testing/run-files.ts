import { spawn } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readFileSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type Launcher, PARTS } from './parts.ts';
import { type FileResult, type ProcessEnd, parseEvents, resultsOf } from './results.ts';

/** Files that one process runs, one after another. */
export interface Job {
  readonly part: string;
  readonly files: readonly string[];
  readonly launcher: Launcher;
}

export interface RunOptions {
  /** Jobs at a time. */
  readonly concurrency: number;
  /** The folder of logs and results. */
  readonly output: string;
  /** Whether processes write to this process's output instead of logs. */
  readonly isShown: boolean;
  /** Milliseconds since the epoch after which nothing more starts, and what runs is killed. */
  readonly deadline: number;
  readonly onResult: (result: FileResult, log: string) => void;
}

/**
 * A test that never ends, such as one that waits for a lost packet, fails after its limit; a process that never ends, such as
 * one that leaves a server open, is killed. Both have time for the slowest machine.
 */
const LIMITS_MS = { test: 5 * 60_000, job: 15 * 60_000 };
const LONG_LIMITS_MS = { test: 60 * 60_000, job: 60 * 60_000 };
const MAX_LAST_LINES = 30;
const MAX_LAST_CHARACTERS = 4000;

const root = resolve(import.meta.dirname, '../..');
// The shell reports the processor time of its children, which are all that the file started.
const TIMED = '"$@"; status=$?; times >"$FAIRLEAD_TEST_TIMES"; exit $status';

/** Process groups that run; they are killed when this process ends. */
export type Running = Set<number>;

/** Takes jobs out of `waiting`, which several calls may share, until there is none. */
export async function runJobs(waiting: Job[], options: RunOptions, running: Running): Promise<void> {
  mkdirSync(join(options.output, 'logs'), { recursive: true });
  const worker = async () => {
    for (let job = waiting.shift(); job !== undefined; job = waiting.shift()) {
      const log = logOf(options.output, job.files);
      for (const result of await runJob(job, log, options, running)) options.onResult(result, log);
    }
  };
  await Promise.all(Array.from({ length: Math.min(options.concurrency, waiting.length) }, worker));
}

export function logOf(output: string, files: readonly string[]): string {
  const [first = ''] = files;
  const name = first.replaceAll('/', '__').replace(/\.ts$/, '');
  return join(output, 'logs', files.length === 1 ? `${name}.log` : `group-of-${name}.log`);
}

async function runJob(
  job: Job,
  log: string,
  options: RunOptions,
  running: Running,
): Promise<readonly FileResult[]> {
  const events = `${log}.events`;
  const times = `${log}.times`;
  for (const file of [events, times]) rmSync(file, { force: true });
  const left = options.deadline - Date.now();
  if (left <= 0) {
    const end = { seconds: 0, processorSeconds: null, lastLines: '' };
    return resultsOf(job.part, job.files, [], { ...end, reason: 'not started: the run has taken too long' });
  }
  const begin = performance.now();
  const reason = await runProcess(
    job,
    log,
    { events, times },
    Math.min(left, limitsOf(job).job),
    options,
    running,
  );
  const end: ProcessEnd = {
    reason,
    seconds: (performance.now() - begin) / 1000,
    processorSeconds: parseTimes(readIfThere(times)),
    lastLines: options.isShown ? '' : lastLines(readIfThere(log)),
  };
  const results = resultsOf(job.part, job.files, parseEvents(readIfThere(events)), end);
  for (const file of [events, times]) rmSync(file, { force: true });
  return results;
}

/** Returns null if the process exits with status 0, else how it ended. */
async function runProcess(
  job: Job,
  log: string,
  files: { readonly events: string; readonly times: string },
  milliseconds: number,
  { isShown }: RunOptions,
  running: Running,
): Promise<string | null> {
  const output = openSync(log, 'w');
  const child = spawn('sh', ['-c', TIMED, 'test', ...commandOf(job, files.events)], {
    cwd: root,
    env: { ...process.env, FAIRLEAD_TEST_NODE: process.execPath, FAIRLEAD_TEST_TIMES: files.times },
    stdio: ['ignore', isShown ? 'inherit' : output, isShown ? 'inherit' : output],
    // A process group of its own, so that all that a file started can be ended.
    detached: true,
  });
  closeSync(output);
  const { pid } = child;
  if (pid !== undefined) running.add(pid);
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    if (pid !== undefined) killGroup(pid);
  }, milliseconds);
  try {
    return await new Promise<string | null>((done) => {
      child.on('error', ({ message }) => done(`failed to start: ${message}`));
      child.on('exit', (status, signal) => {
        if (isLate) done(`killed after ${Math.round(milliseconds / 1000)} s`);
        else if (signal !== null) done(`ended by ${signal}`);
        else done(status === 0 ? null : `exit status ${status}`);
      });
    });
  } finally {
    clearTimeout(timer);
    if (pid !== undefined) running.delete(pid);
  }
}

export function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch (error) {
    // It has ended meanwhile.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

function commandOf(job: Job, events: string): readonly string[] {
  const { launcher, files } = job;
  const program = launcher === 'private' ? join(root, 'tools/private-node') : process.execPath;
  return [
    program,
    '--disable-warning=ExperimentalWarning',
    `--test-timeout=${limitsOf(job).test}`,
    '--test-reporter=spec',
    '--test-reporter-destination=stdout',
    `--test-reporter=${join(root, 'tools/testing/event-reporter.mjs')}`,
    `--test-reporter-destination=${events}`,
    ...(files.length === 1 ? files : [join(root, 'tools/testing/group.mjs'), ...files]),
  ];
}

const limitsOf = ({ part }: Job) =>
  PARTS.find(({ name }) => name === part)?.isLong ? LONG_LIMITS_MS : LIMITS_MS;

/** Reads the output of the shell's `times`: its own user and system time, then its children's; null if there is none. */
export function parseTimes(text: string): number | null {
  const [, , ...children] = [...text.matchAll(/(\d+)m([\d.]+)s/g)].map(
    ([, minutes, seconds]) => Number(minutes) * 60 + Number(seconds),
  );
  return children.length === 0 ? null : children.reduce((sum, one) => sum + one, 0);
}

function lastLines(text: string): string {
  return text.trimEnd().split('\n').slice(-MAX_LAST_LINES).join('\n').slice(-MAX_LAST_CHARACTERS);
}

function readIfThere(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw error;
  }
}

/** Divides files among at most `count` jobs of about equal numbers. */
export function groupsOf(files: readonly string[], count: number): readonly (readonly string[])[] {
  const groups = Array.from({ length: Math.min(count, files.length) }, (): string[] => []);
  for (const [i, file] of files.entries()) groups[i % groups.length]?.push(file);
  return groups;
}
