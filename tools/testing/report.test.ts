import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describeLoad, parseProcessorTimes } from './machine-load.ts';
import { describeFailures, describeVerdict, parseTimesTable, timesTable } from './report.ts';
import { type FileResult, judge } from './results.ts';
import { groupsOf, parseTimes } from './run-files.ts';

const good: FileResult = {
  ...{ part: 'rooms', file: 'src/a.netns.test.ts', passed: 4, failed: 0, skipped: 1 },
  ...{ failures: [], seconds: 12.34, testSeconds: 10, processorSeconds: 3.2 },
};
const bad: FileResult = {
  ...good,
  failed: 1,
  failures: [
    { names: ['a flow', 'arrives'], message: 'expected 10.244.1.2, got refused', stack: ['at send'] },
  ],
};

test('a failure names its file, suites and test, and has its text', () => {
  assert.equal(
    describeFailures([bad]),
    'failed: src/a.netns.test.ts › a flow › arrives\n    expected 10.244.1.2, got refused\n    at send',
  );
});

test('many long failures stay short', () => {
  const long = { names: ['x'], message: 'line\n'.repeat(500), stack: [] };
  const text = describeFailures(Array.from({ length: 100 }, () => ({ ...bad, failures: [long] })));
  assert.ok(text.split('\n').length < 300, `${text.split('\n').length} lines`);
  assert.match(text, /and 70 more failures$/);
});

const verdicts: readonly (readonly [
  name: string,
  first: readonly FileResult[],
  second: readonly FileResult[],
  lines: readonly RegExp[],
])[] = [
  ['that passed', [good], [], [/\n4 passed, 0 failed$/]],
  ['that failed', [bad], [bad], [/failed: src\/a\.netns\.test\.ts\n/, /\n4 passed, 1 failed$/]],
  [
    'that was unsteady',
    [bad],
    [good],
    [/unsteady, .*:\nfailed: src\/a.*\n {4}expected/, /\n4 passed, 0 failed$/],
  ],
];

for (const [name, first, second, lines] of verdicts)
  test(`the last lines of a run ${name}`, () => {
    const text = describeVerdict(judge(first, second), '/output');
    for (const line of lines) assert.match(text, line);
  });

test('a table by file gives the seconds of each file back', () => {
  const table = timesTable([good]);
  assert.match(table, /^rooms\tsrc\/a\.netns\.test\.ts\t12\.3\t3\.2\t2\.3\t4\t0\t1$/m);
  assert.deepEqual([...parseTimesTable(table)], [['src/a.netns.test.ts', 12.3]]);
});

test('the processor time of a file is that of the children of its shell', () => {
  assert.equal(parseTimes('0m0.01s 0m0.00s\n1m2.50s 0m1.50s\n'), 64);
  assert.equal(parseTimes(''), null);
});

test('the load between two readings of /proc/stat', () => {
  const before = parseProcessorTimes('cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 2 3\n');
  const after = parseProcessorTimes('cpu  150 0 110 830 5 0 0 5 0 0\ncpu0 1 2 3\n');
  assert.equal(
    describeLoad(before, after, '1.00 2.00 3.00 1/99 1234\n'),
    'load 1.00 2.00 3.00, processors idle 35.0 %, stolen 5.0 %',
  );
});

test('files are divided evenly', () => {
  assert.deepEqual(groupsOf(['a', 'b', 'c'], 2), [['a', 'c'], ['b']]);
  assert.deepEqual(groupsOf([], 2), []);
});
