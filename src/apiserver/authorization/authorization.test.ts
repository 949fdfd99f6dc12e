import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { User } from '../authentication/user.ts';
import type { ApiObject } from '../object.ts';
import { startApi } from '../testing/api.ts';
import type { AuthorizationAttributes } from './authorizer.ts';
import { parseRule } from './bootstrap-policy.ts';
import { compactRules, type PolicyRule, ruleAllows, ruleText, uncovered } from './policy-rule.ts';
import { createRbac } from './rbac.ts';

const GROUP = 'rbac.authorization.k8s.io';
const alice: User = { name: 'alice', groups: ['dev', 'system:authenticated'] };
const robot: User = { name: 'system:serviceaccount:ci:robot', groups: ['system:serviceaccounts'] };

/** "VERB GROUP RESOURCE[/SUBRESOURCE] [NAMESPACE [NAME]]" or "VERB /path". */
function attributes(text: string, user: User = alice): AuthorizationAttributes {
  const [verb = '', second = '', resource = '', namespace = '', name = ''] = text.split(' ');
  const isPath = second.startsWith('/');
  const [plural = '', subresource = ''] = resource.split('/');
  return {
    user,
    verb,
    isResourceRequest: !isPath,
    apiGroup: second === '""' || isPath ? '' : second,
    apiVersion: 'v1',
    resource: plural,
    subresource,
    namespace: namespace === '-' ? '' : namespace,
    name,
    path: isPath ? second : '',
  };
}

const RULES: readonly [rule: string, request: string, allowed: boolean][] = [
  ['get,list "" pods', 'list "" pods default', true],
  ['get,list "" pods', 'watch "" pods default', false],
  ['get "" pods', 'get apps pods default', false],
  ['* * *', 'deletecollection apps deployments default', true],
  ['get "" pods', 'get "" pods/log default web', false],
  ['get "" pods/log', 'get "" pods/log default web', true],
  ['get "" */log', 'get "" pods/log default web', true],
  ['get "" *', 'get "" pods/log default web', true],
  ['update * */scale', 'update apps deployments/scale default web', true],
  ['update * */scale', 'update apps deployments default web', false],
  ['get "" pods web', 'get "" pods default web', true],
  ['get "" pods web', 'get "" pods default db', false],
  ['list "" pods web', 'list "" pods default', false],
  ['get /healthz', 'get /healthz', true],
  ['get /healthz', 'get /healthz/ping', false],
  ['get /healthz/*', 'get /healthz/ping', true],
  ['* *', 'post /anything', true],
  ['get /healthz', 'get "" pods default', false],
  ['get "" *', 'get /metrics', false],
];

for (const [rule, request, allowed] of RULES) {
  test(`the rule ${rule} ${allowed ? 'allows' : 'does not allow'} ${request}`, () => {
    assert.equal(ruleAllows(parseRule(rule), attributes(request)), allowed);
  });
}

const COVERS: readonly [owned: string, wanted: string, missing: string][] = [
  ['get,list "" pods', 'get "" pods', ''],
  ['get "" pods', 'get,list "" pods', '{APIGroups:[""], Resources:["pods"], Verbs:["list"]}'],
  ['* * *', 'get,list apps deployments,pods/log', ''],
  ['get "" pods web', 'get "" pods', '{APIGroups:[""], Resources:["pods"], Verbs:["get"]}'],
  ['get "" pods', 'get "" pods web', ''],
  ['get "" */log', 'get "" pods/log', ''],
  ['* * *', 'get /metrics', '{NonResourceURLs:["/metrics"], Verbs:["get"]}'],
  ['get /metrics*', 'get /metrics/cadvisor', ''],
  [
    'get "" pods',
    'get,list "",apps pods',
    '{APIGroups:[""], Resources:["pods"], Verbs:["list"]} {APIGroups:["apps"], Resources:["pods"], Verbs:["get" "list"]}',
  ],
];

for (const [owned, wanted, missing] of COVERS) {
  test(`of ${wanted}, the owner of ${owned} lacks ${missing || 'nothing'}`, () => {
    const rules: PolicyRule[] = compactRules(uncovered([parseRule(owned)], [parseRule(wanted)]));
    assert.equal(rules.map(ruleText).sort().join(' '), missing);
  });
}

const role = (kind: string, name: string, namespace: string, rule: string): ApiObject => {
  const { verbs, apiGroups, resources } = parseRule(rule);
  return {
    apiVersion: `${GROUP}/v1`,
    kind,
    metadata: { name, namespace },
    rules: [{ verbs, apiGroups, resources }],
  };
};
const binding = (kind: string, namespace: string, roleRef: string, subject: object): ApiObject => {
  const [roleKind, name] = roleRef.split('/');
  return {
    apiVersion: `${GROUP}/v1`,
    kind,
    metadata: { name: `to-${name}`, namespace },
    roleRef: { apiGroup: GROUP, kind: roleKind, name },
    subjects: [subject],
  };
};

const OBJECTS: Readonly<Record<string, readonly ApiObject[]>> = {
  [`clusterroles.${GROUP}`]: [role('ClusterRole', 'reader', '', 'get,list "" pods,nodes')],
  [`roles.${GROUP}`]: [role('Role', 'writer', 'team', 'create "" pods')],
  [`clusterrolebindings.${GROUP}`]: [
    binding('ClusterRoleBinding', '', 'ClusterRole/reader', { kind: 'Group', name: 'ops' }),
  ],
  [`rolebindings.${GROUP}`]: [
    binding('RoleBinding', 'team', 'ClusterRole/reader', { kind: 'User', name: 'alice' }),
    binding('RoleBinding', 'team', 'Role/writer', { kind: 'Group', name: 'dev' }),
    binding('RoleBinding', 'ci', 'ClusterRole/reader', { kind: 'ServiceAccount', name: 'robot' }),
    binding('RoleBinding', 'broken', 'Role/gone', { kind: 'User', name: 'alice' }),
  ],
};

const rbac = createRbac({
  get: (collection, key) =>
    OBJECTS[collection]?.find(({ metadata }) => `${metadata.namespace}/${metadata.name}` === key),
  list: (collection, namespace) =>
    (OBJECTS[collection] ?? []).filter(
      ({ metadata }) => namespace === undefined || metadata.namespace === namespace,
    ),
});

const DECISIONS: readonly [who: User, request: string, verdict: string, reason: string][] = [
  [
    { name: 'olga', groups: ['ops'] },
    'list "" nodes',
    'allow',
    'RBAC: allowed by ClusterRoleBinding "to-reader" of ClusterRole "reader" to Group "ops"',
  ],
  [
    alice,
    'get "" pods team web',
    'allow',
    'RBAC: allowed by RoleBinding "to-reader/team" of ClusterRole "reader" to User "alice"',
  ],
  [alice, 'get "" pods other web', 'noOpinion', ''],
  [alice, 'list "" nodes', 'noOpinion', ''],
  [
    alice,
    'create "" pods team',
    'allow',
    'RBAC: allowed by RoleBinding "to-writer/team" of Role "writer" to Group "dev"',
  ],
  [
    robot,
    'get "" pods ci web',
    'allow',
    'RBAC: allowed by RoleBinding "to-reader/ci" of ClusterRole "reader" to ServiceAccount "robot/ci"',
  ],
  [alice, 'get "" pods broken web', 'noOpinion', `RBAC: role.${GROUP} "gone" not found`],
];

for (const [who, request, verdict, reason] of DECISIONS) {
  test(`${who.name}: ${request}: ${verdict}`, async () => {
    const decision = await rbac.authorize(attributes(request, who));
    assert.deepEqual([decision.verdict, decision.reason], [verdict, reason]);
  });
}

test('a server has the default roles from its start, and restores removed rules', async () => {
  const api = startApi();
  const roles = await api.request('GET', `/apis/${GROUP}/v1/clusterroles`);
  const names = roles.body.items.map((item: ApiObject) => item.metadata.name);
  for (const name of ['admin', 'cluster-admin', 'edit', 'view', 'system:node', 'system:kube-scheduler'])
    assert.ok(names.includes(name), name);
  const view = await api.request('GET', `/apis/${GROUP}/v1/clusterroles/system:aggregate-to-view`);
  assert.ok(view.body.rules.length > 5);
  await api.server.close();
});

test('forbidden requests are refused in upstream’s words', async () => {
  const api = startApi();
  const bob = { 'impersonate-user': 'bob' };
  const rows: [method: string, path: string, message: string][] = [
    [
      'GET',
      '/api/v1/nodes',
      'nodes is forbidden: User "bob" cannot list resource "nodes" in API group "" at the cluster scope',
    ],
    [
      'GET',
      '/api/v1/namespaces/default/pods/x/log',
      'pods "x" is forbidden: User "bob" cannot get resource "pods/log" in API group "" in the namespace "default"',
    ],
    [
      'DELETE',
      '/apis/apps/v1/namespaces/x/deployments/y',
      'deployments.apps "y" is forbidden: User "bob" cannot delete resource "deployments" in API group "apps" in the namespace "x"',
    ],
    ['GET', '/metrics', 'forbidden: User "bob" cannot get path "/metrics"'],
  ];
  for (const [method, path, message] of rows) {
    const { status, body } = await api.request(method, path, undefined, bob);
    assert.deepEqual([status, body.message], [403, message]);
  }
  await api.server.close();
});

for (const stream of ['exec', 'attach', 'portforward']) {
  test(`${stream} by GET, as a WebSocket's handshake, needs the right to create it, too`, async (t) => {
    const api = startApi();
    t.after(() => api.server.close());
    const reader = { metadata: { name: 'streams' } };
    const role = (verbs: readonly string[]) => ({
      ...reader,
      rules: [{ apiGroups: [''], resources: [`pods/${stream}`], verbs }],
    });
    const roles = `/apis/${GROUP}/v1/namespaces/default`;
    await api.request('POST', `${roles}/roles`, role(['get']));
    await api.request('POST', `${roles}/rolebindings`, {
      ...reader,
      roleRef: { apiGroup: GROUP, kind: 'Role', name: 'streams' },
      subjects: [{ apiGroup: GROUP, kind: 'User', name: 'alice' }],
    });
    const path = `/api/v1/namespaces/default/pods/web/${stream}?command=id&stdout=true`;
    const ask = () => api.request('GET', path, undefined, { 'impersonate-user': 'alice' });
    const refused = await ask();
    assert.deepEqual(
      [refused.status, refused.body.message, refused.body.details],
      [403, 'pods "web" is forbidden: ', { name: 'web', kind: 'pods' }],
    );
    await api.request('PUT', `${roles}/roles/streams`, role(['get', 'create']));
    // There is no such pod: the request passed the authorization.
    assert.equal((await ask()).status, 404);
  });
}

test('roles cannot contain rights that their writer does not have', async () => {
  const api = startApi();
  const rbacPath = `/apis/${GROUP}/v1`;
  const asAlice = { 'impersonate-user': 'alice' };
  await api.request('POST', `${rbacPath}/clusterroles`, {
    metadata: { name: 'role-maker' },
    rules: [
      { apiGroups: [GROUP], resources: ['*'], verbs: ['create'] },
      { apiGroups: [''], resources: ['pods'], verbs: ['get'] },
    ],
  });
  await api.request('POST', `${rbacPath}/clusterrolebindings`, {
    metadata: { name: 'role-maker' },
    roleRef: { apiGroup: GROUP, kind: 'ClusterRole', name: 'role-maker' },
    subjects: [{ apiGroup: GROUP, kind: 'User', name: 'alice' }],
  });
  const make = (name: string, verbs: string[]) =>
    api.request(
      'POST',
      `${rbacPath}/clusterroles`,
      { metadata: { name }, rules: [{ apiGroups: [''], resources: ['pods'], verbs }] },
      asAlice,
    );
  assert.equal((await make('readers', ['get'])).status, 201);
  const refused = await make('listers', ['get', 'list']);
  assert.equal(refused.status, 403);
  assert.equal(
    refused.body.message,
    'clusterroles.rbac.authorization.k8s.io "listers" is forbidden: user "alice" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["list"]}',
  );
  const bound = await api.request(
    'POST',
    `${rbacPath}/clusterrolebindings`,
    {
      metadata: { name: 'all' },
      roleRef: { apiGroup: GROUP, kind: 'ClusterRole', name: 'cluster-admin' },
      subjects: [{ apiGroup: GROUP, kind: 'User', name: 'alice' }],
    },
    asAlice,
  );
  assert.equal(bound.status, 403);
  await api.server.close();
});
