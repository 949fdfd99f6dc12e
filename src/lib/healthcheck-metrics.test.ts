import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createHealthcheckMetrics } from './healthcheck-metrics.ts';

test('a health check shows its latest result, and how often it passed and failed', () => {
  const metrics = createHealthcheckMetrics();
  metrics.observe('etcd', 'readyz', false);
  metrics.observe('etcd', 'readyz', false);
  metrics.observe('etcd', 'readyz', true);
  metrics.observe('etcd', 'livez', false);
  assert.deepEqual(
    metrics
      .render()
      .split('\n')
      .filter((line) => !line.startsWith('#')),
    [
      'kubernetes_healthcheck{name="etcd",type="livez"} 0',
      'kubernetes_healthcheck{name="etcd",type="readyz"} 1',
      'kubernetes_healthchecks_total{name="etcd",status="error",type="livez"} 1',
      'kubernetes_healthchecks_total{name="etcd",status="error",type="readyz"} 2',
      'kubernetes_healthchecks_total{name="etcd",status="success",type="readyz"} 1',
      '',
    ],
  );
});
