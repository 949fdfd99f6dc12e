import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { after, test } from 'node:test';
import { CORE, configMap, startApi } from '../../testing/api.ts';

const REGISTRATION = '/apis/admissionregistration.k8s.io/v1';
const api = startApi();
const own = api.authority.issue({ commonName: 'webhook', names: ['localhost'], usage: 'server' });
const caBundle = Buffer.from(api.authority.cert).toString('base64');

type Hook = { readonly path: string } & Readonly<Record<string, unknown>>;

interface Review {
  readonly request: Record<string, unknown> & { readonly uid: string };
}
const asked: Review['request'][] = [];

/** The answers of the webhook server, by path. */
const ANSWERS: Readonly<Record<string, (review: Review) => object | null>> = {
  '/allow': () => ({ allowed: true, warnings: ['take care'] }),
  '/deny': () => ({ allowed: false, status: { message: 'not today', code: 403, reason: 'Forbidden' } }),
  '/deny-plainly': () => ({ allowed: false }),
  '/patch': () => patch([{ op: 'add', path: '/data/patched', value: 'yes' }]),
  '/patch-again': ({ request }) => {
    const { data } = request['object'] as { data: Record<string, string> };
    return patch([{ op: 'add', path: '/data/seen', value: data['patched'] ?? 'nothing' }]);
  },
  '/broken': () => null,
};
/** Called before a request is answered. */
let onRequest = (_request: IncomingMessage) => {};
const patch = (operations: object[]) => ({
  allowed: true,
  patchType: 'JSONPatch',
  patch: Buffer.from(JSON.stringify(operations)).toString('base64'),
});

const server = createServer({ cert: own.cert, key: own.key }, async (request, response) => {
  onRequest(request);
  let text = '';
  for await (const chunk of request) text += chunk;
  const review: Review = JSON.parse(text);
  asked.push(review.request);
  const answer = ANSWERS[new URL(request.url ?? '/', 'https://x').pathname]?.(review) ?? null;
  if (answer === null) return response.writeHead(500).end('out of order');
  response.end(
    JSON.stringify({
      kind: 'AdmissionReview',
      apiVersion: 'admission.k8s.io/v1',
      response: { uid: review.request.uid, ...answer },
    }),
  );
});
await new Promise<void>((resolve) => {
  server.listen(0, '127.0.0.1', resolve);
});
const { port } = server.address() as AddressInfo;
after(async () => {
  await api.server.close();
  server.closeAllConnections();
  server.close();
});

async function configure(type: 'Mutating' | 'Validating', hooks: readonly Hook[]) {
  const plural = `${type.toLowerCase()}webhookconfigurations`;
  const made = await api.request('POST', `${REGISTRATION}/${plural}`, {
    metadata: { name: 'test' },
    webhooks: hooks.map(({ path, ...hook }, i) => ({
      name: `hook-${i}.example.com`,
      clientConfig: { url: `https://localhost:${port}${path}`, caBundle },
      rules: [{ apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['configmaps'] }],
      sideEffects: 'None',
      admissionReviewVersions: ['v1'],
      ...hook,
    })),
  });
  assert.equal(made.status, 201, made.body.message);
  asked.length = 0;
  return () => api.request('DELETE', `${REGISTRATION}/${plural}/test`);
}

const create = (query = '?dryRun=All', map: object = configMap('a', { key: 'value' })) =>
  api.request('POST', `${CORE}/configmaps${query}`, map);

const VALIDATING: readonly [name: string, hook: Hook, status: number, message: string][] = [
  ['a webhook that allows a write', { path: '/allow' }, 201, ''],
  [
    'a webhook that refuses gives its reason',
    { path: '/deny' },
    403,
    'admission webhook "hook-0.example.com" denied the request: not today',
  ],
  [
    'a webhook that refuses without a reason',
    { path: '/deny-plainly' },
    400,
    'admission webhook "hook-0.example.com" denied the request without explanation',
  ],
  [
    'a webhook that fails refuses by default',
    { path: '/broken' },
    500,
    `Internal error occurred: failed calling webhook "hook-0.example.com": failed to call webhook: Post "https://localhost:${port}/broken?timeout=10s": the server answered 500: out of order`,
  ],
  [
    'a failed webhook is ignored with failurePolicy Ignore',
    { path: '/broken', failurePolicy: 'Ignore' },
    201,
    '',
  ],
  [
    'a namespace selector that does not match skips the webhook',
    { path: '/deny', namespaceSelector: { matchLabels: { guarded: 'yes' } } },
    201,
    '',
  ],
  [
    'an object selector that does not match skips the webhook',
    { path: '/deny', objectSelector: { matchLabels: { guarded: 'yes' } } },
    201,
    '',
  ],
  [
    'a match condition that is false skips the webhook',
    { path: '/deny', matchConditions: [{ name: 'other', expression: 'object.metadata.name != "a"' }] },
    201,
    '',
  ],
  [
    'a match condition that fails refuses',
    { path: '/allow', matchConditions: [{ name: 'none', expression: 'object.none == 1' }] },
    403,
    'admission webhook "hook-0.example.com" denied the request: failed to evaluate match conditions: no such key: none',
  ],
  [
    'a webhook with side effects is not called for dry runs',
    { path: '/allow', sideEffects: 'NoneOnDryRun' },
    201,
    '',
  ],
];

for (const [name, hook, status, message] of VALIDATING) {
  test(name, async () => {
    const remove = await configure('Validating', [hook]);
    const answer = await create();
    await remove();
    assert.equal(answer.status, status, answer.body.message);
    if (message !== '') assert.equal(answer.body.message, message);
  });
}

test('a review contains the request, and its warnings reach the client', async () => {
  const remove = await configure('Validating', [{ path: '/allow' }]);
  const answer = await create();
  await remove();
  assert.match(String(answer.headers['warning']), /take care/);
  const [request] = asked;
  assert.deepEqual(
    {
      kind: request?.['kind'],
      resource: request?.['resource'],
      name: request?.['name'],
      namespace: request?.['namespace'],
      operation: request?.['operation'],
      dryRun: request?.['dryRun'],
      oldObject: request?.['oldObject'],
    },
    {
      kind: { group: '', version: 'v1', kind: 'ConfigMap' },
      resource: { group: '', version: 'v1', resource: 'configmaps' },
      name: 'a',
      namespace: 'default',
      operation: 'CREATE',
      dryRun: true,
      oldObject: null,
    },
  );
});

test('mutating webhooks see the changes of previous ones', async () => {
  const remove = await configure('Mutating', [{ path: '/patch' }, { path: '/patch-again' }]);
  const answer = await create();
  await remove();
  assert.deepEqual(answer.body.data, { key: 'value', patched: 'yes', seen: 'yes' });
});

test('a webhook with reinvocationPolicy IfNeeded is called again after a later change', async () => {
  const remove = await configure('Mutating', [
    { path: '/patch-again', reinvocationPolicy: 'IfNeeded' },
    { path: '/patch' },
  ]);
  const answer = await create();
  await remove();
  assert.equal(asked.length, 3);
  assert.equal(answer.body.data.seen, 'yes');
});

test('a review is sent again if the webhook closes the kept connection', async (t) => {
  const remove = await configure('Validating', [{ path: '/allow' }]);
  assert.equal((await create()).status, 201);
  let closed = 0;
  // Like an idle timeout that expires while the review is on its way.
  onRequest = ({ socket }) => {
    if (closed++ === 0) socket.destroy();
  };
  t.after(() => {
    onRequest = () => {};
  });
  assert.equal((await create()).status, 201);
  assert.equal(closed, 2);
  await remove();
});

test('webhooks do not apply to webhook configurations', async () => {
  const all = [{ apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*'] }];
  const remove = await configure('Validating', [{ path: '/deny', rules: all }]);
  assert.equal((await create()).status, 403);
  assert.equal((await remove()).status, 200);
  assert.equal((await create()).status, 201);
});
