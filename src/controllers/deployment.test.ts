import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Deployment, ReplicaSet } from '../kube/types.ts';
import { reconcileDeployment } from './deployment.ts';
import { rollingLimits } from './deployment-rollout.ts';
import { deploymentStatus } from './deployment-status.ts';
import { deployment, NOW, replicaSet, secondsAgo } from './testing/objects.ts';

interface Row {
  readonly name: string;
  readonly deployment: Deployment;
  readonly sets: readonly ReplicaSet[];
  readonly oldPods?: Record<string, number>;
  /** Size of the ReplicaSet to create. */
  readonly create?: number;
  /** New sizes by name. */
  readonly sizes?: Record<string, number>;
  readonly delete?: readonly string[];
  readonly revision?: string;
}

const rolling = (maxSurge: number | string, maxUnavailable: number | string) => ({
  strategy: { type: 'RollingUpdate', rollingUpdate: { maxSurge, maxUnavailable } },
});
const sized = (replicas: number, max = replicas) => ({
  annotations: {
    'deployment.kubernetes.io/desired-replicas': String(replicas),
    'deployment.kubernetes.io/max-replicas': String(max),
  },
});

const ROWS: readonly Row[] = [
  {
    name: 'no ReplicaSet: one of full size is created',
    deployment: deployment(3, 'v1'),
    sets: [],
    create: 3,
    revision: '1',
  },
  {
    name: 'a new template: the new one gets what maxSurge allows',
    deployment: deployment(4, 'v2', rolling(1, 0)),
    sets: [replicaSet('old', 'v1', 4)],
    create: 1,
    revision: '2',
  },
  {
    name: 'an old pod is removed when a new one is available',
    deployment: deployment(4, 'v2', rolling(1, 0)),
    sets: [replicaSet('old', 'v1', 4), replicaSet('new', 'v2', 1, { revision: 2 })],
    sizes: { 'web-old': 3 },
    revision: '2',
  },
  {
    name: 'no old pod is removed while the new one is not available',
    deployment: deployment(4, 'v2', rolling(1, 0)),
    sets: [replicaSet('old', 'v1', 4), replicaSet('new', 'v2', 1, { revision: 2, available: 0 })],
    sizes: {},
    revision: '2',
  },
  {
    name: 'the new one grows to the limit',
    deployment: deployment(4, 'v2', rolling(1, 0)),
    sets: [replicaSet('old', 'v1', 3), replicaSet('new', 'v2', 1, { revision: 2 })],
    sizes: { 'web-new': 2 },
    revision: '2',
  },
  {
    name: 'maxUnavailable allows the removal of old pods first',
    deployment: deployment(4, 'v2', rolling(0, 2)),
    sets: [replicaSet('old', 'v1', 4), replicaSet('new', 'v2', 0, { revision: 2 })],
    sizes: { 'web-old': 2 },
    revision: '2',
  },
  {
    name: 'unavailable old pods are removed before available ones',
    deployment: deployment(2, 'v3', rolling(1, 0)),
    sets: [
      replicaSet('good', 'v1', 2),
      replicaSet('bad', 'v2', 1, { revision: 2, available: 0 }),
      replicaSet('new', 'v3', 0, { revision: 3 }),
    ],
    sizes: { 'web-bad': 0 },
    revision: '3',
  },
  {
    name: 'Recreate: the old one shrinks to zero first',
    deployment: deployment(3, 'v2', { strategy: { type: 'Recreate' } }),
    sets: [replicaSet('old', 'v1', 3)],
    sizes: { 'web-old': 0 },
  },
  {
    name: 'Recreate: waits for the last old pod',
    deployment: deployment(3, 'v2', { strategy: { type: 'Recreate' } }),
    sets: [replicaSet('old', 'v1', 0, { pods: 0 })],
    oldPods: { old: 1 },
  },
  {
    name: 'Recreate: then the new one is created at full size',
    deployment: deployment(3, 'v2', { strategy: { type: 'Recreate' } }),
    sets: [replicaSet('old', 'v1', 0, { pods: 0 })],
    create: 3,
    revision: '2',
  },
  {
    name: 'paused: a new template creates no ReplicaSet',
    deployment: deployment(3, 'v2', { paused: true }),
    sets: [replicaSet('old', 'v1', 3)],
  },
  {
    name: 'paused: scaling works',
    deployment: deployment(5, 'v2', { paused: true }),
    sets: [replicaSet('old', 'v1', 3, sized(3))],
    sizes: { 'web-old': 5 },
  },
  {
    name: 'scaled in the middle of a rollout: each gets its share',
    deployment: deployment(10, 'v2', rolling(0, 1)),
    sets: [
      replicaSet('old', 'v1', 3, sized(5, 5)),
      replicaSet('new', 'v2', 2, { revision: 2, ...sized(5, 5) }),
    ],
    sizes: { 'web-old': 6, 'web-new': 4 },
    revision: '2',
  },
  {
    name: 'a revision of 64 bits keeps its digits',
    deployment: deployment(1, 'v2'),
    sets: [
      replicaSet('old', 'v1', 0, {
        pods: 0,
        annotations: { 'deployment.kubernetes.io/revision': '3546343826724305832' },
      }),
      replicaSet('new', 'v2', 1, {
        annotations: { 'deployment.kubernetes.io/revision': '3546343826724305833' },
      }),
    ],
    revision: '3546343826724305833',
  },
  {
    name: 'an old template again (undo): its ReplicaSet becomes the newest revision',
    deployment: deployment(3, 'v1', rolling(1, 0)),
    sets: [replicaSet('one', 'v1', 0, { pods: 0 }), replicaSet('two', 'v2', 3, { revision: 2 })],
    sizes: { 'web-one': 1 },
    revision: '3',
  },
  {
    name: 'history beyond its limit is deleted, oldest first, only empty ReplicaSets',
    deployment: deployment(1, 'v4', { revisionHistoryLimit: 1 }),
    sets: [
      replicaSet('v1', 'v1', 0, { pods: 0 }),
      replicaSet('v2', 'v2', 0, { revision: 2, pods: 0 }),
      replicaSet('v3', 'v3', 0, { revision: 3, pods: 0 }),
      replicaSet('v4', 'v4', 1, { revision: 4 }),
    ],
    delete: ['web-v1', 'web-v2'],
    revision: '4',
  },
  {
    name: "another Deployment's ReplicaSet is none of its business",
    deployment: deployment(1, 'v1'),
    sets: [replicaSet('other', 'v1', 5, { owner: 'somebody' })],
    create: 1,
    revision: '1',
  },
  {
    name: 'an orphan is adopted before anything else happens',
    deployment: deployment(3, 'v2'),
    sets: [replicaSet('old', 'v1', 3, { owner: '' })],
  },
];

for (const row of ROWS) {
  test(row.name, () => {
    const plan = reconcileDeployment({
      deployment: row.deployment,
      sets: row.sets,
      runningPods: new Map(Object.entries(row.oldPods ?? {})),
    });
    assert.equal(plan.create?.spec?.replicas, row.create, 'create');
    const sizes = plan.patch.filter(({ from, to }) => from !== to);
    assert.deepEqual(
      Object.fromEntries(sizes.map(({ set, to }) => [set.metadata?.name, to])),
      row.sizes ?? {},
      'sizes',
    );
    assert.deepEqual(
      plan.delete.map(({ metadata }) => metadata?.name),
      row.delete ?? [],
      'delete',
    );
    assert.equal(plan.revision, row.revision ?? null, 'revision');
  });
}

test('the name of a ReplicaSet depends only on the template', () => {
  const name = (object: Deployment) =>
    reconcileDeployment({ deployment: object, sets: [], runningPods: new Map() }).create?.metadata?.name;
  assert.equal(name(deployment(3, 'v1')), name(deployment(5, 'v1')));
  assert.notEqual(name(deployment(3, 'v1')), name(deployment(3, 'v2')));
});

const LIMITS: readonly [number, number | string, number | string, number, number][] = [
  [4, '25%', '25%', 1, 1],
  [3, '25%', '25%', 1, 0],
  [10, '30%', '0%', 3, 0],
  [1, 0, '10%', 0, 1],
  [2, 1, 5, 1, 2],
];
for (const [replicas, surge, unavailable, maxSurge, maxUnavailable] of LIMITS) {
  test(`maxSurge ${surge} and maxUnavailable ${unavailable} of ${replicas}`, () => {
    assert.deepEqual(rollingLimits(deployment(replicas, 'v1', rolling(surge, unavailable))), {
      maxSurge,
      maxUnavailable,
    });
  });
}

interface StatusRow {
  readonly name: string;
  readonly deployment: Deployment;
  readonly fresh: ReplicaSet | null;
  readonly old?: readonly ReplicaSet[];
  readonly progressing: [status: string, reason: string] | null;
  readonly available: string;
}
const since = (seconds: number, reason: string, message = ''): Deployment['status'] => ({
  conditions: [
    {
      type: 'Progressing',
      status: reason === 'ProgressDeadlineExceeded' ? 'False' : 'True',
      reason,
      message,
      lastUpdateTime: secondsAgo(seconds),
      lastTransitionTime: secondsAgo(seconds),
    },
  ],
  replicas: 3,
  updatedReplicas: 1,
  readyReplicas: 2,
  availableReplicas: 2,
});
const STATUS: readonly StatusRow[] = [
  {
    name: 'complete',
    deployment: deployment(3, 'v1', { progressDeadlineSeconds: 600 }),
    fresh: replicaSet('new', 'v1', 3),
    progressing: ['True', 'NewReplicaSetAvailable'],
    available: 'True',
  },
  {
    name: 'under way',
    deployment: deployment(3, 'v1', { progressDeadlineSeconds: 600 }),
    fresh: replicaSet('new', 'v1', 3, { available: 1 }),
    progressing: ['True', 'ReplicaSetUpdated'],
    available: 'False',
  },
  {
    name: 'stuck for longer than the deadline',
    deployment: {
      ...deployment(3, 'v2', { progressDeadlineSeconds: 600 }),
      status: since(601, 'ReplicaSetUpdated') ?? {},
    },
    fresh: replicaSet('new', 'v2', 1, { available: 0 }),
    old: [replicaSet('old', 'v1', 2)],
    progressing: ['False', 'ProgressDeadlineExceeded'],
    available: 'False',
  },
  {
    name: 'stuck for less than the deadline',
    deployment: {
      ...deployment(3, 'v2', { progressDeadlineSeconds: 600 }),
      status: since(100, 'ReplicaSetUpdated') ?? {},
    },
    fresh: replicaSet('new', 'v2', 1, { available: 0 }),
    old: [replicaSet('old', 'v1', 2)],
    progressing: ['True', 'ReplicaSetUpdated'],
    available: 'False',
  },
  {
    name: 'paused',
    deployment: deployment(3, 'v1', { progressDeadlineSeconds: 600, paused: true }),
    fresh: replicaSet('new', 'v1', 3),
    progressing: ['Unknown', 'DeploymentPaused'],
    available: 'True',
  },
  {
    name: 'without a deadline there is no Progressing condition',
    deployment: deployment(3, 'v1'),
    fresh: replicaSet('new', 'v1', 3),
    progressing: null,
    available: 'True',
  },
];
for (const row of STATUS) {
  test(`status: ${row.name}`, () => {
    const { status } = deploymentStatus({
      deployment: row.deployment,
      fresh: row.fresh,
      old: row.old ?? [],
      createdSet: null,
      now: NOW,
    });
    const find = (wanted: string) => status.conditions?.find(({ type }) => type === wanted);
    const progressing = find('Progressing');
    assert.deepEqual(progressing ? [progressing.status, progressing.reason] : null, row.progressing);
    assert.equal(find('Available')?.status, row.available);
    const view = { deployment: { ...row.deployment, status }, fresh: row.fresh, old: row.old ?? [] };
    const again = deploymentStatus({ ...view, createdSet: null, now: NOW + 500 });
    assert.deepEqual(again.status, status, 'the same state gives the same status');
  });
}
