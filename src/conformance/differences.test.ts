import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Mode } from '../dataplane/dataplane.ts';
import { expectationIn } from './differences.ts';
import type { Expectation } from './expectation.ts';

const seeing = (source: 'client' | 'node'): Expectation => ({
  action: 'forward',
  servers: ['web-1'],
  source,
});

/** Rows: a mode and an expected outcome; the outcome in the mode, whom a pod that reaches itself may see, and whether it differs. */
const ROWS: readonly (readonly [Mode, Expectation, Expectation, readonly string[], boolean])[] = [
  ['nftables', seeing('client'), seeing('client'), ['node'], false],
  ['nftables', seeing('node'), seeing('node'), ['node'], false],
  ['iptables', seeing('client'), seeing('client'), ['node'], false],
  ['ipvs', seeing('client'), seeing('client'), ['node'], false],
  ['ebpf', seeing('client'), seeing('client'), ['node', 'client'], false],
  ['ebpf', seeing('node'), seeing('node'), ['node', 'client'], false],
  ['userspace', seeing('client'), seeing('node'), ['node'], true],
  ['userspace', seeing('node'), seeing('node'), ['node'], false],
  ['userspace', { action: 'reject' }, { action: 'reject' }, ['node'], false],
];
for (const [mode, usual, expected, self, differs] of ROWS) {
  const what = usual.action === 'forward' ? `a server that sees the ${usual.source}` : usual.action;
  test(`${mode}: ${what}`, () => {
    const found = expectationIn(mode, { expected: usual });
    assert.deepEqual([found.expected, found.self, found.difference !== null], [expected, self, differs]);
  });
}
