import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resultsText } from './remote-preflight.ts';

test('nodes with the same findings are one paragraph', () => {
  const fine = [{ level: 'ok', what: 'all is well', fix: null }] as const;
  const wrong = [{ level: 'problem', what: 'it is off', fix: 'turn it on' }] as const;
  const text = resultsText([
    { node: 'n1', findings: fine, problem: null },
    { node: 'n2', findings: wrong, problem: null },
    { node: 'n3', findings: fine, problem: null },
    { node: 'n4', findings: [], problem: 'its pod does not start' },
  ]);
  assert.equal(
    text,
    `n1, n3
  ✓ all is well

n2
  ✗ it is off
      fix: turn it on

n4
  ✗ not checked: its pod does not start
`,
  );
});
