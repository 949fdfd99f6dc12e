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

test('/statusz and /flagz are those of kube-apiserver, as text and as objects', async () => {
  const statusz = await request('GET', '/statusz', undefined, { accept: '*/*' });
  assert.equal(statusz.status, 200);
  assert.match(
    statusz.body,
    /^\napiserver statusz\nWarning: .*\n\nStarted {2}.* UTC [0-9]{4}\nUp {2}0 hr 00 min [0-9]{2} sec\n/,
  );
  assert.match(
    statusz.body,
    /Binary version {2}1\.36\.0\n.*\nPaths {2}\/flagz \/healthz \/livez \/metrics \/readyz \/statusz \/version\n$/,
  );
  const flagz = await request('GET', '/flagz', undefined, { accept: '*/*' });
  assert.match(flagz.body, /^\napiserver flagz\nWarning: .*\n(?:[a-z-]+ .+\n)+$/);
  assert.match(flagz.body, /^profiling false\nsecure-port 6443\n/m);
  assert.match(flagz.body, /^service-cluster-ip-range 10\.96\.0\.0\/16,fd00:96::\/112\n/m);
  const accept = 'application/json;v=v1beta1;g=config.k8s.io;as=Flagz';
  const object = await request('GET', '/flagz', undefined, { accept });
  assert.equal(object.body.metadata.name, 'apiserver');
  assert.equal(object.body.flags['service-node-port-range'], '30000-32767');
  const wrong = await request('GET', '/flagz');
  assert.equal(wrong.status, 406);
  assert.equal((await request('GET', '/debug/pprof/')).status, 404);
});
