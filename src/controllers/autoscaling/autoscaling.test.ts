import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { HorizontalPodAutoscaler, Pod } from '../../kube/types.ts';
import { NOW, pod, secondsAgo } from '../testing/objects.ts';
import { limitReplicas, type ScalingHistory } from './behavior.ts';
import { type PodUsage, recommendReplicas } from './metrics.ts';
import { reconcileAutoscaler } from './reconcile.ts';

/** A pod that asks for one core and has run for long. */
const runner = (
  name: string,
  fields: { ready?: boolean; phase?: string; age?: number; cpu?: string } = {},
): Pod => {
  const { ready = true, phase = 'Running', age = 3600, cpu = '1' } = fields;
  const made = pod(name, {
    ready,
    phase,
    readyFor: age - 1,
    spec: {
      containers: [{ name: 'main', image: 'host', ...(cpu ? { resources: { requests: { cpu } } } : {}) }],
    },
  });
  return { ...made, status: { ...made.status, startTime: secondsAgo(age) } };
};
const using = (amounts: Record<string, number>) =>
  new Map<string, PodUsage>(
    Object.entries(amounts).map(([name, used]) => [name, { at: NOW, containers: new Map([['main', used]]) }]),
  );
const abc = ['a', 'b', 'c'];

const ROWS: readonly [
  name: string,
  pods: Pod[],
  usage: Record<string, number>,
  percent: number,
  replicas: number,
][] = [
  [
    'more if pods use more than the target',
    abc.map((name) => runner(name)),
    { a: 0.9, b: 0.9, c: 0.9 },
    50,
    6,
  ],
  ['fewer if they use less', abc.map((name) => runner(name)), { a: 0.1, b: 0.1, c: 0.1 }, 50, 1],
  [
    'the same within a tenth of the target',
    abc.map((name) => runner(name)),
    { a: 0.52, b: 0.52, c: 0.52 },
    50,
    3,
  ],
  ['a pod without metrics prevents scaling down', abc.map((name) => runner(name)), { a: 0.3, b: 0.3 }, 50, 3],
  [
    'a pod without metrics counts with zero when scaling up',
    abc.map((name) => runner(name)),
    { a: 1, b: 1 },
    50,
    4,
  ],
  [
    'a starting pod counts with zero when scaling up',
    [runner('a'), runner('b'), runner('c', { ready: false, age: 10 })],
    { a: 1, b: 1, c: 3 },
    50,
    4,
  ],
  ['pods that have ended do not count', [runner('a'), runner('b', { phase: 'Failed' })], { a: 1 }, 50, 2],
];
describe('replicas by utilization', () => {
  for (const [name, pods, usage, utilization, replicas] of ROWS) {
    test(name, () => {
      const found = recommendReplicas(3, pods, using(usage), { resource: 'cpu', utilization }, NOW);
      assert.equal(found.replicas, replicas);
    });
  }
  test('replicas by an amount for each pod', () => {
    const pods = abc.map((name) => runner(name));
    const found = recommendReplicas(
      3,
      pods,
      using({ a: 2, b: 2, c: 2 }),
      { resource: 'cpu', average: 1 },
      NOW,
    );
    assert.deepEqual(found, { replicas: 6, average: 2 });
  });
  test('a container without a request has no utilization', () => {
    assert.throws(
      () =>
        recommendReplicas(
          1,
          [runner('a', { cpu: '' })],
          using({ a: 1 }),
          { resource: 'cpu', utilization: 50 },
          NOW,
        ),
      /missing request for cpu in container main of Pod a/,
    );
  });
});

const autoscaler = (
  spec: Partial<NonNullable<HorizontalPodAutoscaler['spec']>> = {},
): HorizontalPodAutoscaler => ({
  metadata: { name: 'web', namespace: 'default', generation: 1 },
  spec: {
    scaleTargetRef: { apiVersion: 'apps/v1', kind: 'Deployment', name: 'web' },
    minReplicas: 2,
    maxReplicas: 10,
    metrics: [
      {
        type: 'Resource',
        resource: { name: 'cpu', target: { type: 'Utilization', averageUtilization: 50 } },
      },
    ],
    ...spec,
  },
});
const history = (fields: Partial<ScalingHistory> = {}): ScalingHistory => ({
  recommendations: [],
  changes: [],
  ...fields,
});
const ago = (seconds: number) => NOW - seconds * 1000;

const LIMITS: readonly [
  name: string,
  spec: Partial<NonNullable<HorizontalPodAutoscaler['spec']>>,
  current: number,
  wanted: number,
  history: ScalingHistory,
  replicas: number,
  reason: string | null,
][] = [
  ['follows the metrics', {}, 3, 5, history(), 5, null],
  ['stays below the maximum', {}, 6, 40, history(), 10, 'TooManyReplicas'],
  ['stays above the minimum', {}, 3, 1, history(), 2, 'TooFewReplicas'],
  ['at most doubles or adds four', {}, 3, 9, history(), 7, 'ScaleUpLimit'],
  [
    'counts recently added replicas',
    {},
    7,
    10,
    history({ changes: [{ at: ago(5), by: 4 }] }),
    7,
    'ScaleUpLimit',
  ],
  [
    'does not scale down soon after a peak',
    {},
    8,
    3,
    history({ recommendations: [{ at: ago(100), replicas: 7 }] }),
    7,
    null,
  ],
  [
    'scales down long after the peak',
    {},
    8,
    3,
    history({ recommendations: [{ at: ago(400), replicas: 7 }] }),
    3,
    null,
  ],
  [
    'scales down by its own policy',
    {
      behavior: {
        scaleDown: {
          stabilizationWindowSeconds: 0,
          policies: [{ type: 'Pods', value: 1, periodSeconds: 60 }],
        },
      },
    },
    8,
    3,
    history(),
    7,
    'ScaleDownLimit',
  ],
  [
    'does not scale down if that is disabled',
    { behavior: { scaleDown: { selectPolicy: 'Disabled' } } },
    8,
    3,
    history(),
    8,
    'ScaleDownLimit',
  ],
];
describe('an autoscaler', () => {
  for (const [name, spec, current, wanted, past, replicas, reason] of LIMITS) {
    test(name, () => {
      const limited = limitReplicas(autoscaler(spec), current, wanted, past, NOW);
      assert.deepEqual([limited.replicas, limited.limit?.reason ?? null], [replicas, reason]);
    });
  }
  const reconcile = (current: number, usage: Record<string, number> | Error, spec = {}) =>
    reconcileAutoscaler({
      autoscaler: autoscaler(spec),
      current,
      pods: abc.map((name) => runner(name)),
      usage: usage instanceof Error ? usage : new Map([['cpu', using(usage)]]),
      history: history(),
      now: NOW,
    });
  const condition = (plan: ReturnType<typeof reconcile>, type: string) => {
    const found = plan.status.conditions?.find((one) => one.type === type);
    return found ? `${found.status} ${found.reason}` : undefined;
  };
  test('scales, and reports the metric', () => {
    const plan = reconcile(3, { a: 0.9, b: 0.9, c: 0.9 });
    assert.equal(plan.scaleTo, 6);
    assert.equal(plan.reason, 'cpu resource utilization (percentage of request) above target');
    assert.equal(plan.status.currentMetrics?.[0]?.resource?.current.averageUtilization, 90);
    assert.equal(condition(plan, 'AbleToScale'), 'True SucceededRescale');
    assert.equal(condition(plan, 'ScalingActive'), 'True ValidMetricFound');
  });
  test('keeps the number within its own tolerance', () => {
    const behavior = { scaleUp: { tolerance: '500m' } };
    assert.equal(reconcile(3, { a: 0.7, b: 0.7, c: 0.7 }, { behavior }).scaleTo, null);
    assert.equal(reconcile(3, { a: 0.7, b: 0.7, c: 0.7 }).scaleTo, 5);
  });
  test('keeps the number if no metric is available, and reports why', () => {
    const plan = reconcile(3, new Error('no node answers'));
    assert.equal(plan.scaleTo, null);
    assert.equal(condition(plan, 'ScalingActive'), 'False FailedGetResourceMetric');
    assert.match(plan.warnings[0]?.message ?? '', /no node answers/);
  });
  test('is disabled for a target with zero replicas', () => {
    assert.equal(condition(reconcile(0, {}), 'ScalingActive'), 'False ScalingDisabled');
  });
  test('corrects a number out of bounds immediately', () => {
    assert.equal(reconcile(20, {}).scaleTo, 10);
    assert.equal(reconcile(1, {}).scaleTo, 2);
  });
  test('reports that other metrics are not available', () => {
    const metrics = [
      { type: 'Pods', pods: { metric: { name: 'x' }, target: { type: 'AverageValue', averageValue: '1' } } },
    ];
    assert.equal(condition(reconcile(3, {}, { metrics }), 'ScalingActive'), 'False FailedGetPodsMetric');
  });
});
