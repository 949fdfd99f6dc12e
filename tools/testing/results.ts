/** What test files reported, and how a run is judged by it. */

/** A line of event-reporter.mjs. */
export interface TestEvent {
  readonly names: readonly string[];
  readonly kind: 'suite' | 'test';
  readonly outcome: 'passed' | 'failed' | 'skipped' | 'todo';
  readonly milliseconds: number;
  readonly message?: string;
  readonly stack?: readonly string[];
  readonly byTests?: boolean;
}

export interface Failure {
  readonly names: readonly string[];
  readonly message: string;
  readonly stack: readonly string[];
}

/** How a file ended. */
export interface FileResult {
  readonly part: string;
  readonly file: string;
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  readonly failures: readonly Failure[];
  /** From the start of its process to its end. */
  readonly seconds: number;
  /** Of these, in tests and suites: the rest is the start of the process, imports and what happens after the last test. */
  readonly testSeconds: number;
  /** Of all its processes; null if it shared a process, or was killed. */
  readonly processorSeconds: number | null;
}

/** How a process of tests ended: `reason` is null if it exited with status 0. */
export interface ProcessEnd {
  readonly reason: string | null;
  readonly seconds: number;
  readonly processorSeconds: number | null;
  /** The end of what it printed, which explains a process that ended without results. */
  readonly lastLines: string;
}

/** Reads lines of JSON; a line that a killed process did not complete is left out. */
export function parseEvents(text: string): readonly TestEvent[] {
  return text.split('\n').flatMap((line) => {
    if (line === '') return [];
    try {
      return [JSON.parse(line) as TestEvent];
    } catch {
      return [];
    }
  });
}

/** Returns the results of the files of one process. In a group, the first name of each event is its file. */
export function resultsOf(
  part: string,
  files: readonly string[],
  events: readonly TestEvent[],
  end: ProcessEnd,
): readonly FileResult[] {
  const [only = ''] = files;
  if (files.length === 1) return [resultOf(part, only, events, end)];
  return files.map((file) => {
    const own = events.filter(({ names }) => names[0] === file);
    const whole = own.find(({ names }) => names.length === 1);
    const inside = own.map((event) => ({ ...event, names: event.names.slice(1) }));
    const reason = whole === undefined ? (end.reason ?? 'its process ended before it') : null;
    return resultOf(part, file, inside, {
      ...end,
      reason,
      seconds: (whole?.milliseconds ?? 0) / 1000,
      processorSeconds: null,
    });
  });
}

function resultOf(part: string, file: string, events: readonly TestEvent[], end: ProcessEnd): FileResult {
  const failures = events
    .filter(({ outcome, byTests }) => outcome === 'failed' && byTests !== true)
    .map(({ names, message = '', stack = [] }) => ({ names, message, stack }));
  const hasFailed = events.some(({ outcome }) => outcome === 'failed');
  const reason = end.reason ?? (events.length === 0 ? 'it has reported no test' : null);
  // A process fails because of its tests, or by itself.
  const isOwn = reason !== null && !(hasFailed && end.reason?.startsWith('exit status'));
  if (isOwn) failures.push({ names: [], message: `${reason}\n${end.lastLines}`.trim(), stack: [] });
  const tests = events.filter(({ kind }) => kind === 'test');
  const count = (outcome: TestEvent['outcome']) => tests.filter((test) => test.outcome === outcome).length;
  const outer = events.filter(({ names }) => names.length === 1);
  return {
    part,
    file,
    passed: count('passed'),
    failed: failures.length,
    skipped: count('skipped') + count('todo'),
    failures,
    seconds: end.seconds,
    testSeconds: outer.reduce((sum, { milliseconds }) => sum + milliseconds, 0) / 1000,
    processorSeconds: end.processorSeconds,
  };
}

/** More unsteady files than this fail a run, which then looks like a real fault. */
export const MAX_UNSTEADY = 3;

/**
 * Returns the files that are worth a second run by themselves. With more than MAX_UNSTEADY, or a failure that is not
 * repeated, the run fails whatever a second run says.
 */
export function filesToRepeat(
  results: readonly FileResult[],
  isRepeated: (part: string) => boolean,
): readonly FileResult[] {
  const failed = results.filter(({ failures }) => failures.length > 0);
  const repeated = failed.filter(({ part }) => isRepeated(part));
  return repeated.length > MAX_UNSTEADY || repeated.length < failed.length ? [] : repeated;
}

export interface Verdict {
  readonly isPassed: boolean;
  /** First runs of files that failed, also when run again. */
  readonly failed: readonly FileResult[];
  /** First runs of files that failed once and passed when run again. */
  readonly unsteady: readonly FileResult[];
  readonly passedTests: number;
  readonly failedTests: number;
  readonly skippedTests: number;
}

/** Judges first runs, and second runs of some of their files. A file that passed at last counts by its second run. */
export function judge(first: readonly FileResult[], second: readonly FileResult[]): Verdict {
  const passedAgain = new Set(second.filter(({ failures }) => failures.length === 0).map(keyOf));
  const bad = first.filter(({ failures }) => failures.length > 0);
  const unsteady = bad.filter((result) => passedAgain.has(keyOf(result)));
  const failed = bad.filter((result) => !passedAgain.has(keyOf(result)));
  const last = first.map(
    (result) =>
      second.find((other) => passedAgain.has(keyOf(other)) && keyOf(other) === keyOf(result)) ?? result,
  );
  const sum = (count: (result: FileResult) => number) => last.reduce((total, one) => total + count(one), 0);
  return {
    isPassed: failed.length === 0 && unsteady.length <= MAX_UNSTEADY,
    failed,
    unsteady,
    passedTests: sum(({ passed }) => passed),
    failedTests: sum(({ failed: count }) => count),
    skippedTests: sum(({ skipped }) => skipped),
  };
}

const keyOf = ({ part, file }: FileResult) => `${part} ${file}`;
