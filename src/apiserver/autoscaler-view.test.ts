import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { JsonObject } from './object.ts';
import { startApi } from './testing/api.ts';

const api = startApi();
after(() => api.server.close());
const path = (version: string, name = '') =>
  `/apis/autoscaling/${version}/namespaces/default/horizontalpodautoscalers${name && `/${name}`}`;
const autoscaler = (version: string, name: string, spec: object, annotations: object = {}) => ({
  apiVersion: `autoscaling/${version}`,
  kind: 'HorizontalPodAutoscaler',
  metadata: { name, annotations },
  spec: {
    scaleTargetRef: { apiVersion: 'apps/v1', kind: 'Deployment', name: 'web' },
    maxReplicas: 4,
    ...spec,
  },
});
const cpu = (averageUtilization: number) => ({
  type: 'Resource',
  resource: { name: 'cpu', target: { type: 'Utilization', averageUtilization } },
});
const memory = {
  type: 'Resource',
  resource: { name: 'memory', target: { type: 'AverageValue', averageValue: '1Gi' } },
};
const external = {
  type: 'External',
  external: {
    metric: { name: 'queue', selector: { matchLabels: { q: 'a' } } },
    target: { type: 'Value', value: '3' },
  },
};

const CREATED: readonly [name: string, v1: [object, object?], v2: object[]][] = [
  ['a target', [{ targetCPUUtilizationPercentage: 60 }], [cpu(60)]],
  ['no target', [{}], [cpu(80)]],
  [
    'metrics in the annotation',
    [
      { targetCPUUtilizationPercentage: 60 },
      {
        'autoscaling.alpha.kubernetes.io/metrics':
          '[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Gi"}},{"type":"External","external":{"metricName":"queue","metricSelector":{"matchLabels":{"q":"a"}},"targetValue":"3"}}]',
      },
    ],
    [memory, external, cpu(60)],
  ],
  [
    'an annotation that is not JSON',
    [{ targetCPUUtilizationPercentage: 60 }, { 'autoscaling.alpha.kubernetes.io/metrics': '[' }],
    [cpu(60)],
  ],
];
for (const [i, [name, [spec, annotations], metrics]] of CREATED.entries()) {
  test(`an autoscaling/v1 object with ${name} has these metrics in v2`, async () => {
    const created = await api.request(
      'POST',
      path('v1'),
      autoscaler('v1', `created-${i}`, spec, annotations),
    );
    assert.equal(created.status, 201);
    const { body } = await api.request('GET', path('v2', `created-${i}`));
    assert.deepEqual(body.spec.metrics, metrics);
    assert.equal(body.spec.minReplicas, 1);
    assert.equal(body.metadata.annotations, undefined);
  });
}

const POLICIES: readonly [what: string, scaleUp: object, status: number][] = [
  ['left out have defaults', {}, 201],
  ['null have defaults', { policies: null }, 201],
  ['that are empty are refused', { policies: [] }, 422],
];
for (const [i, [what, scaleUp, status]] of POLICIES.entries()) {
  test(`policies of a behavior ${what}`, async () => {
    const object = autoscaler('v2', `policies-${i}`, { behavior: { scaleUp } });
    const { status: got, body } = await api.request('POST', path('v2'), object);
    assert.equal(got, status);
    if (status === 201) assert.equal(body.spec.behavior.scaleUp.policies.length, 2);
    else assert.equal(body.details.causes[0].field, 'spec.behavior.scaleUp.policies');
  });
}

test('an autoscaling/v2 object shows its CPU target in v1, and its other fields in annotations', async () => {
  const behavior = { scaleDown: { stabilizationWindowSeconds: 60 } };
  const metrics = [cpu(50), memory];
  await api.request('POST', path('v2'), autoscaler('v2', 'shown', { metrics, behavior }));
  const status = {
    currentReplicas: 2,
    desiredReplicas: 3,
    currentMetrics: [
      {
        type: 'Resource',
        resource: { name: 'cpu', current: { averageUtilization: 40, averageValue: '20m' } },
      },
    ],
    conditions: [{ type: 'AbleToScale', status: 'True' }],
  };
  const merge = { 'content-type': 'application/merge-patch+json' };
  const patched = await api.request('PATCH', `${path('v2', 'shown')}/status`, { status }, merge);
  assert.equal(patched.status, 200);
  const { body } = await api.request('GET', path('v1', 'shown'));
  assert.equal(body.apiVersion, 'autoscaling/v1');
  assert.equal(body.spec.targetCPUUtilizationPercentage, 50);
  assert.equal(body.spec.metrics, undefined);
  assert.deepEqual(body.status, {
    currentReplicas: 2,
    desiredReplicas: 3,
    currentCPUUtilizationPercentage: 40,
  });
  const read = (name: string): JsonObject | JsonObject[] =>
    JSON.parse(body.metadata.annotations[`autoscaling.alpha.kubernetes.io/${name}`]);
  assert.deepEqual(read('metrics'), [
    { type: 'Resource', resource: { name: 'memory', targetAverageValue: '1Gi' } },
  ]);
  assert.deepEqual(read('current-metrics'), [
    {
      type: 'Resource',
      resource: { name: 'cpu', currentAverageUtilization: 40, currentAverageValue: '20m' },
    },
  ]);
  assert.equal((read('behavior') as { ScaleDown: JsonObject }).ScaleDown['StabilizationWindowSeconds'], 60);
});

test('an update through v1 preserves fields that only v2 has', async () => {
  const metrics = [cpu(50), memory, external];
  await api.request('POST', path('v2'), autoscaler('v2', 'kept', { metrics, behavior: { scaleUp: {} } }));
  const before = (await api.request('GET', path('v2', 'kept'))).body;
  const { body: v1 } = await api.request('GET', path('v1', 'kept'));
  v1.spec.maxReplicas = 9;
  assert.equal((await api.request('PUT', path('v1', 'kept'), v1)).status, 200);
  const { body } = await api.request('GET', path('v2', 'kept'));
  assert.equal(body.spec.maxReplicas, 9);
  assert.deepEqual(body.spec.behavior, before.spec.behavior);
  assert.deepEqual(
    new Set(body.spec.metrics.map((one: object) => JSON.stringify(one))),
    new Set(before.spec.metrics.map((one: object) => JSON.stringify(one))),
  );
});

test('both versions have the same columns and cells', async () => {
  const accept = 'application/json;as=Table;v=v1;g=meta.k8s.io';
  await api.request('POST', path('v2'), autoscaler('v2', 'listed', { metrics: [cpu(50)] }));
  const [v1, v2] = await Promise.all(
    ['v1', 'v2'].map((version) => api.request('GET', path(version), undefined, { accept })),
  );
  assert.deepEqual(
    v1?.body.rows.map((row: JsonObject) => row['cells']),
    v2?.body.rows.map((row: JsonObject) => row['cells']),
  );
  assert.deepEqual(v1?.body.columnDefinitions, v2?.body.columnDefinitions);
});
