import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { Security } from '../services.ts';
import { CORE, pod, startApi } from '../testing/api.ts';

const RBAC = '/apis/rbac.authorization.k8s.io/v1';
const api = startApi();
after(() => api.server.close());
await api.request('POST', `${CORE}/serviceaccounts`, { metadata: { name: 'robot' } });

async function grant(user: string, rule: object) {
  const name = `may-${user}`;
  await api.request('POST', `${RBAC}/clusterroles`, { metadata: { name }, rules: [rule] });
  await api.request('POST', `${RBAC}/clusterrolebindings`, {
    metadata: { name },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name },
    subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'User', name: user }],
  });
}

const whoami = (headers: Record<string, string>) =>
  api.request('POST', '/apis/authentication.k8s.io/v1/selfsubjectreviews', {}, headers);

const IMPERSONATED: readonly [name: string, headers: Record<string, string>, user: object][] = [
  ['a user', { 'impersonate-user': 'jane' }, { username: 'jane', groups: ['system:authenticated'] }],
  [
    'a user with groups',
    { 'impersonate-user': 'jane', 'impersonate-group': 'dev, ops' },
    { username: 'jane', groups: ['dev', 'ops', 'system:authenticated'] },
  ],
  [
    'a service account',
    { 'impersonate-user': 'system:serviceaccount:default:robot' },
    {
      username: 'system:serviceaccount:default:robot',
      groups: ['system:serviceaccounts', 'system:serviceaccounts:default', 'system:authenticated'],
    },
  ],
  [
    'a user with uid and extra fields',
    { 'impersonate-user': 'jane', 'impersonate-uid': '7', 'impersonate-extra-scopes%2fa': 'x' },
    { username: 'jane', uid: '7', groups: ['system:authenticated'], extra: { 'scopes/a': ['x'] } },
  ],
];

for (const [name, headers, user] of IMPERSONATED) {
  test(`an administrator acts as ${name}`, async () => {
    assert.deepEqual((await whoami(headers)).body.status.userInfo, user);
  });
}

test('groups without a user are refused', async () => {
  const { status, body } = await whoami({ 'impersonate-group': 'dev' });
  assert.equal(status, 400);
  assert.match(body.message, /^requested &user\.DefaultInfo\{Name:"", .* without impersonating a user name$/);
});

/** Asks as a user who acts as another: by a token of the account that the rights are given to. */
async function asRobot(headers: Record<string, string>) {
  const { impersonator, authorizer } = security();
  const user = { name: 'system:serviceaccount:default:robot', groups: ['system:authenticated'] };
  const request = {
    user,
    verb: 'list',
    isResourceRequest: true,
    apiGroup: '',
    apiVersion: 'v1',
    resource: 'pods',
    subresource: '',
    namespace: 'default',
    name: '',
    path: '',
  };
  assert.ok(impersonator && authorizer);
  try {
    return await impersonator.impersonate(user, headers, request);
  } catch (error) {
    return (error as Error).message;
  }
}

let captured: Security | null = null;
const other = startApi({
  security: (_parts, defaults) => {
    captured = defaults;
    return {};
  },
});
after(() => other.server.close());
function security(): Security {
  if (!captured) throw new Error('the server has not made its security');
  return captured;
}

test('the refusal of a user without the right names the narrower right', async () => {
  assert.equal(
    await asRobot({ 'impersonate-user': 'jane' }),
    'pods is forbidden: User "system:serviceaccount:default:robot" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "default"',
  );
  assert.equal(
    await asRobot({ 'impersonate-user': 'system:node:n1', 'impersonate-group': 'system:nodes' }),
    'users "system:node:n1" is forbidden: User "system:serviceaccount:default:robot" cannot impersonate resource "users" in API group "" at the cluster scope',
  );
});

const issue = (spec: object) => api.request('POST', `${CORE}/serviceaccounts/robot/token`, { spec });
const review = async (token: string, audiences?: string[]) =>
  (await api.request('POST', '/apis/authentication.k8s.io/v1/tokenreviews', { spec: { token, audiences } }))
    .body.status;

test('a token bound to a pod names the pod, and is invalid after its deletion', async () => {
  const made = await api.request('POST', `${CORE}/pods`, pod('bearer', { serviceAccountName: 'robot' }));
  const { uid } = made.body.metadata;
  const { body } = await issue({ boundObjectRef: { kind: 'Pod', apiVersion: 'v1', name: 'bearer', uid } });
  const { user, authenticated } = await review(body.status.token);
  assert.equal(authenticated, true);
  assert.deepEqual(user.extra['authentication.kubernetes.io/pod-name'], ['bearer']);
  await api.request('DELETE', `${CORE}/pods/bearer?gracePeriodSeconds=0`);
  assert.equal((await review(body.status.token)).authenticated, undefined);
});

const REFUSED: readonly [name: string, spec: object, status: number, message: RegExp][] = [
  ['for five seconds', { expirationSeconds: 5 }, 422, /may not specify a duration less than 10 minutes/],
  [
    'for a missing pod',
    { boundObjectRef: { kind: 'Pod', apiVersion: 'v1', name: 'none' } },
    404,
    /pods "none" not found/,
  ],
  [
    'for another kind',
    { boundObjectRef: { kind: 'Foo', apiVersion: 'v1', name: 'x' } },
    400,
    /cannot bind token to object of type \/v1, Kind=Foo/,
  ],
];

for (const [name, spec, status, message] of REFUSED) {
  test(`a token ${name} is refused`, async () => {
    const answer = await issue(spec);
    assert.equal(answer.status, status);
    assert.match(answer.body.message, message);
  });
}

test('a Secret of a service account gets a token, which is valid as long as the Secret', async () => {
  const annotations = { 'kubernetes.io/service-account.name': 'robot' };
  await api.request('POST', `${CORE}/secrets`, {
    metadata: { name: 'robot-token', annotations },
    type: 'kubernetes.io/service-account-token',
  });
  let data: Record<string, string> = {};
  for (let left = 100; left > 0 && !data['token']; left--) {
    await new Promise((resolve) => {
      setTimeout(resolve, 10);
    });
    data = (await api.request('GET', `${CORE}/secrets/robot-token`)).body.data ?? {};
  }
  assert.deepEqual(Object.keys(data).sort(), ['ca.crt', 'namespace', 'token']);
  const token = Buffer.from(data['token'] ?? '', 'base64').toString();
  assert.equal((await review(token)).user.username, 'system:serviceaccount:default:robot');
  await api.request('DELETE', `${CORE}/secrets/robot-token`);
  assert.equal((await review(token)).authenticated, undefined);
});

test('verifiers find the keys of tokens through the issuer', async () => {
  const { body } = await api.request('GET', '/.well-known/openid-configuration');
  assert.equal(body.issuer, 'https://kubernetes.default.svc.cluster.local');
  const keys = JSON.parse(String((await api.request('GET', '/openid/v1/jwks')).body));
  assert.equal(keys.keys[0].alg, 'ES256');
});

test('access reviews work for other users', async () => {
  await grant('reader', { apiGroups: [''], resources: ['pods'], verbs: ['get'] });
  const ask = (verb: string) =>
    api.request('POST', '/apis/authorization.k8s.io/v1/subjectaccessreviews', {
      spec: { user: 'reader', resourceAttributes: { verb, resource: 'pods', namespace: 'default' } },
    });
  assert.equal((await ask('get')).body.status.allowed, true);
  assert.equal((await ask('delete')).body.status.allowed, false);
  const empty = await api.request('POST', '/apis/authorization.k8s.io/v1/subjectaccessreviews', {
    spec: { user: 'x' },
  });
  assert.equal(
    empty.body.message,
    '.authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified',
  );
});

test('extra fields with the names of properties of objects are impersonated, and need the right', async (t) => {
  const api = startApi();
  t.after(() => api.server.close());
  for (const key of ['__proto__', 'constructor', 'tostring']) {
    const headers = { 'impersonate-user': 'jane', [`impersonate-extra-${key}`]: 'deep' };
    const review = '/apis/authentication.k8s.io/v1/selfsubjectreviews';
    const { status, body } = await api.request('POST', review, {}, headers);
    assert.equal(status, 201, key);
    assert.deepEqual(Object.entries(body.status.userInfo.extra), [[key, ['deep']]]);
  }
});
