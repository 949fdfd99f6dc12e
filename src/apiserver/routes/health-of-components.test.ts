import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startApi } from '../testing/api.ts';

const api = startApi();
after(() => api.server.close());
const { request } = api;

test('metrics show health checks and count their results', async () => {
  const successes = async (type: string, name: string) => {
    const { body } = await request('GET', '/metrics/slis');
    assert.match(body, new RegExp(`^kubernetes_healthcheck\\{name="${name}",type="${type}"\\} 1$`, 'm'));
    const total = `kubernetes_healthchecks_total\\{name="${name}",status="success",type="${type}"\\} (\\d+)`;
    return Number(new RegExp(total).exec(body)?.[1]);
  };
  const before = await successes('readyz', 'etcd-readiness');
  await request('GET', '/readyz?exclude=log');
  // As upstream, a single check is not counted.
  await request('GET', '/readyz/etcd-readiness');
  assert.equal(await successes('readyz', 'etcd-readiness'), before + 2);
  assert.ok((await successes('livez', 'ping')) > 0);
});

test('componentstatuses show the health of the control plane', async () => {
  const all = await request('GET', '/api/v1/componentstatuses', undefined, {
    accept: 'application/json;as=Table;v=v1;g=meta.k8s.io',
  });
  assert.match(String(all.headers['warning']), /v1 ComponentStatus is deprecated in v1\.19\+/);
  assert.deepEqual(
    all.body.rows.map(({ cells }: { cells: unknown[] }) => cells),
    [
      ['controller-manager', 'Healthy', 'ok', ''],
      ['scheduler', 'Healthy', 'ok', ''],
      ['etcd-0', 'Healthy', 'ok', ''],
    ],
  );
  const one = await request('GET', '/api/v1/componentstatuses?fieldSelector=metadata.name%3Detcd-0');
  assert.equal(one.body.items.length, 1);
  const etcd = await request('GET', '/api/v1/componentstatuses/etcd-0');
  assert.deepEqual(etcd.body.conditions, [{ type: 'Healthy', status: 'True', message: 'ok' }]);
  assert.equal((await request('GET', '/api/v1/componentstatuses/other')).status, 404);
  assert.equal((await request('DELETE', '/api/v1/componentstatuses/etcd-0')).status, 405);
});
