import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type DisruptionBudgetSpec, disruptionBudgetState } from './disruption-budget.ts';
import type { Pod } from './types.ts';

const pod = (name: string, ready: boolean, more: object = {}): Pod => ({
  metadata: { name, uid: name, ...more },
  status: { phase: 'Running', conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }] },
});
const THREE = [pod('a', true), pod('b', true), pod('c', true)];
const ROWS: readonly [
  what: string,
  spec: DisruptionBudgetSpec,
  pods: readonly Pod[],
  replicas: number | null,
  expected: readonly [expected: number, desired: number, healthy: number, allowed: number],
][] = [
  ['a minimum number', { minAvailable: 2 }, THREE, 3, [3, 2, 3, 1]],
  [
    'fewer ready pods than the minimum',
    { minAvailable: 2 },
    [pod('a', true), pod('b', false)],
    3,
    [2, 2, 1, 0],
  ],
  ['a percentage of the replica count, rounded up', { minAvailable: '50%' }, THREE, 5, [5, 3, 3, 0]],
  ['a maximum of missing pods, relative to the replica count', { maxUnavailable: 1 }, THREE, 3, [3, 2, 3, 1]],
  ['a percentage of missing pods', { maxUnavailable: '34%' }, THREE, 3, [3, 1, 3, 2]],
  [
    'a pod that is being deleted does not count',
    { minAvailable: 2 },
    [...THREE.slice(1), pod('a', true, { deletionTimestamp: '2026-01-01T00:00:00Z' })],
    3,
    [3, 2, 2, 0],
  ],
  ['pods without a controller', { maxUnavailable: 1 }, THREE, null, [3, 2, 3, 1]],
  ['no pods', { minAvailable: 0 }, [], 3, [0, 0, 0, 0]],
];
for (const [what, spec, pods, replicas, expected] of ROWS) {
  test(`a disruption budget: ${what}`, () => {
    const state = disruptionBudgetState(spec, pods, () =>
      replicas === null ? null : { uid: 'web', replicas },
    );
    assert.deepEqual(
      [state.expectedPods, state.desiredHealthy, state.currentHealthy, state.disruptionsAllowed],
      expected,
    );
  });
}
