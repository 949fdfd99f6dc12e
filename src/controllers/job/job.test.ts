import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Job, Pod } from '../../kube/types.ts';
import { NOW, type PodFields, pod, secondsAgo } from '../testing/objects.ts';
import { FAILURE_COUNT, formatIndexes, INDEX, parseIndexes } from './indexes.ts';
import { TRACKING } from './pods.ts';
import { reconcileJob } from './reconcile.ts';

type Spec = NonNullable<Job['spec']>;
const template = {
  metadata: { labels: { app: 'web' } },
  spec: { containers: [{ name: 'main', image: 'v1' }] },
};
const selector = { matchLabels: { app: 'web' } };
const job = (fields: Partial<Spec> = {}, status: Job['status'] = { startTime: secondsAgo(60) }): Job => ({
  metadata: { name: 'owner', namespace: 'default', uid: 'owner' },
  spec: { selector, template, completions: 3, parallelism: 2, backoffLimit: 2, ...fields },
  ...(status ? { status } : {}),
});
const indexed = (fields: Partial<Spec> = {}, status?: Job['status']) =>
  job({ completionMode: 'Indexed', ...fields }, status);
interface RunFields extends PodFields {
  readonly index?: number;
  readonly failures?: number;
  readonly exitCode?: number;
  readonly tracked?: boolean;
  readonly condition?: string;
}
/** A pod of the Job that is not counted yet. */
const run = (name: string, phase: string, fields: RunFields = {}): Pod => {
  const { index, failures, exitCode, tracked = true, condition, ...more } = fields;
  const annotations = {
    ...(index === undefined ? {} : { [INDEX]: String(index) }),
    ...(failures === undefined ? {} : { [FAILURE_COUNT]: String(failures) }),
  };
  const made = pod(name, { phase, ownerKind: 'Job', age: 5000, readyFor: 5000, annotations, ...more });
  const exited = {
    state: { terminated: { exitCode: exitCode ?? 1, finishedAt: secondsAgo(fields.age ?? 5000) } },
  };
  return {
    ...made,
    metadata: { ...made.metadata, ...(tracked ? { finalizers: [TRACKING] } : {}) },
    status: {
      ...made.status,
      conditions: [
        ...(made.status?.conditions ?? []),
        ...(condition ? [{ type: condition, status: 'True' }] : []),
      ],
      ...(phase === 'Failed'
        ? { containerStatuses: (made.status?.containerStatuses ?? []).map((one) => ({ ...one, ...exited })) }
        : {}),
    },
  };
};
const ended = (type: string) => ({
  conditions: [{ type, status: 'True', lastTransitionTime: secondsAgo(50) }],
});
const names = (pods: readonly Pod[]) => pods.map(({ metadata }) => metadata?.name).sort();

interface Row {
  readonly name: string;
  readonly job: Job;
  readonly pods?: readonly Pod[];
  /** How many pods are created, or which indexes. */
  readonly create?: number | readonly string[];
  readonly delete?: readonly string[];
  readonly untrack?: readonly string[];
  /** The last condition and its reason. */
  readonly end?: string;
  readonly status?: Partial<NonNullable<Job['status']>>;
}
const rule = (action: string, values: number[]) => ({
  podFailurePolicy: { rules: [{ action, onExitCodes: { operator: 'In', values } }] },
});

const ROWS: readonly Row[] = [
  { name: 'starts with as many pods as may run concurrently', job: job(), create: 2 },
  {
    name: 'runs no more pods than are missing',
    job: job({}, { startTime: secondsAgo(60), succeeded: 2 }),
    create: 1,
  },
  {
    name: 'counts a finished pod before its finalizer is removed',
    job: job({ parallelism: 0 }),
    pods: [run('a', 'Succeeded'), run('b', 'Failed')],
    status: {
      succeeded: 0,
      failed: 0,
      uncountedTerminatedPods: { succeeded: ['uid of a'], failed: ['uid of b'] },
    },
  },
  {
    name: 'releases a pod that the status contains',
    job: job(
      { parallelism: 0 },
      { startTime: secondsAgo(60), uncountedTerminatedPods: { succeeded: ['uid of a'] } },
    ),
    pods: [run('a', 'Succeeded')],
    untrack: ['a'],
  },
  {
    name: 'moves a pod without finalizer to the counters, once',
    job: job(
      { parallelism: 0 },
      { startTime: secondsAgo(60), uncountedTerminatedPods: { succeeded: ['uid of a'] } },
    ),
    pods: [run('a', 'Succeeded', { tracked: false })],
    status: { succeeded: 1, uncountedTerminatedPods: {} },
  },
  {
    name: 'meets its criteria while the last pods are not counted yet',
    job: job(),
    pods: [run('a', 'Succeeded'), run('b', 'Succeeded'), run('c', 'Succeeded')],
    end: 'SuccessCriteriaMet CompletionsReached',
  },
  {
    name: 'is complete after they are counted',
    job: job({}, { startTime: secondsAgo(60), succeeded: 3 }),
    end: 'Complete CompletionsReached',
  },
  {
    name: 'without completions it is over when one has succeeded and none runs',
    job: { ...job(), spec: { selector, template } },
    pods: [run('a', 'Succeeded')],
    end: 'SuccessCriteriaMet CompletionsReached',
  },
  { name: 'replaces a failed pod after a delay', job: job(), pods: [run('a', 'Failed')], create: 2 },
  { name: 'replaces no failed pod during the delay', job: job(), pods: [run('a', 'Failed', { age: 1 })] },
  {
    name: 'fails beyond its limit, and stops running pods',
    job: job(),
    pods: [run('a', 'Failed'), run('b', 'Failed'), run('c', 'Failed'), run('d', 'Running')],
    delete: ['d'],
    end: 'FailureTarget BackoffLimitExceeded',
  },
  {
    name: 'fails after its deadline',
    job: job({ activeDeadlineSeconds: 30 }),
    pods: [run('a', 'Running')],
    delete: ['a'],
    end: 'FailureTarget DeadlineExceeded',
  },
  {
    name: 'stops running pods when suspended',
    job: job({ suspend: true }),
    pods: [run('a', 'Running')],
    delete: ['a'],
    end: 'Suspended JobSuspended',
  },
  {
    name: 'deletes the least valuable pod when parallelism is reduced',
    job: job({ parallelism: 1 }),
    pods: [run('a', 'Running'), run('b', 'Running', { ready: false })],
    delete: ['b'],
  },
  {
    name: 'releases its pods when finished',
    job: job({}, ended('Complete')),
    pods: [run('a', 'Succeeded')],
    untrack: ['a'],
  },
  {
    name: 'replaces a pod that is being deleted immediately',
    job: job({ backoffLimit: 6 }),
    pods: [run('a', 'Running', { deleting: true }), run('b', 'Running')],
    create: 1,
    status: { terminating: 1, active: 1 },
  },
  {
    name: 'waits for the end of a pod with podReplacementPolicy Failed',
    job: job({ podReplacementPolicy: 'Failed' }),
    pods: [run('a', 'Running', { deleting: true }), run('b', 'Running')],
    status: { terminating: 1, active: 1 },
  },
  {
    name: 'fails immediately by a rule of its pod failure policy',
    job: job(rule('FailJob', [42])),
    pods: [run('a', 'Failed', { exitCode: 42 })],
    end: 'FailureTarget PodFailurePolicy',
  },
  {
    name: 'does not count a failure that its policy ignores',
    job: job({ ...rule('Ignore', [42]), backoffLimit: 0, parallelism: 0 }),
    pods: [run('a', 'Failed', { exitCode: 42 })],
    untrack: ['a'],
    status: { failed: 0 },
  },
  {
    name: 'applies a rule to a condition of the pod',
    job: job({
      podFailurePolicy: {
        rules: [{ action: 'FailJob', onPodConditions: [{ type: 'DisruptionTarget', status: 'True' }] }],
      },
    }),
    pods: [run('a', 'Failed', { condition: 'DisruptionTarget' })],
    end: 'FailureTarget PodFailurePolicy',
  },
  {
    name: 'indexed, runs each index once, and the free ones next',
    job: indexed({ completions: 4, parallelism: 3 }),
    pods: [run('a', 'Succeeded', { index: 0 }), run('b', 'Running', { index: 2 })],
    create: ['owner-1-', 'owner-3-'],
    status: { completedIndexes: '0', succeeded: 1 },
  },
  {
    name: 'indexed, deletes a second pod of an index, and those beyond the completions',
    job: indexed({ completions: 2, parallelism: 4 }),
    pods: [
      run('a', 'Running', { index: 0 }),
      run('b', 'Running', { index: 0, ready: false }),
      run('c', 'Running', { index: 5 }),
    ],
    delete: ['b', 'c'],
  },
  {
    name: 'indexed, repeats an index within its own limit and remembers the failures',
    job: indexed({ completions: 2, backoffLimitPerIndex: 1, backoffLimit: 100 }),
    pods: [run('a', 'Failed', { index: 0 }), run('b', 'Running', { index: 1 })],
    create: ['owner-0-'],
    status: { failedIndexes: '' },
  },
  {
    name: 'indexed, fails an index beyond its own limit',
    job: indexed({ completions: 2, backoffLimitPerIndex: 1, backoffLimit: 100 }),
    pods: [run('a', 'Failed', { index: 0, failures: 1 }), run('b', 'Running', { index: 1 })],
    status: { failedIndexes: '0' },
  },
  {
    name: 'indexed, fails when every index is done or failed',
    job: indexed({ completions: 2, backoffLimitPerIndex: 0, backoffLimit: 100 }),
    pods: [run('a', 'Failed', { index: 0 }), run('b', 'Succeeded', { index: 1 })],
    end: 'FailureTarget FailedIndexes',
  },
  {
    name: 'indexed, fails beyond its number of failed indexes',
    job: indexed({ completions: 9, backoffLimitPerIndex: 0, backoffLimit: 100, maxFailedIndexes: 1 }),
    pods: [run('a', 'Failed', { index: 0 }), run('b', 'Failed', { index: 1 })],
    end: 'FailureTarget MaxFailedIndexesExceeded',
  },
  {
    name: 'indexed, fails an index by a rule of its policy',
    job: indexed({ completions: 2, backoffLimitPerIndex: 5, backoffLimit: 100, ...rule('FailIndex', [7]) }),
    pods: [run('a', 'Failed', { index: 0, exitCode: 7 }), run('b', 'Running', { index: 1 })],
    status: { failedIndexes: '0' },
  },
  {
    name: 'indexed, succeeds by a rule of its success policy, and stops the other pods',
    job: indexed({
      completions: 3,
      successPolicy: { rules: [{ succeededIndexes: '0,2', succeededCount: 1 }] },
    }),
    pods: [run('a', 'Succeeded', { index: 2 }), run('b', 'Running', { index: 0 })],
    delete: ['b'],
    end: 'SuccessCriteriaMet SuccessPolicy',
  },
  {
    name: 'fails when containers restart too often in place',
    job: job({ template: { ...template, spec: { ...template.spec, restartPolicy: 'OnFailure' } } }),
    pods: [run('a', 'Running', { restarts: 2 })],
    delete: ['a'],
    end: 'FailureTarget BackoffLimitExceeded',
  },
];
describe('a Job', () => {
  for (const row of ROWS) {
    test(row.name, () => {
      const plan = reconcileJob({ job: row.job, pods: row.pods ?? [], now: NOW });
      if (typeof row.create === 'object') {
        assert.deepEqual(
          plan.create.map(({ metadata }) => metadata?.generateName),
          row.create,
        );
      } else assert.equal(plan.create.length, row.create ?? 0);
      assert.deepEqual(names(plan.delete), row.delete ?? []);
      assert.deepEqual(names(plan.untrack), row.untrack ?? []);
      const last = plan.status?.conditions?.at(-1);
      assert.equal(last ? `${last.type} ${last.reason}` : undefined, row.end);
      for (const [field, value] of Object.entries(row.status ?? {})) {
        assert.deepEqual(plan.status?.[field as 'failed'], value, field);
      }
    });
  }
  test('a pod of an index records its earlier failures', () => {
    const [made] = reconcileJob({
      job: indexed({ completions: 1, backoffLimitPerIndex: 3 }),
      pods: [run('a', 'Failed', { index: 0, failures: 1 })],
      now: NOW,
    }).create;
    assert.equal(made?.metadata?.annotations?.[FAILURE_COUNT], '2');
    assert.deepEqual(made?.metadata?.finalizers, [TRACKING]);
  });
  test('is deleted when its time to live expires, not before', () => {
    const at = (ttl: number) =>
      reconcileJob({ job: job({ ttlSecondsAfterFinished: ttl }, ended('Complete')), pods: [], now: NOW });
    assert.equal(at(40).deleteJob, true);
    assert.deepEqual([at(60).deleteJob, at(60).checkAgainIn], [false, 10_000]);
  });
});

test('indexes are formatted as ranges, and parsed again', () => {
  assert.equal(formatIndexes([7, 3, 1, 2]), '1-3,7');
  assert.equal(formatIndexes([4, 5]), '4,5');
  assert.deepEqual([...parseIndexes('1-3,7', 5)], [1, 2, 3]);
});
