import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Node, OwnerReference, Taint, Toleration } from '../kube/types.ts';
import { type OwnerState, verdictOf } from './garbage-collector.ts';
import { namespaceConditions } from './namespace.ts';
import { evictionTime, reconcileNodeHealth } from './node-lifecycle.ts';
import { reconcileNamespaceDefaults } from './service-account.ts';
import { NOW, node, pod, secondsAgo } from './testing/objects.ts';

const taint = (key: string, effect: string): Taint => ({ key: `node.kubernetes.io/${key}`, effect });
const keys = (taints: readonly Taint[] | null) =>
  taints?.map(({ key, effect }) => `${key.split('/')[1] ?? key}:${effect}`) ?? null;

const HEALTH: readonly [
  name: string,
  node: Node,
  expired: boolean,
  conditions: string | null,
  taints: string[] | null,
  unready: boolean,
][] = [
  ['a ready node', node('a'), false, null, null, false],
  [
    'a node that reports that it is not ready',
    node('a', { ready: 'False' }),
    false,
    null,
    ['not-ready:NoSchedule', 'not-ready:NoExecute'],
    true,
  ],
  [
    'a node that stopped reporting',
    node('a'),
    true,
    'Unknown',
    ['unreachable:NoSchedule', 'unreachable:NoExecute'],
    true,
  ],
  [
    'a node that never reported',
    node('a', { ready: null }),
    true,
    'Unknown',
    ['unreachable:NoSchedule', 'unreachable:NoExecute'],
    true,
  ],
  ['a new node that has not reported yet', node('a', { ready: null }), false, null, null, false],
  [
    'a node that reports again',
    node('a', {
      taints: [
        taint('unreachable', 'NoSchedule'),
        taint('unreachable', 'NoExecute'),
        { key: 'own', effect: 'NoSchedule' },
      ],
    }),
    false,
    null,
    ['own:NoSchedule'],
    false,
  ],
  ['a cordoned node', node('a', { unschedulable: true }), false, null, ['unschedulable:NoSchedule'], false],
];
for (const [name, object, expired, conditions, taints, unready] of HEALTH) {
  test(`health of ${name}`, () => {
    const plan = reconcileNodeHealth({ node: object, expired, now: NOW });
    assert.equal(plan.conditions?.find(({ type }) => type === 'Ready')?.status ?? null, conditions);
    assert.deepEqual(keys(plan.taints), taints);
    assert.equal(plan.unready, unready);
  });
}

const gone = { ...taint('unreachable', 'NoExecute'), timeAdded: secondsAgo(100) };
const EVICTIONS: readonly [
  name: string,
  tolerations: Toleration[],
  taints: Taint[],
  secondsFromNow: number | null,
][] = [
  ['no taint: never', [], [], null],
  ['NoSchedule: never', [], [taint('x', 'NoSchedule')], null],
  ['unreachable, no tolerations: after five minutes', [], [gone], 200],
  [
    'unreachable, tolerated for 30 s: overdue',
    [{ key: gone.key, operator: 'Exists', tolerationSeconds: 30 }],
    [gone],
    -70,
  ],
  ['tolerated forever: never', [{ operator: 'Exists' }], [gone], null],
  ['another taint, not tolerated: at once', [], [{ key: 'own', effect: 'NoExecute' }], 0],
];
for (const [name, tolerations, taints, expected] of EVICTIONS) {
  test(`eviction: ${name}`, () => {
    const at = evictionTime(pod('p', { spec: { tolerations } }), taints, NOW);
    assert.equal(at === null ? null : (at - NOW) / 1000, expected);
  });
}

const VERDICTS: readonly [name: string, owners: OwnerState[], dependents: boolean, expected: string][] = [
  ['without owners', [], false, 'keep'],
  ['its owner exists', ['solid'], false, 'keep'],
  ['its owner is gone', ['absent'], false, 'delete Background'],
  ['its owner is of a kind that is not followed', ['unknown'], false, 'keep'],
  ['one owner is gone, one exists', ['absent', 'solid'], false, 'unlink 1'],
  ['its owner waits for it', ['waiting'], false, 'delete Background'],
  ['its owner waits, and it has dependents itself', ['waiting'], true, 'delete Foreground'],
  ['one owner waits, one exists', ['waiting', 'solid'], true, 'unlink 1'],
];
for (const [name, states, dependents, expected] of VERDICTS) {
  test(`garbage: ${name}`, () => {
    const ownerReferences = states.map(
      (_, i): OwnerReference => ({ apiVersion: 'v1', kind: 'Pod', name: `o${i}`, uid: `${i}` }),
    );
    const verdict = verdictOf(
      { metadata: { name: 'x', ownerReferences } },
      (owner) => states[Number(owner.uid)] ?? 'unknown',
      dependents,
    );
    const detail =
      verdict.action === 'delete'
        ? ` ${verdict.policy}`
        : verdict.action === 'unlink'
          ? ` ${verdict.references.length}`
          : '';
    assert.equal(verdict.action + detail, expected);
  });
}

test('a namespace that is being deleted reports the remaining content', () => {
  const rest = {
    counts: new Map([['pods.', 2]]),
    finalizers: new Map([['example.com/f', 1]]),
    failure: null,
  };
  const conditions = namespaceConditions({ metadata: { name: 'n' } }, rest, NOW);
  assert.deepEqual(
    conditions.map(({ type, status }) => `${type}=${status}`),
    [
      'NamespaceDeletionContentFailure=False',
      'NamespaceContentRemaining=True',
      'NamespaceFinalizersRemaining=True',
    ],
  );
  assert.equal(conditions[1]?.message, 'Some resources are remaining: pods. has 2 resource instances');
});

test('a namespace gets its account and the authority; a changed authority is restored; a deleted namespace gets nothing', () => {
  const namespace = { metadata: { name: 'n' } };
  const view = { namespace, account: undefined, rootCa: undefined, caBundle: 'PEM' };
  const plan = reconcileNamespaceDefaults(view);
  assert.equal(plan.createAccount, true);
  assert.deepEqual(plan.rootCa?.data, { 'ca.crt': 'PEM' });
  const changed = reconcileNamespaceDefaults({
    ...view,
    account: { metadata: { name: 'default' } },
    rootCa: { metadata: { name: 'kube-root-ca.crt', resourceVersion: '7' }, data: { 'ca.crt': 'old' } },
  });
  assert.equal(changed.createAccount, false);
  assert.equal(changed.rootCa?.metadata?.resourceVersion, '7');
  const going = { metadata: { name: 'n', deletionTimestamp: secondsAgo(1) } };
  assert.deepEqual(reconcileNamespaceDefaults({ ...view, namespace: going }), {
    createAccount: false,
    rootCa: null,
  });
});
