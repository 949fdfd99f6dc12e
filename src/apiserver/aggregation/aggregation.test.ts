import assert from 'node:assert/strict';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import type { TLSSocket } from 'node:tls';
import { eventually } from '../../lib/testing/eventually.ts';
import type { JsonObject } from '../object.ts';
import { CORE, startApi } from '../testing/api.ts';

const api = startApi({ mayDial: () => true });
const { request } = api;
const API_SERVICES = '/apis/apiregistration.k8s.io/v1/apiservices';
const MERGE = { 'content-type': 'application/merge-patch+json' };
const own = api.authority.issue({
  commonName: 'sample',
  names: ['sample.default.svc'],
  usage: 'server',
});
const caBundle = Buffer.from(api.authority.cert).toString('base64');

/** Requests as the sample server got them. */
const asked: { path: string; headers: IncomingMessage['headers']; client: string; body: string }[] = [];
const FISHES = {
  name: 'fishes',
  singularName: 'fish',
  namespaced: true,
  kind: 'Fish',
  verbs: ['get', 'list'],
};
const ANSWERS: Readonly<Record<string, object>> = {
  '/apis/sea.example.com/v1': {
    kind: 'APIResourceList',
    apiVersion: 'v1',
    groupVersion: 'sea.example.com/v1',
    resources: [FISHES, { ...FISHES, name: 'fishes/status', singularName: '' }],
  },
  '/openapi/v3': {
    paths: { 'apis/sea.example.com/v1': { serverRelativeURL: '/openapi/v3/apis/sea.example.com/v1?hash=A' } },
  },
  '/openapi/v3/apis/sea.example.com/v1': {
    openapi: '3.0.0',
    info: { title: 'sea' },
    paths: {
      '/apis/sea.example.com/v1/': { get: { responses: {} } },
      '/api/v1/nodes': { get: { responses: {}, description: 'not its own' } },
    },
    components: {
      schemas: {
        'com.example.sea.v1.Fish': {
          type: 'object',
          properties: { fins: { type: 'integer' } },
          'x-kubernetes-group-version-kind': [{ group: 'sea.example.com', version: 'v1', kind: 'Fish' }],
        },
      },
    },
  },
};

/** The number of next lists over kept connections at which the sample server closes the connection. */
let closings = 0;
const kept = new WeakSet<object>();

async function answer(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
  // Like an idle timeout that expires while the request is on its way. The checks of the server go on meanwhile.
  const isKept = kept.has(incoming.socket);
  kept.add(incoming.socket);
  if (closings > 0 && isKept && incoming.url === LIST) {
    closings--;
    incoming.socket.destroy();
    return;
  }
  let body = '';
  for await (const chunk of incoming) body += chunk;
  const [path = ''] = (incoming.url ?? '').split('?');
  const client = (incoming.socket as TLSSocket).getPeerCertificate().subject?.CN ?? '';
  asked.push({ path: incoming.url ?? '', headers: incoming.headers, client: String(client), body });
  if (path.endsWith('/refused')) {
    response.writeHead(418, { 'content-type': 'application/json' }).end('{"kind":"Status"}');
    return;
  }
  response
    .writeHead(200, { 'content-type': 'application/json' })
    .end(JSON.stringify(ANSWERS[path] ?? { kind: 'FishList', items: [] }));
}

const server = createServer(
  { cert: own.cert, key: own.key, requestCert: true, rejectUnauthorized: false },
  (incoming, response) => {
    answer(incoming, response).catch(() => response.destroy());
  },
);
let port = 0;
const apiService = (version: string, spec: object = {}) => ({
  apiVersion: 'apiregistration.k8s.io/v1',
  kind: 'APIService',
  metadata: { name: `${version}.sea.example.com` },
  spec: {
    group: 'sea.example.com',
    version,
    groupPriorityMinimum: 2000,
    versionPriority: 10,
    caBundle,
    service: { namespace: 'default', name: 'sample', port },
    ...spec,
  },
});
const condition = async (name: string): Promise<JsonObject> =>
  (await request('GET', `${API_SERVICES}/${name}`)).body.status?.conditions?.[0] ?? {};
const LIST = '/apis/sea.example.com/v1/namespaces/default/fishes';

before(async () => {
  await new Promise<void>((resolve) => {
    server.listen(0, 'localhost', resolve);
  });
  ({ port } = server.address() as AddressInfo);
  assert.equal((await request('POST', API_SERVICES, apiService('v1'))).status, 201);
});
after(async () => {
  await api.server.close();
  server.closeAllConnections();
  server.close();
});

test('an APIService is not available while its Service is missing, and its group answers 503', async () => {
  await eventually(async () => (await condition('v1.sea.example.com'))['reason'] === 'ServiceNotFound');
  assert.equal((await request('GET', LIST)).status, 503);
});

test('it becomes available when its server answers', async () => {
  const spec = { type: 'ExternalName', externalName: 'localhost' };
  const service = { apiVersion: 'v1', kind: 'Service', metadata: { name: 'sample' }, spec };
  assert.equal((await request('POST', `${CORE}/services`, service)).status, 201);
  await eventually(async () => (await condition('v1.sea.example.com'))['status'] === 'True');
  assert.equal((await condition('v1.sea.example.com'))['reason'], 'Passed');
});

test('requests reach the server with their path, body and user, authenticated by the front proxy’s certificate', async () => {
  asked.length = 0;
  const headers = {
    'impersonate-user': 'jane',
    'impersonate-group': 'divers',
    'impersonate-extra-scopes': 'deep',
    authorization: 'Bearer secret',
    'x-remote-user': 'mallory',
    'x-remote-group': 'system:masters',
    'x-remote-extra-scopes': 'all',
    'x-custom': 'kept',
  };
  const role = { apiGroups: ['sea.example.com'], resources: ['fishes'], verbs: ['*'] };
  const RBAC = '/apis/rbac.authorization.k8s.io/v1';
  await request('POST', `${RBAC}/clusterroles`, {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'ClusterRole',
    metadata: { name: 'divers' },
    rules: [role],
  });
  await request('POST', `${RBAC}/clusterrolebindings`, {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'ClusterRoleBinding',
    metadata: { name: 'divers' },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'divers' },
    subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'Group', name: 'divers' }],
  });
  const { status } = await request('POST', `${LIST}?dryRun=All`, { kind: 'Fish' }, headers);
  assert.equal(status, 200);
  const [got] = asked;
  assert.equal(got?.path, `${LIST}?dryRun=All`);
  assert.equal(got?.body, '{"kind":"Fish"}');
  assert.equal(got?.client, 'front-proxy-client');
  assert.equal(got?.headers['x-remote-user'], 'jane');
  assert.equal(got?.headers['x-remote-group'], 'divers, system:authenticated');
  assert.equal(got?.headers['x-remote-extra-scopes'], 'deep');
  assert.equal(got?.headers['x-custom'], 'kept');
  assert.equal(got?.headers['authorization'], undefined);
  assert.ok(!Object.keys(got?.headers ?? {}).some((name) => name.startsWith('impersonate-')));
});

test('a user without the right does not reach the server', async () => {
  asked.length = 0;
  const { status } = await request('GET', LIST, undefined, { 'impersonate-user': 'john' });
  assert.equal(status, 403);
  assert.deepEqual(asked, []);
});

test('the server’s refusals reach the client', async () => {
  assert.equal((await request('GET', `${LIST}/refused`)).status, 418);
});

test('a request is sent again if the server closes the kept connection', async () => {
  assert.equal((await request('GET', LIST)).status, 200);
  closings = 1;
  // A check may have the kept connection: then the list has a new one, which the server does not close.
  for (let n = 0; n < 10 && closings > 0; n++) assert.equal((await request('GET', LIST)).status, 200);
  assert.equal(closings, 0);
});

test('discovery and OpenAPI list the group with this server’s own', async () => {
  const groups = (await request('GET', '/apis')).body.groups as { name: string }[];
  const names = groups.map(({ name }) => name);
  assert.ok(names.indexOf('sea.example.com') > names.indexOf('apps'));
  assert.ok(names.indexOf('sea.example.com') < names.indexOf('metrics.k8s.io'));
  assert.equal((await request('GET', '/apis/sea.example.com')).body.preferredVersion.version, 'v1');
  assert.equal((await request('GET', '/apis/sea.example.com/v1')).body.resources[0].name, 'fishes');
  const accept = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList';
  const { body } = await request('GET', '/apis', undefined, { accept });
  const found = body.items.find(
    ({ metadata }: { metadata: { name: string } }) => metadata.name === 'sea.example.com',
  );
  assert.equal(found.versions[0].freshness, 'Current');
  assert.equal(found.versions[0].resources[0].resource, 'fishes');
  assert.equal(found.versions[0].resources[0].subresources[0].subresource, 'status');
  const index = (await request('GET', '/openapi/v3')).body.paths['apis/sea.example.com/v1'];
  assert.equal((await request('GET', index.serverRelativeURL)).body.info.title, 'sea');
});

test('OpenAPI v2 contains the definitions and paths of the group', async () => {
  const { body } = await request('GET', '/openapi/v2');
  assert.deepEqual(body.definitions['com.example.sea.v1.Fish'].properties, { fins: { type: 'integer' } });
  assert.ok(body.paths['/apis/sea.example.com/v1/']);
  assert.ok(body.definitions['io.k8s.api.core.v1.Pod']);
  assert.notEqual(body.paths['/api/v1/nodes'].get.description, 'not its own');
});

test('a server with a certificate of another authority is not available, unless verification is disabled', async () => {
  const spec = { caBundle: Buffer.from('').toString('base64') };
  const other = apiService('v2', spec);
  assert.equal((await request('POST', API_SERVICES, other)).status, 201);
  await eventually(async () => (await condition('v2.sea.example.com'))['reason'] === 'FailedDiscoveryCheck');
  const unchecked = { spec: { insecureSkipTLSVerify: true, caBundle: null } };
  await request('PATCH', `${API_SERVICES}/v2.sea.example.com`, unchecked, MERGE);
  await eventually(async () => (await condition('v2.sea.example.com'))['status'] === 'True');
});

const refused = (spec: object = {}) =>
  apiService('v3', { service: { namespace: 'default', name: 'sample', port: 443 }, ...spec });
const REFUSED: readonly [name: string, object: object, field: string][] = [
  ['another name', { ...refused(), metadata: { name: 'v4.sea.example.com' } }, 'metadata.name'],
  ['no priority', refused({ groupPriorityMinimum: 0 }), 'spec.groupPriorityMinimum'],
  ['a version priority over 1000', refused({ versionPriority: 1001 }), 'spec.versionPriority'],
  ['a service without a name', refused({ service: { namespace: 'a', port: 1 } }), 'spec.service.name'],
  [
    'disabled verification and a CA bundle',
    refused({ insecureSkipTLSVerify: true, service: { namespace: 'a', name: 'b', port: 1 } }),
    'spec.insecureSkipTLSVerify',
  ],
];
for (const [name, object, field] of REFUSED) {
  test(`an APIService with ${name} is refused`, async () => {
    const { status, body } = await request('POST', API_SERVICES, object);
    assert.equal(status, 422);
    assert.deepEqual(
      body.details.causes.map((cause: { field: string }) => cause.field),
      [field],
    );
  });
}

test('every group of this server has a local APIService, which is recreated after deletion', async () => {
  assert.equal((await condition('v1.apps'))['reason'], 'Local');
  await request('DELETE', `${API_SERVICES}/v1.apps`);
  await eventually(async () => (await condition('v1.apps'))['reason'] === 'Local');
  assert.equal((await request('GET', `${API_SERVICES}/v1.`)).status, 200);
});

test('aggregated servers can read how the front proxy identifies users', async () => {
  const { body } = await request(
    'GET',
    '/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication',
  );
  assert.match(body.data['requestheader-client-ca-file'], /BEGIN CERTIFICATE/);
  assert.match(body.data['client-ca-file'], /BEGIN CERTIFICATE/);
  assert.equal(body.data['requestheader-username-headers'], '["X-Remote-User"]');
  assert.equal(body.data['requestheader-allowed-names'], '["front-proxy-client"]');
});

test('deletion of an APIService removes its group from discovery', async () => {
  for (const version of ['v1', 'v2']) await request('DELETE', `${API_SERVICES}/${version}.sea.example.com`);
  assert.equal((await request('GET', '/apis/sea.example.com')).status, 404);
  assert.equal((await request('GET', LIST)).status, 404);
});
