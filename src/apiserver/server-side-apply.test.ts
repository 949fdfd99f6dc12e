import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { type Answer, APPS, CORE, deployment, service, startApi } from './testing/api.ts';

const api = startApi();
after(() => api.server.close());
const merge = { 'content-type': 'application/merge-patch+json' };

function apply(path: string, object: object, manager: string, force = false): Promise<Answer> {
  return api.request('PATCH', `${path}?fieldManager=${manager}&force=${force}`, object, {
    'content-type': 'application/apply-patch+yaml',
  });
}

const map = (name: string, data: Record<string, string>) => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name },
  data,
});

test('apply creates, with an entry for the manager', async () => {
  const { status, body } = await apply(`${CORE}/configmaps/a`, map('a', { x: '1' }), 'one');
  assert.equal(status, 201);
  assert.equal(body.metadata.managedFields[0].manager, 'one');
  assert.equal(body.metadata.managedFields[0].operation, 'Apply');
  assert.deepEqual(body.metadata.managedFields[0].fieldsV1, { 'f:data': { 'f:x': {} } });
});

test('managers share an object; each removes only its own fields', async () => {
  const path = `${CORE}/configmaps/b`;
  await apply(path, map('b', { x: '1', y: '1' }), 'one');
  await apply(path, map('b', { z: '2' }), 'two');
  const { body } = await apply(path, map('b', { x: '1' }), 'one');
  assert.deepEqual(body.data, { x: '1', z: '2' });
});

test('a different value for another manager’s field is a conflict that names manager and field', async () => {
  const path = `${CORE}/configmaps/c`;
  await apply(path, map('c', { x: '1' }), 'one');
  const { status, body } = await apply(path, map('c', { x: '2' }), 'two');
  assert.equal(status, 409);
  assert.equal(body.message, 'Apply failed with 1 conflict: conflict with "one": .data.x');
  assert.deepEqual(body.details.causes, [
    { reason: 'FieldManagerConflict', message: 'conflict with "one"', field: '.data.x' },
  ]);
});

test('the same value makes both managers owners', async () => {
  const path = `${CORE}/configmaps/d`;
  await apply(path, map('d', { x: '1' }), 'one');
  assert.equal((await apply(path, map('d', { x: '1' }), 'two')).status, 200);
  const { body } = await apply(path, map('d', {}), 'one');
  assert.deepEqual(body.data, { x: '1' }, 'two still owns it');
});

test('force takes over the field', async () => {
  const path = `${CORE}/configmaps/e`;
  await apply(path, map('e', { x: '1' }), 'one');
  const { status, body } = await apply(path, map('e', { x: '2' }), 'two', true);
  assert.equal(status, 200);
  assert.equal(body.data.x, '2');
  assert.deepEqual(
    body.metadata.managedFields.map((entry: { manager: string }) => entry.manager),
    ['two'],
  );
});

test('an update by another client conflicts, with the time of the update', async () => {
  const path = `${APPS}/deployments/f`;
  await apply(path, deployment('f'), 'one');
  await api.request('PATCH', `${path}?fieldManager=editor`, { spec: { replicas: 4 } }, merge);
  const { status, body } = await apply(path, deployment('f'), 'one');
  assert.equal(status, 409);
  assert.match(body.message, /conflict with "editor" using apps\/v1 at \d{4}-[^ ]+Z: \.spec\.replicas$/);
});

test('list items merge by their keys: containers, ports', async () => {
  const path = `${APPS}/deployments/g`;
  await apply(path, deployment('g'), 'one');
  const sidecar = {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'g' },
    spec: { template: { spec: { containers: [{ name: 'sidecar', image: 'host' }] } } },
  };
  const { status, body } = await apply(path, sidecar, 'two');
  assert.equal(status, 200, JSON.stringify(body));
  const names = (answer: Answer) =>
    answer.body.spec.template.spec.containers.map((container: { name: string }) => container.name);
  assert.deepEqual(names({ status, headers: {}, body }), ['c', 'sidecar']);
  const without = { ...sidecar, spec: {} };
  assert.deepEqual(names(await apply(path, without, 'two')), ['c']);
});

test('a Service’s ports are identified by port and protocol', async () => {
  const path = `${CORE}/services/dns`;
  const ports = [
    { name: 'tcp', port: 53, protocol: 'TCP' },
    { name: 'udp', port: 53, protocol: 'UDP' },
  ];
  await apply(path, service('dns', { ports }), 'one');
  const { body } = await apply(path, service('dns', { ports: ports.slice(1) }), 'one');
  assert.deepEqual(
    body.spec.ports.map((port: { name: string }) => port.name),
    ['udp'],
  );
});

test('an object that was never applied belongs to before-first-apply', async () => {
  // A controller in the server's own process: its objects are not tracked.
  await api.request('POST', `${CORE}/configmaps`, map('h', { x: '1' }));
  const { status, body } = await apply(`${CORE}/configmaps/h`, map('h', { x: '2' }), 'one');
  assert.equal(status, 409);
  assert.match(body.message, /conflict with "before-first-apply" using v1 at /);
});

test('an apply to the status subresource does not change the spec', async () => {
  const path = `${APPS}/deployments/i`;
  await apply(path, deployment('i'), 'one');
  const status = {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'i' },
    spec: { replicas: 9 },
    status: { replicas: 2 },
  };
  const { body } = await apply(`${path}/status`, status, 'two');
  assert.equal(body.status.replicas, 2);
  assert.equal(body.spec.replicas, 1);
  const entry = body.metadata.managedFields.find((one: { manager: string }) => one.manager === 'two');
  assert.equal(entry.subresource, 'status');
  assert.deepEqual(entry.fieldsV1, { 'f:status': { 'f:replicas': {} } });
});

test('applying the same twice changes nothing', async () => {
  const path = `${CORE}/configmaps/j`;
  const { body: first } = await apply(path, map('j', { x: '1' }), 'one');
  const { body: second } = await apply(path, map('j', { x: '1' }), 'one');
  assert.equal(second.metadata.resourceVersion, first.metadata.resourceVersion);
});

test('apply needs a manager', async () => {
  const { status, body } = await api.request('PATCH', `${CORE}/configmaps/k`, map('k', {}), {
    'content-type': 'application/apply-patch+yaml',
  });
  assert.equal(status, 422);
  assert.match(body.message, /fieldManager: Required value/);
});
