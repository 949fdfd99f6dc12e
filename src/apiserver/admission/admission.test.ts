import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { CORE, pod, startApi } from '../testing/api.ts';

const api = startApi({ mountTokens: true });
after(() => api.server.close());
await api.request('POST', `${CORE}/serviceaccounts`, { metadata: { name: 'default' } });

const withResources = (name: string, resources: object) => ({
  ...pod(name),
  spec: { containers: [{ name: 'c', image: 'host', resources }] },
});
const create = (body: object, query = '?dryRun=All', headers: Record<string, string> = {}) =>
  api.request('POST', `${CORE}/pods${query}`, body, headers);

async function limits(...items: object[]) {
  await api.request('POST', `${CORE}/limitranges`, { metadata: { name: 'limits' }, spec: { limits: items } });
  return () => api.request('DELETE', `${CORE}/limitranges/limits`);
}

const LIMITS: readonly [name: string, item: object, resources: object, refusal: string | null][] = [
  ['within min and max', { min: { cpu: '100m' }, max: { cpu: '1' } }, { limits: { cpu: '500m' } }, null],
  [
    'below min',
    { min: { cpu: '100m' } },
    { requests: { cpu: '50m' } },
    'minimum cpu usage per Container is 100m, but request is 50m',
  ],
  [
    'above max',
    { max: { memory: '1Gi' } },
    { limits: { memory: '2Gi' } },
    'maximum memory usage per Container is 1Gi, but limit is 2Gi',
  ],
  [
    'above the ratio',
    { maxLimitRequestRatio: { cpu: '2' } },
    { requests: { cpu: '100m' }, limits: { cpu: '300m' } },
    'cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000',
  ],
];

for (const [name, item, resources, refusal] of LIMITS) {
  test(`a LimitRange: a container ${name}`, async () => {
    const remove = await limits({ type: 'Container', ...item });
    const { status, body } = await create(withResources('p', resources));
    await remove();
    if (refusal === null) assert.equal(status, 201, body.message);
    else assert.deepEqual([status, body.message], [403, `pods "p" is forbidden: ${refusal}`]);
  });
}

test('a LimitRange sets its defaults, and a container’s own limit counts as the request', async () => {
  const remove = await limits({
    type: 'Container',
    default: { cpu: '500m' },
    defaultRequest: { cpu: '100m' },
  });
  const plain = await create(withResources('p', {}));
  const own = await create(withResources('p', { limits: { cpu: '2' } }));
  await remove();
  assert.deepEqual(plain.body.spec.containers[0].resources, {
    limits: { cpu: '500m' },
    requests: { cpu: '100m' },
  });
  assert.deepEqual(own.body.spec.containers[0].resources, { limits: { cpu: '2' }, requests: { cpu: '2' } });
  assert.match(plain.body.metadata.annotations['kubernetes.io/limit-ranger'], /cpu request for container c/);
});

test('a quota counts admitted objects immediately, and refuses what would exceed it', async () => {
  await api.request('POST', `${CORE}/resourcequotas`, {
    metadata: { name: 'q' },
    spec: { hard: { pods: '2', 'requests.cpu': '1' } },
  });
  await api.request(
    'PATCH',
    `${CORE}/resourcequotas/q/status`,
    { status: { hard: { pods: '2', 'requests.cpu': '1' } } },
    {
      'content-type': 'application/merge-patch+json',
    },
  );
  const cpu = (amount: string) => ({ requests: { cpu: amount } });
  const answers = await Promise.all(
    ['a', 'b', 'c'].map((name) => create(withResources(name, cpu('100m')), '')),
  );
  assert.deepEqual(answers.map(({ status }) => status).sort(), [201, 201, 403]);
  assert.equal(
    answers.find(({ status }) => status === 403)?.body.message,
    'pods "c" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2',
  );
  const { body } = await api.request('GET', `${CORE}/resourcequotas/q`);
  assert.deepEqual(body.status.used, { pods: '2', 'requests.cpu': '200m' });
  const missing = await create(withResources('d', {}));
  assert.equal(
    missing.body.message,
    'pods "d" is forbidden: failed quota: q: must specify requests.cpu for: c',
  );
  for (const name of ['a', 'b']) await api.request('DELETE', `${CORE}/pods/${name}?gracePeriodSeconds=0`);
  await api.request('DELETE', `${CORE}/resourcequotas/q`);
});

test('a pod gets its account, the token as files, and tolerations', async () => {
  const { body } = await create(pod('p'));
  assert.equal(body.spec.serviceAccountName, 'default');
  const [volume] = body.spec.volumes;
  assert.match(volume.name, /^kube-api-access-/);
  assert.equal(
    body.spec.containers[0].volumeMounts[0].mountPath,
    '/var/run/secrets/kubernetes.io/serviceaccount',
  );
  assert.deepEqual(
    body.spec.tolerations.map(({ key, tolerationSeconds }: Record<string, unknown>) => [
      key,
      tolerationSeconds,
    ]),
    [
      ['node.kubernetes.io/not-ready', 300],
      ['node.kubernetes.io/unreachable', 300],
    ],
  );
});

test('a pod of an unknown account, class or runtime is refused', async () => {
  const rows: [spec: object, message: string][] = [
    [
      { serviceAccountName: 'none' },
      'error looking up service account default/none: serviceaccount "none" not found',
    ],
    [{ priorityClassName: 'none' }, 'no PriorityClass with name none was found'],
    [{ runtimeClassName: 'none' }, 'pod rejected: RuntimeClass "none" not found'],
  ];
  for (const [spec, message] of rows) {
    const answer = await create(pod('p', spec));
    assert.deepEqual([answer.status, answer.body.message], [403, `pods "p" is forbidden: ${message}`]);
  }
});

const AS_NODE = { 'impersonate-user': 'system:node:n1', 'impersonate-group': 'system:nodes' };

test('a node may read only objects that its pods refer to', async () => {
  for (const name of ['used', 'other']) {
    await api.request('POST', `${CORE}/secrets`, { metadata: { name } });
  }
  const spec = { nodeName: 'n1', volumes: [{ name: 's', secret: { secretName: 'used' } }] };
  await create(pod('on-n1', spec), '');
  const read = (name: string) => api.request('GET', `${CORE}/secrets/${name}`, undefined, AS_NODE);
  assert.equal((await read('used')).status, 200);
  const refused = await read('other');
  assert.equal(
    refused.body.message,
    `secrets "other" is forbidden: User "system:node:n1" cannot get resource "secrets" in API group "" in the namespace "default": no relationship found between node 'n1' and this object`,
  );
  await api.request('DELETE', `${CORE}/pods/on-n1?gracePeriodSeconds=0`);
  assert.equal((await read('used')).status, 403);
});

test('a node may change only its own Node, without reserved labels', async () => {
  for (const name of ['n1', 'n2']) await api.request('POST', '/api/v1/nodes', { metadata: { name } });
  const label = (node: string, key: string) =>
    api.request(
      'PATCH',
      `/api/v1/nodes/${node}`,
      { metadata: { labels: { [key]: 'x' } } },
      {
        ...AS_NODE,
        'content-type': 'application/merge-patch+json',
      },
    );
  const rows: [node: string, label: string, message: string | null][] = [
    ['n1', 'example.com/rack', null],
    ['n1', 'topology.kubernetes.io/zone', null],
    ['n2', 'example.com/rack', 'node "n1" is not allowed to modify node "n2"'],
    [
      'n1',
      'node-role.kubernetes.io/control-plane',
      'node "n1" is not allowed to modify the following labels: node-role.kubernetes.io/control-plane',
    ],
    [
      'n1',
      'x.node-restriction.kubernetes.io/a',
      'node "n1" is not allowed to modify the following labels: x.node-restriction.kubernetes.io/a',
    ],
  ];
  for (const [node, key, message] of rows) {
    const { status, body } = await label(node, key);
    if (message === null) assert.equal(status, 200, body.message);
    else assert.deepEqual([status, body.message], [403, `nodes "${node}" is forbidden: ${message}`]);
  }
});

test('Leases of announced addresses are written by announcers, not by nodes, which have their own', async () => {
  const announcer = {
    'impersonate-user': 'fairlead:announcer:n1',
    'impersonate-group': 'fairlead:announcers',
  };
  const rows: [who: object, namespace: string, name: string, message: string | null][] = [
    [announcer, 'fairlead-leases', 'address', null],
    [announcer, 'kube-system', 'address', 'in the namespace "kube-system"'],
    [AS_NODE, 'kube-node-lease', 'n1', null],
    [AS_NODE, 'kube-system', 'other', 'can only access leases in the "kube-node-lease" system namespace'],
    [
      AS_NODE,
      'kube-node-lease',
      'n2',
      'can only access node lease with the same name as the requesting node',
    ],
  ];
  for (const [who, namespace, name, message] of rows) {
    const lease = { metadata: { name, labels: { 'fairlead.dev/load-balancer': 'address' } } };
    const path = `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases`;
    const { status, body } = await api.request('POST', path, lease, { ...who });
    if (message === null) assert.equal(status, 201, body.message);
    else {
      // By the authorizer, or by the admission plugin, which knows the name of an object that is created.
      assert.equal(status, 403);
      assert.ok(body.message?.endsWith(message), body.message);
    }
  }
});

test('a node gets tokens only for audiences that the volumes of the pod name, or that a role allows', async (t) => {
  const api = startApi();
  t.after(() => api.server.close());
  const core = '/api/v1/namespaces/default';
  const rbac = '/apis/rbac.authorization.k8s.io/v1';
  await api.request('POST', `${core}/serviceaccounts`, { metadata: { name: 'default' } });
  await api.request('POST', '/api/v1/nodes', { metadata: { name: 'n1' } });
  await api.request('POST', '/apis/storage.k8s.io/v1/csidrivers', {
    metadata: { name: 'csi.example.com' },
    spec: { tokenRequests: [{ audience: 'csi' }] },
  });
  const { body: pod } = await api.request('POST', `${core}/pods`, {
    metadata: { name: 'web' },
    spec: {
      nodeName: 'n1',
      serviceAccountName: 'default',
      volumes: [
        { name: 'a', projected: { sources: [{ serviceAccountToken: { path: 't', audience: 'vault' } }] } },
        { name: 'b', csi: { driver: 'csi.example.com' } },
      ],
      containers: [{ name: 'c', image: 'i' }],
    },
  });
  const ask = async (audiences: readonly string[]) => {
    const { status, body } = await api.request(
      'POST',
      `${core}/serviceaccounts/default/token`,
      {
        spec: {
          audiences,
          boundObjectRef: { apiVersion: 'v1', kind: 'Pod', name: 'web', uid: pod.metadata.uid },
        },
      },
      { 'impersonate-user': 'system:node:n1', 'impersonate-group': 'system:nodes' },
    );
    return [status, body.message];
  };
  const refused = (audience: string) => [
    403,
    `serviceaccounts "default" is forbidden: audience "${audience}" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience`,
  ];
  for (const audiences of [[], ['vault'], ['csi']])
    assert.deepEqual(await ask(audiences), [201, undefined], audiences.join());
  assert.deepEqual(await ask(['bank']), refused('bank'));
  assert.deepEqual(
    await ask(['https://kubernetes.default.svc.cluster.local']),
    refused('https://kubernetes.default.svc.cluster.local'),
  );
  assert.deepEqual(await ask(['vault', 'csi']), [
    403,
    'serviceaccounts "default" is forbidden: node may only request 0 or 1 audiences',
  ]);
  await api.request('POST', `${rbac}/clusterroles`, {
    metadata: { name: 'bank' },
    rules: [{ apiGroups: [''], resources: ['bank'], verbs: ['request-serviceaccounts-token-audience'] }],
  });
  await api.request('POST', `${rbac}/clusterrolebindings`, {
    metadata: { name: 'bank' },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'bank' },
    subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'Group', name: 'system:nodes' }],
  });
  assert.deepEqual(await ask(['bank']), [201, undefined]);
});
