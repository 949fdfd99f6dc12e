import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { type Answer, APPS, CORE, configMap, deployment, pod, startApi } from './testing/api.ts';

const api = startApi();
after(() => api.server.close());
const { request } = api;
const merge = { 'content-type': 'application/merge-patch+json' };

test('create answers 201 with the fields that the server set', async () => {
  const { status, body } = await request('POST', `${CORE}/configmaps`, configMap('made', { a: 'b' }));
  assert.equal(status, 201);
  assert.equal(body.metadata.namespace, 'default');
  assert.match(body.metadata.uid, /^[0-9a-f-]{36}$/);
  assert.match(body.metadata.creationTimestamp, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  assert.match(body.metadata.resourceVersion, /^\d+$/);
});

test('generateName appends five characters', async () => {
  const { body } = await request('POST', `${CORE}/configmaps`, {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { generateName: 'gen-' },
  });
  assert.match(body.metadata.name, /^gen-[a-z0-9]{5}$/);
});

test('a node without the field is schedulable for the field selector', async () => {
  const node = { apiVersion: 'v1', kind: 'Node', metadata: { name: 'plain' } };
  await request('POST', '/api/v1/nodes', node);
  const names = async (selector: string) => {
    const { body } = await request('GET', `/api/v1/nodes?fieldSelector=${encodeURIComponent(selector)}`);
    return body.items.map((item: { metadata: { name: string } }) => item.metadata.name);
  };
  assert.deepEqual(await names('spec.unschedulable=false'), ['plain']);
  assert.deepEqual(await names('spec.unschedulable=true'), []);
});

interface Refusal {
  readonly what: string;
  readonly send: () => Promise<Answer>;
  readonly status: number;
  readonly reason: string;
  readonly message: RegExp;
}

const refusals: Refusal[] = [
  {
    what: 'a name in use',
    send: () => request('POST', `${CORE}/configmaps`, configMap('made')),
    status: 409,
    reason: 'AlreadyExists',
    message: /^configmaps "made" already exists$/,
  },
  {
    what: 'a name with capitals',
    send: () => request('POST', `${CORE}/configmaps`, configMap('Bad')),
    status: 422,
    reason: 'Invalid',
    message:
      /^ConfigMap "Bad" is invalid: metadata\.name: Invalid value: "Bad": a lowercase RFC 1123 subdomain/,
  },
  {
    what: 'no name',
    send: () => request('POST', `${CORE}/configmaps`, { apiVersion: 'v1', kind: 'ConfigMap' }),
    status: 422,
    reason: 'Invalid',
    message: /metadata\.name: Required value: name or generateName is required/,
  },
  {
    what: 'a namespace that does not exist',
    send: () => request('POST', '/api/v1/namespaces/nowhere/configmaps', configMap('x')),
    status: 404,
    reason: 'NotFound',
    message: /^namespaces "nowhere" not found$/,
  },
  {
    what: 'an object of another kind',
    send: () => request('POST', `${CORE}/configmaps`, pod('x')),
    status: 400,
    reason: 'BadRequest',
    message: /Pod in version "v1" cannot be handled as a ConfigMap/,
  },
  {
    what: 'a body that is not JSON',
    send: () => request('POST', `${CORE}/configmaps`, '{'),
    status: 400,
    reason: 'BadRequest',
    message: /cannot be decoded as application\/json/,
  },
  {
    what: 'an unknown field under strict validation',
    send: () =>
      request(
        'POST',
        `${CORE}/pods?fieldValidation=Strict`,
        pod('x', { containers: [{ name: 'c', image: 'i', imagge: 'j' }] }),
      ),
    status: 400,
    reason: 'BadRequest',
    message: /strict decoding error: unknown field "spec\.containers\[0\]\.imagge"/,
  },
  {
    what: 'a bad label',
    send: () => request('POST', `${CORE}/configmaps`, configMap('x', {}, { a: 'b c' })),
    status: 422,
    reason: 'Invalid',
    message: /metadata\.labels: Invalid value: "b c": a valid label must be/,
  },
  {
    what: 'a selector that does not match the template',
    send: () =>
      request('POST', `${APPS}/deployments`, deployment('x', { selector: { matchLabels: { app: 'y' } } })),
    status: 422,
    reason: 'Invalid',
    message: /spec\.template\.metadata\.labels: Invalid value: .*`selector` does not match template `labels`/,
  },
  {
    what: 'a port out of range',
    send: () =>
      request(
        'POST',
        `${CORE}/pods`,
        pod('x', { containers: [{ name: 'c', image: 'i', ports: [{ containerPort: 70000 }] }] }),
      ),
    status: 422,
    reason: 'Invalid',
    message:
      /spec\.containers\[0\]\.ports\[0\]\.containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive/,
  },
  {
    what: 'two containers with the same name',
    send: () =>
      request(
        'POST',
        `${CORE}/pods`,
        pod('x', {
          containers: [
            { name: 'c', image: 'i' },
            { name: 'c', image: 'i' },
          ],
        }),
      ),
    status: 422,
    reason: 'Invalid',
    message: /spec\.containers\[1\]\.name: Duplicate value: "c"/,
  },
  {
    what: 'a mount of a missing volume',
    send: () =>
      request(
        'POST',
        `${CORE}/pods`,
        pod('x', { containers: [{ name: 'c', image: 'i', volumeMounts: [{ name: 'v', mountPath: '/v' }] }] }),
      ),
    status: 422,
    reason: 'Invalid',
    message: /spec\.containers\[0\]\.volumeMounts\[0\]\.name: Not found: "v"/,
  },
  {
    what: 'a value of the wrong type',
    send: () => request('POST', `${APPS}/deployments`, deployment('x', { replicas: 'two' })),
    status: 400,
    reason: 'BadRequest',
    message: /cannot unmarshal string into Go struct field .*spec\.replicas of type int32/,
  },
  {
    what: 'a get of a missing object',
    send: () => request('GET', `${APPS}/deployments/none`),
    status: 404,
    reason: 'NotFound',
    message: /^deployments\.apps "none" not found$/,
  },
  {
    what: 'a malformed label selector',
    send: () => request('GET', `${CORE}/pods?labelSelector=a%20in%20(b`),
    status: 400,
    reason: 'BadRequest',
    message: /unable to parse requirement/,
  },
  {
    what: 'an unsupported field in a selector',
    send: () => request('GET', `${CORE}/pods?fieldSelector=spec.foo%3Dbar`),
    status: 400,
    reason: 'BadRequest',
    message: /field label not supported: spec\.foo/,
  },
  {
    what: 'deleting the namespace default',
    send: () => request('DELETE', '/api/v1/namespaces/default'),
    status: 403,
    reason: 'Forbidden',
    message: /this namespace may not be deleted/,
  },
  {
    what: 'resourceVersionMatch without a version',
    send: () => request('GET', `${CORE}/pods?resourceVersionMatch=Exact`),
    status: 422,
    reason: 'Invalid',
    message: /resourceVersionMatch is forbidden unless resourceVersion is provided/,
  },
  {
    what: 'the next page of a list at another version',
    send: () => request('GET', `${CORE}/pods?limit=1&continue=MTpkZWZhdWx0L2E&resourceVersion=1`),
    status: 400,
    reason: 'BadRequest',
    message: /^specifying resource version is not allowed when using continue$/,
  },
];

for (const { what, send, status, reason, message } of refusals) {
  test(`refuses ${what}`, async () => {
    const answer = await send();
    assert.equal(answer.status, status, JSON.stringify(answer.body));
    assert.equal(answer.body.kind, 'Status');
    assert.equal(answer.body.reason, reason);
    assert.match(answer.body.message, message);
  });
}

test('an unknown field is dropped with a warning if validation only warns', async () => {
  const { status, headers, body } = await request('POST', `${CORE}/pods`, {
    ...pod('warned'),
    specc: {},
  });
  assert.equal(status, 201);
  assert.equal(headers['warning'], '299 - "unknown field \\"specc\\""');
  assert.equal(body.specc, undefined);
});

test('a warning with characters outside ASCII is a valid header', async () => {
  const { status, headers } = await request('POST', `${CORE}/pods`, { ...pod('umlaut'), spéc: {} });
  assert.equal(status, 201);
  assert.match(headers['warning'] ?? '', /^299 - "[\x20-\x7e]+"$/);
});

for (const { handler, warning } of [
  { handler: 'crun', warning: undefined },
  { handler: 'runc', warning: undefined },
  { handler: 'kata', warning: /^299 - "nodes have one runtime, .* stay Pending/ },
]) {
  test(`a RuntimeClass with the handler ${handler} ${warning ? 'is answered with a warning' : 'is served'}`, async () => {
    const { status, headers } = await request('POST', '/apis/node.k8s.io/v1/runtimeclasses', {
      apiVersion: 'node.k8s.io/v1',
      kind: 'RuntimeClass',
      metadata: { name: `with-${handler}` },
      handler,
    });
    assert.equal(status, 201);
    if (warning) assert.match(headers['warning'] ?? '', warning);
    else assert.equal(headers['warning'], undefined);
  });
}

test('unknown paths', async () => {
  for (const [path, expected] of [
    ['/api/v1/%', 400],
    ['/api/v1/namespaces/%ff/pods/%fe', 400],
    ['/api', 200],
    ['/nothing', 404],
    ['/api/v1/namespaces/default/nothing', 404],
    ['/api/v1/namespaces/default/pods/p/nothing', 404],
    ['/api/v1/pods/p', 404],
    ['/api/v1/namespaces/default/nodes', 404],
  ] as const) {
    assert.equal((await request('GET', path)).status, expected, path);
  }
});

test('a new pod gets upstream’s defaults', async () => {
  const { body } = await request('POST', `${CORE}/pods`, pod('plain'));
  assert.equal(body.spec.restartPolicy, 'Always');
  assert.equal(body.spec.containers[0].imagePullPolicy, 'Always');
  assert.equal(body.spec.terminationGracePeriodSeconds, 30);
  assert.equal(body.spec.serviceAccountName, 'default');
  assert.equal(body.status.phase, 'Pending');
  assert.equal(body.status.qosClass, 'BestEffort');
  assert.deepEqual(
    body.spec.tolerations.map((toleration: { key: string }) => toleration.key),
    ['node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable'],
  );
});

test('a pod has the priority of its class', async () => {
  const ask = (name: string, spec: object) => {
    const { spec: rest, ...object } = pod(name);
    return request('POST', `${CORE}/pods`, { ...object, spec: { ...rest, ...spec } });
  };
  const classes = '/apis/scheduling.k8s.io/v1/priorityclasses';
  const made = await request('POST', classes, {
    apiVersion: 'scheduling.k8s.io/v1',
    kind: 'PriorityClass',
    metadata: { name: 'batch' },
    value: -5,
    preemptionPolicy: 'Never',
  });
  assert.equal(made.status, 201);
  const rows: [spec: object, priority: number, policy: string][] = [
    [{}, 0, 'PreemptLowerPriority'],
    [{ priorityClassName: 'batch' }, -5, 'Never'],
    [{ priorityClassName: 'system-node-critical', priority: 2000001000 }, 2000001000, 'PreemptLowerPriority'],
  ];
  for (const [i, [spec, priority, policy]] of rows.entries()) {
    const { body } = await ask(`ranked-${i}`, spec);
    assert.deepEqual([body.spec.priority, body.spec.preemptionPolicy], [priority, policy]);
  }
  const unknown = await ask('unranked', { priorityClassName: 'none' });
  assert.equal(unknown.status, 403);
  assert.equal(
    unknown.body.message,
    'pods "unranked" is forbidden: no PriorityClass with name none was found',
  );
  assert.match(
    (await ask('unranked', { priority: 7 })).body.message,
    /the integer value of priority \(7\) must not be provided in pod spec/,
  );
  const tooHigh = { apiVersion: 'scheduling.k8s.io/v1', kind: 'PriorityClass', metadata: { name: 'x' } };
  assert.equal((await request('POST', classes, { ...tooHigh, value: 1_000_000_001 })).status, 422);
});

test('an update with an old version is refused, one without a version is not', async () => {
  const { body: first } = await request('POST', `${CORE}/configmaps`, configMap('raced', { a: '1' }));
  const second = await request('PUT', `${CORE}/configmaps/raced`, { ...first, data: { a: '2' } });
  assert.equal(second.status, 200);
  const stale = await request('PUT', `${CORE}/configmaps/raced`, { ...first, data: { a: '3' } });
  assert.equal(stale.status, 409);
  assert.match(
    stale.body.message,
    /the object has been modified; please apply your changes to the latest version/,
  );
  const blind = await request('PUT', `${CORE}/configmaps/raced`, configMap('raced', { a: '4' }));
  assert.equal(blind.status, 200);
});

test('version 0 is none: an update is unconditional, or refused by kinds that require a version', async () => {
  const versioned = (object: { metadata: object }) => ({
    ...object,
    metadata: { ...object.metadata, resourceVersion: '0' },
  });
  await request('POST', `${CORE}/configmaps`, configMap('unversioned', { a: '1' }));
  const changed = versioned(configMap('unversioned', { a: '2' }));
  assert.equal((await request('PUT', `${CORE}/configmaps/unversioned`, changed)).status, 200);
  const patch = { metadata: { resourceVersion: '0' }, data: { a: '3' } };
  assert.equal((await request('PATCH', `${CORE}/configmaps/unversioned`, patch, merge)).status, 200);
  const leases = '/apis/coordination.k8s.io/v1/namespaces/default/leases';
  const lease = versioned({
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: { name: 'new' },
    spec: { holderIdentity: 'a' },
  } as { metadata: object });
  // Created by an update.
  assert.equal((await request('PUT', `${leases}/new`, lease)).status, 201);
  const { status, body } = await request('PUT', `${leases}/new`, lease);
  assert.equal(status, 422);
  assert.match(body.message, /metadata.resourceVersion: .* must be specified for an update/);
});

test('a new pod with scheduling gates says that they block it', async () => {
  const pod = (name: string, fields: object) => ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name },
    spec: { containers: [{ name: 'c', image: 'i' }], ...fields },
  });
  const gates = { schedulingGates: [{ name: 'example.com/wait' }] };
  const { body: gated } = await request('POST', `${CORE}/pods`, pod('gated', gates));
  assert.deepEqual(
    gated.status.conditions.map(({ type, status, reason }: Record<string, string>) => [type, status, reason]),
    [['PodScheduled', 'False', 'SchedulingGated']],
  );
  const { body: free } = await request('POST', `${CORE}/pods`, pod('free', {}));
  assert.equal(free.status.conditions, undefined);
});

test('an update without changes creates no new version', async () => {
  const { body: before } = await request('GET', `${CORE}/configmaps/made`);
  const { body: after } = await request('PUT', `${CORE}/configmaps/made`, before);
  assert.equal(after.metadata.resourceVersion, before.metadata.resourceVersion);
});

test('generation counts changes of the spec, not of labels or status', async () => {
  const path = `${APPS}/deployments/counted`;
  const { body: made } = await request('POST', `${APPS}/deployments`, deployment('counted'));
  assert.equal(made.metadata.generation, 1);
  await request('PATCH', path, { metadata: { labels: { a: 'b' } } }, merge);
  const { body: status } = await request(
    'PATCH',
    `${path}/status`,
    { spec: { replicas: 7 }, status: { replicas: 3 } },
    merge,
  );
  assert.equal(status.metadata.generation, 1);
  assert.equal(status.spec.replicas, 1, 'a write to the status leaves the spec alone');
  assert.equal(status.status.replicas, 3);
  const { body: scaled } = await request(
    'PATCH',
    path,
    { spec: { replicas: 2 }, status: { replicas: 9 } },
    merge,
  );
  assert.equal(scaled.metadata.generation, 2);
  assert.equal(scaled.status.replicas, 3, 'a write to the object leaves the status alone');
});

test('scale reads and writes the replica count', async () => {
  await request('POST', `${APPS}/deployments`, deployment('scaled'));
  const path = `${APPS}/deployments/scaled/scale`;
  const { body: scale } = await request('GET', path);
  assert.equal(scale.kind, 'Scale');
  assert.equal(scale.status.selector, 'app=scaled');
  const { body: more } = await request('PATCH', path, { spec: { replicas: 5 } }, merge);
  assert.equal(more.spec.replicas, 5);
  const bad = await request('PATCH', path, { spec: { replicas: -1 } }, merge);
  assert.equal(bad.status, 422);
});

test('a dry run returns the result, and stores nothing', async () => {
  const { status } = await request('POST', `${CORE}/configmaps?dryRun=All`, configMap('dry'));
  assert.equal(status, 201);
  assert.equal((await request('GET', `${CORE}/configmaps/dry`)).status, 404);
});

test('binding assigns a pod to a node, once', async () => {
  await request('POST', `${CORE}/pods`, pod('bound'));
  const binding = {
    apiVersion: 'v1',
    kind: 'Binding',
    metadata: { name: 'bound' },
    target: { kind: 'Node', name: 'n1' },
  };
  assert.equal((await request('POST', `${CORE}/pods/bound/binding`, binding)).status, 201);
  const { body } = await request('GET', `${CORE}/pods/bound`);
  assert.equal(body.spec.nodeName, 'n1');
  assert.equal(body.status.conditions[0].type, 'PodScheduled');
  const again = await request('POST', `${CORE}/pods/bound/binding`, binding);
  assert.equal(again.status, 409);
});

test('of a pod’s spec, only the images can be changed', async () => {
  await request('POST', `${CORE}/pods`, pod('fixed'));
  const strategic = { 'content-type': 'application/strategic-merge-patch+json' };
  const image = { spec: { containers: [{ name: 'c', image: 'other' }] } };
  assert.equal((await request('PATCH', `${CORE}/pods/fixed`, image, strategic)).status, 200);
  const command = { spec: { containers: [{ name: 'c', command: ['x'] }] } };
  const refused = await request('PATCH', `${CORE}/pods/fixed`, command, strategic);
  assert.equal(refused.status, 422);
  assert.match(refused.body.message, /pod updates may not change fields other than/);
});

test('an Event of events.k8s.io is the same Event in core', async () => {
  await request('POST', '/apis/events.k8s.io/v1/namespaces/default/events', {
    apiVersion: 'events.k8s.io/v1',
    kind: 'Event',
    metadata: { name: 'e1' },
    eventTime: '2026-01-01T00:00:00.000000Z',
    regarding: { kind: 'Pod', name: 'p1', namespace: 'default' },
    note: 'hello',
    reason: 'Tested',
    type: 'Normal',
    action: 'Test',
    reportingController: 'tester',
    reportingInstance: 't1',
  });
  const { body } = await request('GET', `${CORE}/events?fieldSelector=involvedObject.name%3Dp1`);
  assert.equal(body.items[0].message, 'hello');
  // The items of a list have no type of their own, as upstream's.
  assert.equal(body.items[0].apiVersion, undefined);
  const back = await request('GET', '/apis/events.k8s.io/v1/namespaces/default/events/e1');
  assert.equal(back.body.note, 'hello');
  assert.equal(back.body.apiVersion, 'events.k8s.io/v1');
});

test('a lease is created by the first PUT', async () => {
  const lease = {
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: { name: 'l1' },
    spec: { holderIdentity: 'a' },
  };
  const { status } = await request('PUT', '/apis/coordination.k8s.io/v1/namespaces/default/leases/l1', lease);
  assert.equal(status, 201);
});

test('clients can request only the metadata', async () => {
  const { body } = await request('GET', `${CORE}/configmaps/made`, undefined, {
    accept: 'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1',
  });
  assert.equal(body.kind, 'PartialObjectMetadata');
  assert.equal(body.data, undefined);
});

test('a Table has a row per object', async () => {
  const { body } = await request('GET', `${CORE}/configmaps?fieldSelector=metadata.name%3Dmade`, undefined, {
    accept: 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json',
  });
  assert.equal(body.kind, 'Table');
  assert.equal(body.rows[0].cells[0], 'made');
  assert.equal(body.rows[0].object.kind, 'PartialObjectMetadata');
});

test('metrics count requests and objects', async () => {
  const { body } = await request('GET', '/metrics');
  assert.match(body, /apiserver_request_total\{verb="POST",resource="configmaps",code="201"\} \d+/);
  assert.match(body, /apiserver_storage_objects\{resource="namespaces"\} \d+/);
});
