import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { DaemonSet, Node, Pod, StatefulSet } from '../kube/types.ts';
import { RESOURCES } from '../kube/types.ts';
import { reconcileDaemonSet } from './daemon-set.ts';
import { revisionHistory, templateOf } from './revision-history.ts';
import { reconcileStatefulSet } from './stateful-set.ts';
import { NOW, node, type PodFields, pod } from './testing/objects.ts';

const selector = { matchLabels: { app: 'web' } };
const template = (image = 'v1') => ({
  metadata: { labels: { app: 'web' } },
  spec: { containers: [{ name: 'main', image }] },
});
const names = (pods: readonly Pod[]) => pods.map(({ metadata }) => metadata?.name ?? metadata?.generateName);
const revision = (hash: string) => ({ app: 'web', 'controller-revision-hash': hash });

describe('a DaemonSet', () => {
  const set = (fields: Partial<NonNullable<DaemonSet['spec']>> = {}): DaemonSet => ({
    metadata: { name: 'owner', namespace: 'default', uid: 'owner', generation: 1 },
    spec: { selector, template: template(), ...fields },
  });
  const on = (name: string, at: string, hash = 'new', more: PodFields = {}) =>
    pod(name, { node: at, labels: revision(hash), ownerKind: 'DaemonSet', ...more });
  const surge = {
    updateStrategy: { type: 'RollingUpdate', rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } },
  };
  const rows: readonly [
    name: string,
    set: DaemonSet,
    nodes: Node[],
    pods: Pod[],
    create: string[],
    remove: string[],
  ][] = [
    ['a pod for each node', set(), [node('a'), node('b')], [], ['a', 'b'], []],
    ['no second pod on a node', set(), [node('a'), node('b')], [on('x', 'a')], ['b'], []],
    [
      'no pod on a tainted node',
      set(),
      [node('a', { taints: [{ key: 'k', effect: 'NoSchedule' }] })],
      [],
      [],
      [],
    ],
    [
      'an existing pod may stay on a node tainted NoSchedule',
      set(),
      [node('a', { taints: [{ key: 'k', effect: 'NoSchedule' }] })],
      [on('x', 'a')],
      [],
      [],
    ],
    [
      'no pod may stay on a node tainted NoExecute',
      set(),
      [node('a', { taints: [{ key: 'k', effect: 'NoExecute' }] })],
      [on('x', 'a')],
      [],
      ['x'],
    ],
    ['a cordoned node gets a pod', set(), [node('a', { unschedulable: true })], [], ['a'], []],
    [
      'nodeSelector',
      set({ template: { ...template(), spec: { ...template().spec, nodeSelector: { disk: 'ssd' } } } }),
      [node('a'), node('b', { labels: { disk: 'ssd' } })],
      [],
      ['b'],
      [],
    ],
    ['pods of a deleted node are deleted', set(), [node('a')], [on('x', 'a'), on('y', 'gone')], [], ['y']],
    [
      'a failed pod is deleted before its successor is created',
      set(),
      [node('a')],
      [on('x', 'a', 'new', { phase: 'Failed' })],
      [],
      ['x'],
    ],
    [
      'the successor waits until the previous pod is gone',
      set(),
      [node('a')],
      [on('x', 'a', 'new', { deleting: true })],
      [],
      [],
    ],
    [
      'an update replaces one pod at a time',
      set(),
      [node('a'), node('b')],
      [on('x', 'a', 'old'), on('y', 'b', 'old')],
      [],
      ['x'],
    ],
    [
      'an update waits for the new pod to be available',
      set(),
      [node('a'), node('b')],
      [on('x', 'a', 'new', { ready: false }), on('y', 'b', 'old')],
      [],
      [],
    ],
    [
      'unavailable old pods are replaced immediately',
      set(),
      [node('a'), node('b')],
      [on('x', 'a', 'old', { ready: false }), on('y', 'b', 'old', { ready: false })],
      [],
      ['x', 'y'],
    ],
    [
      'with maxSurge the new pod is created first',
      set(surge),
      [node('a'), node('b')],
      [on('x', 'a', 'old'), on('y', 'b', 'old')],
      ['a'],
      [],
    ],
    [
      'with maxSurge the old pod is deleted when the new one is available',
      set(surge),
      [node('a')],
      [on('x', 'a', 'old'), on('n', 'a')],
      [],
      ['x'],
    ],
    [
      'OnDelete replaces no pods',
      set({ updateStrategy: { type: 'OnDelete' } }),
      [node('a')],
      [on('x', 'a', 'old')],
      [],
      [],
    ],
    [
      'of two pods on a node one is deleted',
      set(),
      [node('a')],
      [on('x', 'a'), on('y', 'a', 'new', { ready: false })],
      [],
      ['y'],
    ],
  ];
  for (const [name, object, nodes, pods, create, remove] of rows) {
    test(name, () => {
      const plan = reconcileDaemonSet({ set: object, nodes, pods, hash: 'new', now: NOW });
      const pinned = plan.create.map(
        (made) =>
          made.spec?.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution
            ?.nodeSelectorTerms[0]?.matchFields?.[0]?.values?.[0],
      );
      assert.deepEqual(pinned, create);
      assert.deepEqual(names(plan.delete), remove);
    });
  }
  test('has the counters that kubectl rollout status reads', () => {
    const pods = [on('x', 'a'), on('y', 'b', 'old')];
    const { status } = reconcileDaemonSet({
      set: set(),
      nodes: [node('a'), node('b'), node('c')],
      pods,
      hash: 'new',
      now: NOW,
    });
    assert.deepEqual(status, {
      currentNumberScheduled: 2,
      numberMisscheduled: 0,
      desiredNumberScheduled: 3,
      numberReady: 2,
      observedGeneration: 1,
      updatedNumberScheduled: 1,
      numberAvailable: 2,
      numberUnavailable: 1,
    });
  });
});

describe('a StatefulSet', () => {
  const set = (replicas: number, fields: Partial<NonNullable<StatefulSet['spec']>> = {}): StatefulSet => ({
    metadata: { name: 'owner', namespace: 'default', uid: 'owner', generation: 1 },
    spec: { replicas, serviceName: 'peers', selector, template: template(), ...fields },
  });
  const at = (ordinal: number, hash = 'new', more: PodFields = {}) =>
    pod(`owner-${ordinal}`, { labels: revision(hash), ownerKind: 'StatefulSet', ...more });
  const parallel = { podManagementPolicy: 'Parallel' };
  const partition = (number: number) => ({
    updateStrategy: { type: 'RollingUpdate', rollingUpdate: { partition: number } },
  });
  const rows: readonly [name: string, set: StatefulSet, pods: Pod[], create: string[], remove: string[]][] = [
    ['starts with the first', set(3), [], ['owner-0'], []],
    ['continues when it is ready', set(3), [at(0)], ['owner-1'], []],
    ['waits while it is not', set(3), [at(0, 'new', { ready: false })], [], []],
    ['in parallel: all at once', set(3, parallel), [], ['owner-0', 'owner-1', 'owner-2'], []],
    ['a missing one in the middle is recreated first', set(3), [at(0), at(2)], ['owner-1'], []],
    ['a failed one is replaced', set(1), [at(0, 'new', { phase: 'Failed' })], [], ['owner-0']],
    ['a name is not reused before its pod is gone', set(1), [at(0, 'new', { deleting: true })], [], []],
    ['shrinks from the end, one at a time', set(1), [at(0), at(1), at(2)], [], ['owner-2']],
    ['in parallel: shrinks at once', set(1, parallel), [at(0), at(1), at(2)], [], ['owner-2', 'owner-1']],
    [
      'waits until the previous one is gone',
      set(1),
      [at(0), at(1), at(2, 'new', { deleting: true })],
      [],
      [],
    ],
    [
      'does not shrink past an unhealthy pod while an earlier one is unhealthy',
      set(0),
      [at(0, 'new', { ready: false }), at(1), at(2, 'new', { ready: false })],
      [],
      [],
    ],
    [
      'removes the only unhealthy one',
      set(0),
      [at(0), at(1), at(2, 'new', { ready: false })],
      [],
      ['owner-2'],
    ],
    ['updates from the end', set(2), [at(0, 'old'), at(1, 'old')], [], ['owner-1']],
    ['the next when that one is ready', set(2), [at(0, 'old'), at(1)], [], ['owner-0']],
    ['not before', set(2), [at(0, 'old'), at(1, 'new', { ready: false })], [], []],
    ['does not update pods below the partition', set(2, partition(1)), [at(0, 'old'), at(1)], [], []],
    ['OnDelete replaces no pods', set(1, { updateStrategy: { type: 'OnDelete' } }), [at(0, 'old')], [], []],
    ['starts at its first ordinal', set(1, { ordinals: { start: 5 } }), [], ['owner-5'], []],
  ];
  for (const [name, object, pods, create, remove] of rows) {
    test(name, () => {
      const plan = reconcileStatefulSet({
        set: object,
        pods,
        current: { name: 'old', template: template('v0') },
        update: { name: 'new', template: template() },
        now: NOW,
      });
      assert.deepEqual(names(plan.create), create);
      assert.deepEqual(names(plan.delete), remove);
    });
  }
  test('the name of a pod is its host name, below the Service', () => {
    const [made] = reconcileStatefulSet({
      set: set(1),
      pods: [],
      current: { name: 'new', template: template() },
      update: { name: 'new', template: template() },
      now: NOW,
    }).create;
    assert.equal(made?.spec?.hostname, 'owner-0');
    assert.equal(made?.spec?.subdomain, 'peers');
    assert.equal(made?.metadata?.labels?.['statefulset.kubernetes.io/pod-name'], 'owner-0');
  });
  test('a pod below the partition is recreated with its old revision', () => {
    const [made] = reconcileStatefulSet({
      set: set(2, partition(1)),
      pods: [at(1)],
      current: { name: 'old', template: template('v0') },
      update: { name: 'new', template: template() },
      now: NOW,
    }).create;
    assert.equal(made?.spec?.containers[0]?.image, 'v0');
  });
  test('when all pods are updated, the update revision becomes current', () => {
    const { status } = reconcileStatefulSet({
      set: set(1),
      pods: [at(0)],
      current: { name: 'old', template: template('v0') },
      update: { name: 'new', template: template() },
      now: NOW,
    });
    assert.equal(status?.currentRevision, 'new');
    assert.equal(status?.currentReplicas, 1);
  });
});

describe('revisions', () => {
  const owner = (image: string) => ({
    metadata: { name: 'db', uid: 'db' },
    spec: { template: template(image), revisionHistoryLimit: 1 },
  });
  const make = (image: string, number: number) => ({
    ...revisionHistory(owner(image), RESOURCES.statefulSets, [], new Set()).current,
    revision: number,
  });
  test('a new template creates a revision, from which it can be restored', () => {
    const { current, isNew } = revisionHistory(
      owner('v2'),
      RESOURCES.statefulSets,
      [make('v1', 1)],
      new Set(),
    );
    assert.ok(isNew);
    assert.equal(current.revision, 2);
    assert.deepEqual(templateOf(current), template('v2'));
  });
  test('the data of a revision has its fields in the order of their names', () => {
    const data = JSON.stringify(make('v1', 1).data);
    const { spec, metadata, ...others } = template('v1');
    const reordered = { ...others, spec, ...(metadata ? { metadata } : {}) };
    const { current } = revisionHistory(
      { metadata: { name: 'db', uid: 'db' }, spec: { template: reordered } },
      RESOURCES.statefulSets,
      [],
      new Set(),
    );
    assert.equal(JSON.stringify(current.data), data);
    assert.match(data, /^\{"spec":\{"template":\{"\$patch":"replace","metadata":/);
  });
  test('an old template gets the highest number', () => {
    const history = revisionHistory(
      owner('v1'),
      RESOURCES.statefulSets,
      [make('v1', 1), make('v2', 2)],
      new Set(),
    );
    assert.deepEqual([history.isNew, history.raiseTo], [false, 3]);
  });
  test('unused revisions beyond the limit are deleted', () => {
    const all = [make('v1', 1), make('v2', 2), make('v3', 3), make('v4', 4)];
    const used = new Set([all[0]?.metadata?.name ?? '']);
    const { outdated } = revisionHistory(owner('v4'), RESOURCES.statefulSets, all, used);
    assert.deepEqual(
      outdated.map((one) => one.revision),
      [2],
    );
  });
});
