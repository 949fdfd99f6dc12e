import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readTour, shapeOf, shapeProblem, withOutputs } from './testing/readme-tour.ts';

const MARKDOWN = `
\`\`\`sh
./fairlead up
\`\`\`

then

\`\`\`text
ready in 1.30 s
\`\`\`

\`\`\`console
$ one
a 10.96.1.2

b
$ two
first
…
\`\`\`
`;

test('commands, their outputs and omissions are read', () => {
  assert.deepEqual(readTour(MARKDOWN), [
    { command: './fairlead up', output: ['ready in 1.30 s'], isCut: false },
    { command: 'one', output: ['a 10.96.1.2', '', 'b'], isCut: false },
    { command: 'two', output: ['first'], isCut: true },
  ]);
});

test('a recording replaces outputs, keeps the number of lines before an omission, and other commands', () => {
  const outputs = new Map([
    ['./fairlead up', ['ready in 2 s']],
    ['two', ['1', '2']],
  ]);
  assert.equal(
    withOutputs(MARKDOWN, outputs),
    MARKDOWN.replace('ready in 1.30 s', 'ready in 2 s').replace('first', '1'),
  );
});

const SAME: readonly (readonly [a: string, b: string])[] = [
  [
    '10.244.0.2:8080  33 %  default/hello-tgldbct2xx-qslsl',
    '10.244.12.31:8080  34 %  default/hello-tvkjblld8k-46f5k',
  ],
  ['✓ pods ready   1287 ms  4 pods', '✓ pods ready  87 ms  4 pods'],
  ['node-1 172.30.0.11', 'node-2 172.30.0.12'],
  ['iptables  18  2058  8 to 10', 'iptables  18  2064  8 to 10'],
];
for (const [a, b] of SAME)
  test(`the shape of "${a}" is that of "${b}"`, () => assert.equal(shapeOf(a), shapeOf(b)));

const DIFFERENT: readonly (readonly [a: string, b: string])[] = [
  ['DELIVERED: pod default/client', 'REJECTED: pod default/client'],
  ['10.244.0.2:8080', '10.244.0.2:80'],
  ['10.96.135.164', '10.96.0.1'],
  ['3 endpoints behind', '2 endpoints behind'],
  ['all 894 flows', 'all 893 flows'],
  ['iptables  18  2058', 'iptables  19  2058'],
];
for (const [a, b] of DIFFERENT)
  test(`the shape of "${a}" is not that of "${b}"`, () => assert.notEqual(shapeOf(a), shapeOf(b)));

test('a line that is missing, added or different is a problem; what follows an omission is not', () => {
  const step = { command: 'one', output: ['a', 'b'], isCut: false };
  assert.equal(shapeProblem(step, ['a', '', 'b']), null);
  for (const lines of [['a'], ['a', 'b', 'c'], ['a', 'c']])
    assert.match(shapeProblem(step, lines) ?? '', /README shows/);
  assert.equal(shapeProblem({ ...step, isCut: true }, ['a', 'b', 'c']), null);
  assert.match(shapeProblem({ ...step, isCut: true }, ['a']) ?? '', /line 2/);
});
