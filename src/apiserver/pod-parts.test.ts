import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type Answer, CORE, configMap, pod, startApi } from './testing/api.ts';

const api = startApi();
after(() => api.server.close());
const { request } = api;
const merge = { 'content-type': 'application/merge-patch+json' };
const strategic = { 'content-type': 'application/strategic-merge-patch+json' };
const resources = { requests: { cpu: '100m' }, limits: { cpu: '200m' } };

before(async () => {
  const containers = [{ name: 'c', image: 'host', resources }];
  await request('POST', `${CORE}/pods`, pod('p', { containers }));
});

const patched = (part: string, body: object, headers = strategic): Promise<Answer> =>
  request('PATCH', `${CORE}/pods/p${part}`, body, headers);

test('a status write changes labels and annotations, and not the spec', async () => {
  const { body } = await patched(
    '/status',
    { metadata: { labels: { a: 'b' } }, spec: { nodeName: 'n' }, status: { phase: 'Running' } },
    merge,
  );
  assert.equal(body.metadata.labels.a, 'b');
  assert.equal(body.metadata.labels.app, 'p');
  assert.equal(body.status.phase, 'Running');
  assert.equal(body.spec.nodeName, undefined);
});

test('a binding keeps the generation', async () => {
  const target = { kind: 'Node', name: 'n1' };
  const { status } = await request('POST', `${CORE}/pods/p/binding`, {
    apiVersion: 'v1',
    kind: 'Binding',
    metadata: { name: 'p' },
    target,
  });
  assert.equal(status, 201);
  const { body } = await request('GET', `${CORE}/pods/p`);
  assert.equal(body.spec.nodeName, 'n1');
  assert.equal(body.metadata.generation, 1);
  assert.equal(body.status.conditions[0].type, 'PodScheduled');
});

test('ephemeral containers can be added by PATCH and PUT, and not removed', async () => {
  const debug = { name: 'debug', image: 'host', terminationMessagePolicy: 'File' };
  const { status, body } = await patched('/ephemeralcontainers', { spec: { ephemeralContainers: [debug] } });
  assert.equal(status, 200);
  assert.equal(body.metadata.generation, 2);
  const gone = await request('PUT', `${CORE}/pods/p/ephemeralcontainers`, {
    ...body,
    spec: { ...body.spec, ephemeralContainers: [{ ...debug, name: 'other' }] },
  });
  assert.equal(gone.status, 422);
  assert.match(gone.body.message, /existing ephemeral containers "debug" may not be removed/);
});

test('a resize changes only resources', async () => {
  const { status, body } = await patched('/resize', {
    spec: { containers: [{ name: 'c', image: 'other', resources: { requests: { cpu: '150m' } } }] },
  });
  assert.equal(status, 200);
  assert.equal(body.spec.containers[0].image, 'host');
  assert.equal(body.spec.containers[0].resources.requests.cpu, '150m');
  const refused = await patched('/resize', {
    spec: {
      containers: [
        { name: 'c', resources: { requests: { memory: null, cpu: null }, limits: { cpu: null } } },
      ],
    },
  });
  assert.equal(refused.status, 422);
  assert.match(refused.body.message, /Pod QOS Class may not change/);
});

test('a node keeps the status of its creation', async () => {
  const { body } = await request('POST', '/api/v1/nodes', {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name: 'n2' },
    status: { capacity: { pods: '7' } },
  });
  assert.equal(body.status.capacity.pods, '7');
});

test('namespaces cannot be deleted all at once', async () => {
  assert.equal((await request('DELETE', '/api/v1/namespaces')).status, 405);
});

test('the response has the format that the client accepts', async () => {
  await request('POST', `${CORE}/configmaps`, configMap('form', { a: 'b' }));
  const get = (accept: string, path = '/form') =>
    request('GET', `${CORE}/configmaps${path}`, undefined, { accept });
  const rows: readonly [accept: string, path: string, status: number, type: string, body: RegExp][] = [
    ['application/yaml', '/form', 200, 'application/yaml', /^apiVersion: v1\ndata:\n {2}a: b\n/],
    ['application/vnd.kubernetes.protobuf', '/form', 200, 'application/vnd.kubernetes.protobuf', /^k8s\0/],
    ['application/vnd.kubernetes.protobuf', '', 200, 'application/vnd.kubernetes.protobuf', /ConfigMapList/],
    ['text/plain', '/form', 406, 'application/json', /Not ?Acceptable|NotAcceptable/],
    ['text/plain,application/yaml;q=0.1', '/form', 200, 'application/yaml', /kind: ConfigMap/],
  ];
  for (const [accept, path, status, type, body] of rows) {
    const answer = await get(accept, path);
    assert.equal(answer.status, status, accept);
    assert.equal(answer.headers['content-type'], type);
    assert.match(typeof answer.body === 'string' ? answer.body : JSON.stringify(answer.body), body);
  }
});

test('an evicted pod has the condition DisruptionTarget; a dry run and a wrong version change nothing', async () => {
  await request('POST', `${CORE}/pods`, pod('moved'));
  const target = { kind: 'Node', name: 'n1' };
  const binding = { apiVersion: 'v1', kind: 'Binding', metadata: { name: 'moved' }, target };
  await request('POST', `${CORE}/pods/moved/binding`, binding);
  const evict = (deleteOptions: object) =>
    request('POST', `${CORE}/pods/moved/eviction`, {
      apiVersion: 'policy/v1',
      kind: 'Eviction',
      metadata: { name: 'moved' },
      deleteOptions,
    });
  const reasons = async () => {
    const { body } = await request('GET', `${CORE}/pods/moved`);
    const conditions = body.status.conditions as {
      type: string;
      reason?: string;
      observedGeneration?: number;
    }[];
    return conditions.map(({ type, reason, observedGeneration }) =>
      reason ? `${type}: ${reason} of generation ${observedGeneration}` : type,
    );
  };
  assert.equal((await evict({ dryRun: ['All'] })).status, 201);
  assert.equal((await evict({ preconditions: { resourceVersion: '1' } })).status, 409);
  assert.deepEqual(await reasons(), ['PodScheduled']);
  assert.equal((await evict({})).status, 201);
  assert.deepEqual(await reasons(), [
    'PodScheduled',
    'DisruptionTarget: EvictionByEvictionAPI of generation 1',
  ]);
});
