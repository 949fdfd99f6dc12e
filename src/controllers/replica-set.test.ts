import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod, ReplicaSet } from '../kube/types.ts';
import { byDeletionRank } from './pods.ts';
import { reconcileReplicaSet } from './replica-set.ts';
import { NOW, pod, secondsAgo } from './testing/objects.ts';

function set(replicas: number, fields: { minReadySeconds?: number; deleting?: boolean } = {}): ReplicaSet {
  return {
    metadata: {
      name: 'owner',
      uid: 'owner',
      namespace: 'default',
      generation: 1,
      ...(fields.deleting ? { deletionTimestamp: secondsAgo(1) } : {}),
    },
    spec: {
      replicas,
      selector: { matchLabels: { app: 'web' } },
      ...(fields.minReadySeconds ? { minReadySeconds: fields.minReadySeconds } : {}),
    },
  };
}

interface Row {
  readonly name: string;
  readonly set: ReplicaSet;
  readonly pods: readonly Pod[];
  readonly create?: number;
  readonly delete?: readonly string[];
  readonly adopt?: readonly string[];
  readonly release?: readonly string[];
  readonly ready?: number;
  readonly available?: number;
}

const ROWS: readonly Row[] = [
  { name: 'no pods: all are created', set: set(3), pods: [], create: 3 },
  { name: 'enough pods: no change', set: set(1), pods: [pod('a')], ready: 1, available: 1 },
  { name: 'a failed pod does not count', set: set(1), pods: [pod('a', { phase: 'Failed' })], create: 1 },
  {
    name: 'a recently failed pod is replaced after a delay',
    set: set(1),
    pods: [pod('a', { phase: 'Failed', age: 0 })],
  },
  {
    name: 'the delay grows with each round of failures',
    set: set(1),
    pods: ['a', 'b', 'c', 'd', 'e'].map((name) => pod(name, { phase: 'Failed', age: 10 })),
  },
  { name: 'a finished pod does not count', set: set(1), pods: [pod('a', { phase: 'Succeeded' })], create: 1 },
  {
    name: 'a pod that is being deleted does not count',
    set: set(1),
    pods: [pod('a', { deleting: true })],
    create: 1,
  },
  {
    name: 'a surplus pod is deleted: the unready one',
    set: set(1),
    pods: [pod('a'), pod('b', { ready: false })],
    delete: ['b'],
    ready: 1,
    available: 1,
  },
  {
    name: 'an orphan is adopted and counts',
    set: set(1),
    pods: [pod('a', { owner: '' })],
    adopt: ['a'],
    ready: 1,
    available: 1,
  },
  {
    name: "another controller's pod is left alone",
    set: set(1),
    pods: [pod('a', { owner: 'other' })],
    create: 1,
  },
  {
    name: 'a pod whose labels changed is released and replaced',
    set: set(1),
    pods: [pod('a', { labels: { app: 'debug' } })],
    release: ['a'],
    create: 1,
  },
  {
    name: 'a set that is being deleted changes nothing',
    set: set(3, { deleting: true }),
    pods: [pod('a', { owner: '' })],
  },
  {
    name: 'a pod is available only after minReadySeconds',
    set: set(2, { minReadySeconds: 30 }),
    pods: [pod('a', { readyFor: 60 }), pod('b', { readyFor: 10 })],
    ready: 2,
    available: 1,
  },
];

for (const row of ROWS) {
  test(row.name, () => {
    const plan = reconcileReplicaSet({ set: row.set, pods: row.pods, now: NOW });
    const names = (pods: readonly Pod[]) => pods.map(({ metadata }) => metadata?.name);
    assert.equal(plan.create, row.create ?? 0, 'create');
    assert.deepEqual(names(plan.delete), row.delete ?? [], 'delete');
    assert.deepEqual(names(plan.adopt), row.adopt ?? [], 'adopt');
    assert.deepEqual(names(plan.release), row.release ?? [], 'release');
    if (row.ready !== undefined) assert.equal(plan.status?.readyReplicas, row.ready);
    if (row.available !== undefined) assert.equal(plan.status?.availableReplicas, row.available);
  });
}

test('an unchanged status is not written again', () => {
  const first = reconcileReplicaSet({ set: set(1), pods: [pod('a')], now: NOW });
  assert.ok(first.status);
  const again = reconcileReplicaSet({ set: { ...set(1), status: first.status }, pods: [pod('a')], now: NOW });
  assert.equal(again.status, null);
});

test('checks again after minReadySeconds', () => {
  const plan = reconcileReplicaSet({
    set: set(1, { minReadySeconds: 30 }),
    pods: [pod('a', { readyFor: 10 })],
    now: NOW,
  });
  assert.equal(plan.checkAgainIn, 20_000);
});

test('a refused creation is shown as a condition until one succeeds', () => {
  const failing = reconcileReplicaSet({ set: set(1), pods: [], failure: 'no quota', now: NOW });
  assert.equal(failing.status?.conditions?.[0]?.message, 'no quota');
  const status = failing.status ?? undefined;
  const again = reconcileReplicaSet({
    set: { ...set(1), ...(status ? { status } : {}) },
    pods: [],
    failure: 'no quota for another pod',
    now: NOW,
  });
  assert.equal(again.status, null);
  const cured = reconcileReplicaSet({
    set: { ...set(1), ...(status ? { status } : {}) },
    pods: [pod('a')],
    now: NOW,
  });
  assert.equal(cured.status?.conditions, undefined);
});

const cost = (value: string) => ({ 'controller.kubernetes.io/pod-deletion-cost': value });
const RANKS: readonly [why: string, first: Pod, second: Pod][] = [
  ['unassigned before assigned', pod('x', { node: '', phase: 'Pending' }), pod('a', { phase: 'Pending' })],
  ['pending before running', pod('x', { phase: 'Pending' }), pod('a', { ready: false })],
  ['not ready before ready', pod('x', { ready: false }), pod('a')],
  ['a low cost before a high one', pod('x', { annotations: cost('-5') }), pod('a')],
  ['readiness before cost', pod('x', { ready: false, annotations: cost('100') }), pod('a')],
  ['ready for a shorter time first', pod('x', { readyFor: 5 }), pod('a', { readyFor: 50 })],
  ['more restarts first', pod('x', { restarts: 3 }), pod('a')],
  ['the newer first', pod('x', { age: 5 }), pod('a', { age: 50 })],
];
for (const [why, first, second] of RANKS) {
  test(`deletion takes ${why}`, () => {
    assert.deepEqual(byDeletionRank([second, first])[0]?.metadata?.name, first.metadata?.name);
    assert.deepEqual(byDeletionRank([first, second])[0]?.metadata?.name, first.metadata?.name);
  });
}

test('deletion prefers a pod whose node has more of its siblings', () => {
  const pods = [pod('a', { node: 'one' }), pod('b', { node: 'two' }), pod('c', { node: 'two' })];
  assert.equal(byDeletionRank(pods)[0]?.spec?.nodeName, 'two');
});
