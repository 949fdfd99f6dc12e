import assert from 'node:assert/strict';
import { on, once } from 'node:events';
import { createServer, request as httpsRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { WebSocket } from 'ws';
import { CORE, configMap, pod, startApi } from './testing/api.ts';

const api = startApi({ mayDial: () => true });
let port = 0;
const admin = api.authority.issue({
  commonName: 'admin',
  organizations: ['system:masters'],
  usage: 'client',
});

before(async () => {
  [port = 0] = await api.server.listen([{ host: '127.0.0.1', port: 0 }]);
});
after(() => api.server.close());

interface Call {
  readonly path: string;
  readonly method?: string;
  readonly identity?: { readonly cert: string; readonly key: string };
  readonly headers?: Record<string, string>;
  readonly body?: string;
}

async function call(
  options: Call,
): Promise<{ status: number; headers: Record<string, unknown>; body: Buffer }> {
  const outgoing = httpsRequest({
    host: '127.0.0.1',
    port,
    path: options.path,
    method: options.method ?? 'GET',
    ca: api.authority.cert,
    agent: false,
    headers: options.headers,
    ...options.identity,
  });
  outgoing.end(options.body);
  const [response] = await once(outgoing, 'response');
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return { status: response.statusCode, headers: response.headers, body: Buffer.concat(chunks) };
}

test('an anonymous client may read only the health of the server', async () => {
  const refused = await call({ path: '/api/v1/namespaces' });
  assert.equal(refused.status, 403);
  assert.match(
    JSON.parse(refused.body.toString()).message,
    /^namespaces is forbidden: User "system:anonymous" cannot list resource "namespaces" in API group "" at the cluster scope/,
  );
  for (const path of ['/healthz', '/livez', '/readyz']) {
    assert.equal((await call({ path })).body.toString(), 'ok');
  }
});

test('a client certificate names its user and groups', async () => {
  const { status, body } = await call({
    path: '/apis/authentication.k8s.io/v1/selfsubjectreviews',
    method: 'POST',
    identity: admin,
    headers: { 'content-type': 'application/json' },
    body: '{}',
  });
  assert.equal(status, 201);
  const { username, groups, extra } = JSON.parse(body.toString()).status.userInfo;
  assert.equal(username, 'admin');
  assert.deepEqual(groups, ['system:masters', 'system:authenticated']);
  assert.match(extra['authentication.kubernetes.io/credential-id'][0], /^X509SHA256=[0-9a-f]{64}$/);
});

test('a client with a certificate of another authority is anonymous', async () => {
  const other = startApi();
  const identity = other.authority.issue({
    commonName: 'admin',
    organizations: ['system:masters'],
    usage: 'client',
  });
  assert.equal((await call({ path: '/api/v1/namespaces', identity })).status, 403);
  await other.server.close();
});

test('a service account’s token is valid until its account is deleted', async () => {
  const account = { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'robot' } };
  await api.request('POST', `${CORE}/serviceaccounts`, account);
  const { status, body } = await api.request('POST', `${CORE}/serviceaccounts/robot/token`, {
    spec: { expirationSeconds: 600 },
  });
  assert.equal(status, 201);
  const headers = { authorization: `Bearer ${body.status.token}` };
  assert.equal((await call({ path: '/api', headers })).status, 200);
  const forged = { authorization: `Bearer ${body.status.token.slice(0, -4)}AAAA` };
  assert.equal((await call({ path: '/api', headers: forged })).status, 401);
  await api.request('DELETE', `${CORE}/serviceaccounts/robot`);
  assert.equal((await call({ path: '/api', headers })).status, 401);
});

test('a token for another audience is refused', async () => {
  const account = { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'guest' } };
  await api.request('POST', `${CORE}/serviceaccounts`, account);
  const { body } = await api.request('POST', `${CORE}/serviceaccounts/guest/token`, {
    spec: { audiences: ['vault'] },
  });
  const headers = { authorization: `Bearer ${body.status.token}` };
  assert.equal((await call({ path: '/api/v1/namespaces', headers })).status, 401);
  const review = await api.request('POST', '/apis/authentication.k8s.io/v1/tokenreviews', {
    spec: { token: body.status.token, audiences: ['vault'] },
  });
  assert.equal(review.body.status.user.username, 'system:serviceaccount:default:guest');
});

test('long lists are compressed for clients that accept it', async () => {
  for (let i = 0; i < 20; i++) {
    await api.request('POST', `${CORE}/configmaps`, configMap(`big-${i}`, { text: 'x'.repeat(10_000) }));
  }
  const { headers, body } = await call({
    path: `${CORE}/configmaps`,
    identity: admin,
    headers: { 'accept-encoding': 'gzip' },
  });
  assert.equal(headers['content-encoding'], 'gzip');
  assert.equal(JSON.parse(gunzipSync(body).toString()).items.length, 20);
});

test('OpenAPI documents are cached by their hash', async () => {
  const index = JSON.parse((await call({ path: '/openapi/v3', identity: admin })).body.toString());
  const path = index.paths['apis/apps/v1'].serverRelativeURL;
  const first = await call({ path, identity: admin });
  assert.equal(first.status, 200);
  assert.match(String(first.headers['cache-control']), /immutable/);
  const again = await call({
    path,
    identity: admin,
    headers: { 'if-none-match': String(first.headers['etag']) },
  });
  assert.equal(again.status, 304);
});

/** A pod on a node whose kubelet listens at this address. */
async function podOn(name: string, kubeletPort: number): Promise<void> {
  const node = { apiVersion: 'v1', kind: 'Node', metadata: { name } };
  await api.request('POST', '/api/v1/nodes', node);
  await api.request('PUT', `/api/v1/nodes/${name}/status`, {
    ...node,
    status: {
      addresses: [{ type: 'InternalIP', address: '127.0.0.1' }],
      daemonEndpoints: { kubeletEndpoint: { Port: kubeletPort } },
    },
  });
  await api.request('POST', `${CORE}/pods`, pod(`on-${name}`, { nodeName: name }));
}

test('logs and upgrades reach the node with the API server’s certificate', async () => {
  const own = api.authority.issue({ commonName: 'system:node:n1', names: ['127.0.0.1'], usage: 'both' });
  const seen: string[] = [];
  const node = createServer(
    { ...own, ca: api.authority.cert, requestCert: true, rejectUnauthorized: true },
    (request, response) => {
      seen.push(request.url ?? '');
      response.end('line 1\nline 2\n');
    },
  );
  node.on('upgrade', (request, socket) => {
    seen.push(request.url ?? '');
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n');
    socket.on('data', (data: Buffer) => socket.write(`echo ${data}`));
  });
  node.listen(0, '127.0.0.1');
  await once(node, 'listening');
  try {
    await podOn('n1', (node.address() as AddressInfo).port);
    const logs = await call({ path: `${CORE}/pods/on-n1/log?tailLines=2`, identity: admin });
    assert.equal(logs.body.toString(), 'line 1\nline 2\n');
    const outgoing = httpsRequest({
      host: '127.0.0.1',
      port,
      ca: api.authority.cert,
      ...admin,
      agent: false,
      method: 'POST',
      path: `${CORE}/pods/on-n1/exec?command=ls&stdin=true&stdout=true`,
      headers: { connection: 'Upgrade', upgrade: 'SPDY/3.1' },
    });
    outgoing.end();
    const [response, socket] = await once(outgoing, 'upgrade');
    assert.equal(response.statusCode, 101);
    socket.write('hello');
    const [answer] = await once(socket, 'data');
    assert.equal(answer.toString(), 'echo hello');
    socket.destroy();
    assert.deepEqual(seen, [
      '/containerLogs/default/on-n1/c?tailLines=2',
      '/exec/default/on-n1/c?command=ls&input=1&output=1',
    ]);
  } finally {
    node.closeAllConnections();
    node.close();
  }
});

const socketMessages = async (path: string, protocols: string[], count: number) => {
  const client = new WebSocket(`wss://127.0.0.1:${port}${path}`, protocols, {
    ca: api.authority.cert,
    ...admin,
  });
  const messages: string[] = [];
  for await (const [data, isBinary] of on(client, 'message')) {
    messages.push(`${isBinary ? 'bytes' : 'text'} ${data}`);
    if (messages.length === count) break;
  }
  client.terminate();
  return messages;
};

test('logs and watches are sent over a WebSocket to clients that request one', async () => {
  const own = api.authority.issue({ commonName: 'system:node:n3', names: ['127.0.0.1'], usage: 'both' });
  const node = createServer(
    { ...own, ca: api.authority.cert, requestCert: true, rejectUnauthorized: true },
    (_request, response) => response.end('alive\n'),
  );
  node.listen(0, '127.0.0.1');
  await once(node, 'listening');
  try {
    await podOn('n3', (node.address() as AddressInfo).port);
    const log = `${CORE}/pods/on-n3/log`;
    assert.deepEqual(await socketMessages(log, [], 1), ['bytes alive\n']);
    assert.deepEqual(await socketMessages(log, ['binary.k8s.io'], 1), ['bytes alive\n']);
    assert.deepEqual(await socketMessages(log, ['base64.binary.k8s.io'], 1), ['text YWxpdmUK']);
    await assert.rejects(socketMessages(log, ['v5.channel.k8s.io'], 1), /Unexpected server response: 400/);
    const [event] = await socketMessages(
      `${CORE}/pods?watch=true&fieldSelector=metadata.name%3Don-n3`,
      [],
      1,
    );
    assert.match(event ?? '', /^text \{"type":"ADDED",.*"name":"on-n3".*\}$/);
  } finally {
    node.closeAllConnections();
    node.close();
  }
});

test('the error of a node that does not answer names it', async () => {
  // Port 1 of the loopback: no process listens there.
  await podOn('n2', 1);
  const { status, body } = await call({ path: `${CORE}/pods/on-n2/log`, identity: admin });
  assert.equal(status, 502);
  assert.match(
    JSON.parse(body.toString()).message,
    /node n2 does not answer at 127\.0\.0\.1:1: .*is its agent running\?/,
  );
});

test('logs of a pod that is not on a node yet', async () => {
  await api.request('POST', `${CORE}/pods`, pod('nowhere'));
  const { status, body } = await call({ path: `${CORE}/pods/nowhere/log`, identity: admin });
  assert.equal(status, 400);
  assert.match(JSON.parse(body.toString()).message, /pod nowhere does not have a host assigned/);
});
