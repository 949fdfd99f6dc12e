import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type FileResult,
  filesToRepeat,
  judge,
  type ProcessEnd,
  parseEvents,
  resultsOf,
  type TestEvent,
} from './results.ts';

const passed: TestEvent = { names: ['adds'], kind: 'test', outcome: 'passed', milliseconds: 5 };
const failed: TestEvent = {
  ...passed,
  names: ['sum', 'adds'],
  outcome: 'failed',
  message: '1 !== 2',
  stack: ['at a'],
};
const suite: TestEvent = {
  ...failed,
  names: ['sum'],
  kind: 'suite',
  message: '1 subtest failed',
  byTests: true,
};
const hook: TestEvent = { ...suite, message: 'no such command', byTests: false };
const ended = (reason: string | null): ProcessEnd => ({
  reason,
  seconds: 2,
  processorSeconds: 1,
  lastLines: 'end',
});

const ends: readonly {
  readonly name: string;
  readonly events: readonly TestEvent[];
  readonly reason: string | null;
  readonly failures: readonly string[];
}[] = [
  { name: 'passes', events: [passed], reason: null, failures: [] },
  {
    name: 'a test in a suite fails',
    events: [failed, suite],
    reason: 'exit status 1',
    failures: ['sum › adds: 1 !== 2'],
  },
  {
    name: 'a hook of a suite fails',
    events: [hook],
    reason: 'exit status 1',
    failures: ['sum: no such command'],
  },
  { name: 'a known failure', events: [{ ...failed, outcome: 'todo' }], reason: null, failures: [] },
  {
    name: 'passes, but its process fails',
    events: [passed],
    reason: 'exit status 7',
    failures: [': exit status 7\nend'],
  },
  {
    name: 'is killed after a failure',
    events: [failed],
    reason: 'killed after 3 s',
    failures: ['sum › adds: 1 !== 2', ': killed after 3 s\nend'],
  },
  { name: 'cannot be read', events: [], reason: 'exit status 1', failures: [': exit status 1\nend'] },
  { name: 'has no test', events: [], reason: null, failures: [': it has reported no test\nend'] },
];

for (const { name, events, reason, failures } of ends)
  test(`a test file ${name}`, () => {
    const [result] = resultsOf('unit', ['a.test.ts'], events, ended(reason));
    const found = result?.failures.map(({ names, message }) => `${names.join(' › ')}: ${message}`);
    assert.deepEqual(found, failures);
    assert.equal(result?.failed, failures.length);
  });

test('in a process of several files, each has its own results', () => {
  const inFile = (file: string, event: TestEvent): TestEvent => ({ ...event, names: [file, ...event.names] });
  const whole = (file: string): TestEvent => ({ ...passed, kind: 'suite', names: [file], milliseconds: 300 });
  const events = [
    inFile('a', passed),
    whole('a'),
    inFile('b', failed),
    { ...whole('b'), outcome: 'failed', byTests: true } as const,
  ];
  const results = resultsOf('unit', ['a', 'b', 'c'], events, ended('exit status 1'));
  assert.deepEqual(
    results.map(({ file, passed: count, seconds, failures }) => [
      file,
      count,
      seconds,
      failures.map(({ message }) => message),
    ]),
    [
      ['a', 1, 0.3, []],
      ['b', 0, 0.3, ['1 !== 2']],
      ['c', 0, 0, ['exit status 1\nend']],
    ],
  );
});

test('a list of results may end in the middle of a line', () => {
  assert.deepEqual(parseEvents(`${JSON.stringify(passed)}\n{"names":["x"`), [passed]);
});

const result = (part: string, file: string, isFailed: boolean): FileResult => ({
  ...{
    part,
    file,
    passed: 3,
    failed: isFailed ? 1 : 0,
    skipped: 0,
    seconds: 1,
    testSeconds: 1,
    processorSeconds: 1,
  },
  failures: isFailed ? [{ names: ['x'], message: 'late', stack: [] }] : [],
});
const files = (count: number, part = 'rooms') =>
  Array.from({ length: count }, (_, i) => result(part, `${i}`, true));

const runs: readonly {
  readonly name: string;
  readonly first: readonly FileResult[];
  readonly repeated: number;
  /** Whether what is repeated fails again. */
  readonly again?: boolean;
  readonly isPassed: boolean;
  readonly unsteady: number;
}[] = [
  { name: 'all pass', first: [result('unit', 'a', false)], repeated: 0, isPassed: true, unsteady: 0 },
  { name: 'a unit file fails', first: files(1, 'unit'), repeated: 0, isPassed: false, unsteady: 0 },
  { name: 'types fail', first: files(1, 'checks'), repeated: 0, isPassed: false, unsteady: 0 },
  { name: 'a packet file fails once', first: files(1), repeated: 1, isPassed: true, unsteady: 1 },
  {
    name: 'a packet file fails twice',
    first: files(1),
    repeated: 1,
    again: true,
    isPassed: false,
    unsteady: 0,
  },
  { name: 'three packet files fail once', first: files(3), repeated: 3, isPassed: true, unsteady: 3 },
  { name: 'four packet files fail', first: files(4), repeated: 0, isPassed: false, unsteady: 0 },
  {
    name: 'a unit and a packet file fail',
    first: [...files(1, 'unit'), ...files(1)],
    repeated: 0,
    isPassed: false,
    unsteady: 0,
  },
];

for (const { name, first, repeated, again = false, isPassed, unsteady } of runs)
  test(`a run in which ${name}`, () => {
    const repeat = filesToRepeat(first, (part) => part === 'rooms');
    assert.equal(repeat.length, repeated);
    const verdict = judge(
      first,
      repeat.map(({ part, file }) => result(part, file, again)),
    );
    assert.equal(verdict.isPassed, isPassed);
    assert.equal(verdict.unsteady.length, unsteady);
    assert.equal(verdict.failed.length > 0, !isPassed);
    assert.equal(verdict.failedTests > 0, !isPassed);
  });

test('four files that failed once fail a run', () => {
  const first = files(4);
  assert.equal(
    judge(
      first,
      first.map(({ part, file }) => result(part, file, false)),
    ).isPassed,
    false,
  );
});
