import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { CORE, configMap, pod, startApi } from './testing/api.ts';

const api = startApi();
after(() => api.server.close());
const { request } = api;
const merge = { 'content-type': 'application/merge-patch+json' };

test('a running pod is removed after its grace period', async () => {
  await request('POST', `${CORE}/pods`, pod('graceful', { nodeName: 'n1' }));
  const path = `${CORE}/pods/graceful`;
  const { body: asked } = await request('DELETE', path);
  assert.equal(asked.metadata.deletionGracePeriodSeconds, 30);
  assert.ok(asked.metadata.deletionTimestamp);
  assert.equal((await request('GET', path)).status, 200);
  await request('DELETE', path, { gracePeriodSeconds: 0 });
  assert.equal((await request('GET', path)).status, 404);
});

describe('a second DELETE of a pod', () => {
  const rows: readonly [what: string, first: number, second: number | undefined, seconds: number][] = [
    ['a shorter grace period is used', 600, 5, 5],
    ['a longer one is not', 5, 600, 5],
    ['without a period, the first one is kept, even if the pod has a shorter one', 600, undefined, 600],
    ['a negative one means a second', 600, -1, 1],
    ['also the first time', -1, undefined, 1],
  ];
  for (const [what, first, second, seconds] of rows) {
    test(what, async () => {
      const name = `twice-${rows.findIndex((row) => row[0] === what)}`;
      const path = `${CORE}/pods/${name}`;
      await request('POST', `${CORE}/pods`, pod(name, { nodeName: 'n1' }));
      const { body: once } = await request('DELETE', path, { gracePeriodSeconds: first });
      const begun =
        Date.parse(once.metadata.deletionTimestamp) - once.metadata.deletionGracePeriodSeconds * 1000;
      const { body: answer } = await request(
        'DELETE',
        path,
        second === undefined ? {} : { gracePeriodSeconds: second },
      );
      const { body: twice } = await request('GET', path);
      assert.deepEqual(answer, twice);
      assert.equal(twice.metadata.deletionGracePeriodSeconds, seconds);
      assert.equal(Date.parse(twice.metadata.deletionTimestamp), begun + seconds * 1000);
      assert.equal(twice.metadata.generation, once.metadata.generation);
      assert.equal(once.metadata.generation, 2);
    });
  }
});

describe('a DELETE of a pod', () => {
  const pods = `${CORE}/pods`;
  const create = (name: string) => request('POST', pods, pod(name, { nodeName: 'n1' }));
  test('by force answers with the pod as it was removed', async () => {
    await create('forced');
    const { body } = await request('DELETE', `${pods}/forced`, { gracePeriodSeconds: 0 });
    assert.ok(body.metadata.deletionTimestamp);
    assert.equal(body.metadata.deletionGracePeriodSeconds, 0);
  });
  test('as a dry run answers with the period, and stores nothing', async () => {
    await create('dry');
    const { body } = await request('DELETE', `${pods}/dry?dryRun=All&gracePeriodSeconds=7`);
    assert.equal(body.metadata.deletionGracePeriodSeconds, 7);
    assert.equal((await request('GET', `${pods}/dry`)).body.metadata.deletionTimestamp, undefined);
  });
  test('with a propagation policy replaces that of an earlier one', async () => {
    await create('policies');
    await request('DELETE', `${pods}/policies`, { propagationPolicy: 'Foreground' });
    const options = { propagationPolicy: 'Orphan', gracePeriodSeconds: 1 };
    const { body } = await request('DELETE', `${pods}/policies`, options);
    assert.deepEqual(body.metadata.finalizers, ['orphan']);
  });
  test('with options in a body ignores those of its query', async () => {
    await create('both');
    const { body } = await request('DELETE', `${pods}/both?gracePeriodSeconds=7&propagationPolicy=Orphan`, {
      gracePeriodSeconds: 9,
    });
    assert.equal(body.metadata.deletionGracePeriodSeconds, 9);
    assert.equal(body.metadata.finalizers, undefined);
  });
  test('with options of a wrong type is refused', async () => {
    await create('typed');
    const { status, body } = await request('DELETE', `${pods}/typed`, { gracePeriodSeconds: '5' });
    assert.equal(status, 400);
    assert.match(body.message, /cannot unmarshal string .* DeleteOptions.gracePeriodSeconds of type int64/);
  });
});

test('an object remains until its last finalizer is removed', async () => {
  const path = `${CORE}/configmaps/held`;
  const held = configMap('held');
  await request('POST', `${CORE}/configmaps`, {
    ...held,
    metadata: { ...held.metadata, finalizers: ['example.com/x'] },
  });
  await request('DELETE', path);
  assert.ok((await request('GET', path)).body.metadata.deletionTimestamp);
  const added = await request(
    'PATCH',
    path,
    { metadata: { finalizers: ['example.com/x', 'example.com/y'] } },
    merge,
  );
  assert.equal(added.status, 422);
  await request('PATCH', path, { metadata: { finalizers: null } }, merge);
  assert.equal((await request('GET', path)).status, 404);
});

test('deletion checks its preconditions', async () => {
  await request('POST', `${CORE}/configmaps`, configMap('guarded'));
  const wrong = await request('DELETE', `${CORE}/configmaps/guarded`, { preconditions: { uid: 'other' } });
  assert.equal(wrong.status, 409);
  assert.match(
    wrong.body.message,
    /ConfigMap "guarded": the UID in the precondition \(other\) does not match the UID in record/,
  );
});

test('a namespace remains Terminating until it is finalized, and accepts no new objects', async () => {
  await request('POST', '/api/v1/namespaces', {
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name: 'leaving' },
  });
  const { body } = await request('DELETE', '/api/v1/namespaces/leaving');
  assert.equal(body.status.phase, 'Terminating');
  const late = await request('POST', '/api/v1/namespaces/leaving/configmaps', configMap('late'));
  assert.equal(late.status, 403);
  assert.equal(late.body.details.causes[0].reason, 'NamespaceTerminating');
  await request('PUT', '/api/v1/namespaces/leaving/finalize', { ...body, spec: { finalizers: [] } });
  assert.equal((await request('GET', '/api/v1/namespaces/leaving')).status, 404);
});

test('deletecollection deletes what the selector matches', async () => {
  for (const name of ['c1', 'c2', 'c3']) {
    await request(
      'POST',
      `${CORE}/configmaps`,
      configMap(name, {}, { set: name === 'c3' ? 'keep' : 'drop' }),
    );
  }
  const { body } = await request('DELETE', `${CORE}/configmaps?labelSelector=set%3Ddrop`);
  assert.equal(body.items.length, 2);
  const left = await request('GET', `${CORE}/configmaps?labelSelector=set`);
  assert.deepEqual(
    left.body.items.map((item: { metadata: { name: string } }) => item.metadata.name),
    ['c3'],
  );
});

describe('the dependents of an object', () => {
  const template = {
    metadata: { labels: { app: 'a' } },
    spec: { containers: [{ name: 'c', image: 'i' }], restartPolicy: 'Never' },
  };
  const places = {
    Job: { path: '/apis/batch/v1/namespaces/default/jobs', apiVersion: 'batch/v1', spec: { template } },
    ReplicationController: {
      path: `${CORE}/replicationcontrollers`,
      apiVersion: 'v1',
      spec: { template: { ...template, spec: { containers: template.spec.containers } } },
    },
    ReplicaSet: {
      path: '/apis/apps/v1/namespaces/default/replicasets',
      apiVersion: 'apps/v1',
      spec: {
        selector: { matchLabels: { app: 'a' } },
        template: { ...template, spec: { containers: template.spec.containers } },
      },
    },
    Event: {
      path: `${CORE}/events`,
      apiVersion: 'v1',
      involvedObject: { kind: 'Pod', name: 'p', namespace: 'default' },
    },
  };
  const WARNING = /child pods are preserved by default when jobs are deleted/;
  const rows: readonly [
    what: string,
    kind: keyof typeof places,
    options: object | undefined,
    finalizers: readonly string[] | 'gone',
    warning: RegExp | null,
  ][] = [
    ['of a Job are kept, with a warning', 'Job', undefined, ['orphan'], WARNING],
    ['of a Job are deleted if asked', 'Job', { propagationPolicy: 'Background' }, 'gone', null],
    [
      'of a Job are kept without a warning if asked',
      'Job',
      { propagationPolicy: 'Orphan' },
      ['orphan'],
      null,
    ],
    ['of a ReplicationController are kept', 'ReplicationController', undefined, ['orphan'], null],
    ['of one are deleted if asked', 'ReplicationController', { orphanDependents: false }, 'gone', null],
    ['of a ReplicaSet are deleted', 'ReplicaSet', undefined, 'gone', null],
    ['of an Event do not exist', 'Event', { propagationPolicy: 'Foreground' }, 'gone', null],
  ];
  for (const [what, kind, options, finalizers, warning] of rows) {
    test(what, async () => {
      const { path, ...object } = places[kind];
      const name = `owner-${rows.findIndex((row) => row[0] === what)}`;
      const made = await request('POST', path, { kind, ...object, metadata: { name, namespace: 'default' } });
      assert.equal(made.status, 201, JSON.stringify(made.body));
      const deleted = await request('DELETE', `${path}/${name}`, options);
      assert.match(String(deleted.headers['warning'] ?? ''), warning ?? /^$/);
      const { status, body } = await request('GET', `${path}/${name}`);
      assert.deepEqual(status === 404 ? 'gone' : body.metadata.finalizers, finalizers);
    });
  }
});
