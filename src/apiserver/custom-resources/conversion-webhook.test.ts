import assert from 'node:assert/strict';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { eventually } from '../../lib/testing/eventually.ts';
import type { ApiObject } from '../object.ts';
import { startApi } from '../testing/api.ts';

const api = startApi();
const { request } = api;
const own = api.authority.issue({ commonName: 'webhook', names: ['localhost'], usage: 'server' });
const caBundle = Buffer.from(api.authority.cert).toString('base64');
const MERGE = { 'content-type': 'application/merge-patch+json' };
const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
const path = (version: string, name = '') =>
  `/apis/example.com/${version}/namespaces/default/hosts${name && `/${name}`}`;

interface Review {
  readonly request: {
    readonly uid: string;
    readonly desiredAPIVersion: string;
    readonly objects: readonly ApiObject[];
  };
}
type Converted = Record<string, unknown> & { metadata: Record<string, unknown> };
interface ReviewAnswer {
  uid: string;
  result: { status: string; message?: string };
  readonly convertedObjects: Converted[];
}
const reviews: Review['request'][] = [];
/** Changes what the webhook answers, for one test. */
type Spoil = (answer: ReviewAnswer) => void;
let spoil: Spoil | null = null;

/** v1 has host and port in one text, v2 has a field for each. */
function converted(object: ApiObject, apiVersion: string): Converted {
  const { hostPort, host, port, ...rest } = (object['spec'] ?? {}) as Record<string, string>;
  const [h = '', p = ''] = (hostPort ?? '').split(':');
  const spec = apiVersion.endsWith('/v2') ? { host: h, port: p } : { hostPort: `${host}:${port}` };
  return structuredClone({ ...object, apiVersion, spec: { ...rest, ...spec } }) as unknown as Converted;
}

const server = createServer({ cert: own.cert, key: own.key }, async (incoming, response) => {
  let text = '';
  for await (const chunk of incoming) text += chunk;
  const review: Review = JSON.parse(text);
  reviews.push(review.request);
  const answer = {
    uid: review.request.uid,
    result: { status: 'Success' },
    convertedObjects: review.request.objects.map((one) => converted(one, review.request.desiredAPIVersion)),
  };
  spoil?.(answer);
  response.end(
    JSON.stringify({ kind: 'ConversionReview', apiVersion: 'apiextensions.k8s.io/v1', response: answer }),
  );
});

const text = { type: 'string' };
const version = (name: string, storage: boolean, properties: object) => ({
  selectableFields: Object.keys(properties).map((field) => ({ jsonPath: `.spec.${field}` })),
  name,
  served: true,
  storage,
  schema: { openAPIV3Schema: { type: 'object', properties: { spec: { type: 'object', properties } } } },
});
const versions = (stored: string) => [
  version('v1', stored === 'v1', { hostPort: text }),
  version('v2', stored === 'v2', { host: text, port: text }),
];
const host = (apiVersion: string, name: string, spec: object) => ({
  apiVersion: `example.com/${apiVersion}`,
  kind: 'Host',
  metadata: { name },
  spec,
});

before(async () => {
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  const { port } = server.address() as AddressInfo;
  const created = await request('POST', DEFINITIONS, {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: 'hosts.example.com' },
    spec: {
      group: 'example.com',
      scope: 'Namespaced',
      names: { plural: 'hosts', kind: 'Host' },
      versions: versions('v1'),
      conversion: {
        strategy: 'Webhook',
        webhook: {
          clientConfig: { url: `https://localhost:${port}/convert`, caBundle },
          conversionReviewVersions: ['v1'],
        },
      },
    },
  });
  assert.equal(created.status, 201);
  assert.equal(created.headers['warning'], undefined);
  await eventually(async () => (await request('GET', path('v2'))).status === 200);
});
after(async () => {
  await api.server.close();
  server.closeAllConnections();
  server.close();
});

test('an object created in one version is converted by the webhook for the other', async () => {
  await request('POST', path('v1'), host('v1', 'one', { hostPort: 'a.example:80' }));
  assert.deepEqual((await request('GET', path('v2', 'one'))).body.spec, { host: 'a.example', port: '80' });
  const created = await request('POST', path('v2'), host('v2', 'two', { host: 'b.example', port: '81' }));
  assert.equal(created.status, 201);
  assert.equal(created.body.apiVersion, 'example.com/v2');
  assert.deepEqual(created.body.spec, { host: 'b.example', port: '81' });
  const { body } = await request('GET', path('v1', 'two'));
  assert.deepEqual(body.spec, { hostPort: 'b.example:81' });
  assert.equal(body.metadata.resourceVersion, created.body.metadata.resourceVersion);
});

test('patches and updates change an object in the version of the request', async () => {
  await request('POST', path('v1'), host('v1', 'changed', { hostPort: 'c.example:80' }));
  const patched = await request('PATCH', path('v2', 'changed'), { spec: { port: '443' } }, MERGE);
  assert.deepEqual(patched.body.spec, { host: 'c.example', port: '443' });
  assert.deepEqual((await request('GET', path('v1', 'changed'))).body.spec, { hostPort: 'c.example:443' });
  const replaced = { ...patched.body, spec: { host: 'd.example', port: '1' } };
  assert.equal((await request('PUT', path('v2', 'changed'), replaced)).status, 200);
  assert.deepEqual((await request('GET', path('v1', 'changed'))).body.spec, { hostPort: 'd.example:1' });
});

test('field selectors name the fields of the requested version', async () => {
  for (const [name, hostPort] of [
    ['selected-a', 'select.example:1'],
    ['selected-b', 'select.example:2'],
    ['selected-c', 'other.example:1'],
  ] as const) {
    await request('POST', path('v1'), host('v1', name, { hostPort }));
  }
  const names = async (apiVersion: string, selector: string) => {
    const query = `?fieldSelector=${encodeURIComponent(selector)}`;
    const { status, body } = await request('GET', `${path(apiVersion)}${query}`);
    assert.equal(status, 200, body.message);
    return body.items.map(({ metadata }: { metadata: { name: string } }) => metadata.name);
  };
  assert.deepEqual(await names('v2', 'spec.host=select.example'), ['selected-a', 'selected-b']);
  assert.deepEqual(await names('v2', 'spec.host=select.example,spec.port!=1'), ['selected-b']);
  assert.deepEqual(await names('v1', 'spec.hostPort=select.example:1'), ['selected-a']);
});

test('a list is converted in one request, only once', async () => {
  await request('POST', path('v1'), host('v1', 'listed-a', { hostPort: 'e.example:1' }));
  await request('POST', path('v1'), host('v1', 'listed-b', { hostPort: 'e.example:2' }));
  const start = reviews.length;
  const first = await request('GET', path('v2'));
  for (const item of first.body.items) assert.equal(item.apiVersion, 'example.com/v2');
  assert.ok(reviews.length - start <= 1);
  await request('GET', path('v2'));
  assert.ok(reviews.length - start <= 1);
});

test('a watch shows converted objects in order', async () => {
  const ended = new AbortController();
  const events = api.watch(`${path('v2')}?watch=true`, ended.signal);
  const seen: string[] = [];
  const reading = (async () => {
    for await (const { type, object } of events) {
      const { port } = object['spec'] as { port: string };
      if (object.metadata.name === 'watched') seen.push(`${type} ${object.apiVersion} ${port}`);
    }
  })();
  await request('POST', path('v1'), host('v1', 'watched', { hostPort: 'f.example:1' }));
  await request('PATCH', path('v1', 'watched'), { spec: { hostPort: 'f.example:2' } }, MERGE);
  await request('DELETE', path('v1', 'watched'));
  await eventually(() => seen.length === 3);
  assert.deepEqual(seen, ['ADDED example.com/v2 1', 'MODIFIED example.com/v2 2', 'DELETED example.com/v2 2']);
  ended.abort();
  await reading;
});

const REFUSED: readonly [name: string, spoiled: Spoil, message: RegExp][] = [
  [
    'says no',
    (answer) => {
      answer.result = { status: 'Failure', message: 'cannot be' };
    },
    /conversion webhook for example\.com\/v1, Kind=Host failed: cannot be/,
  ],
  ['converts too few objects', (answer) => answer.convertedObjects.pop(), /returned 0 objects, expected 1/],
  [
    'answers in another version',
    ({ convertedObjects: [one] }) => Object.assign(one ?? {}, { apiVersion: 'example.com/v1' }),
    /invalid groupVersion \(expected example\.com\/v2, received example\.com\/v1\)/,
  ],
  [
    'renames the object',
    ({ convertedObjects: [one] }) => Object.assign(one?.metadata ?? {}, { name: 'other' }),
    /must have the same name: other != refused/,
  ],
  [
    'answers with a different UID',
    (answer) => {
      answer.uid = 'other';
    },
    /expected response\.uid=/,
  ],
];
test('a request fails with the reason if the webhook …', async (t) => {
  await request('POST', path('v1'), host('v1', 'refused', { hostPort: 'g.example:1' }));
  for (const [name, spoiled, message] of REFUSED) {
    await t.test(name, async () => {
      spoil = spoiled;
      const { status, body } = await request('GET', path('v2', 'refused'));
      spoil = null;
      assert.equal(status, 500);
      assert.match(body.message, message);
    });
  }
  await t.test('fails while somebody watches', async () => {
    await request('PATCH', path('v1', 'refused'), { metadata: { labels: { a: 'b' } } }, MERGE);
    spoil = (answer) => answer.convertedObjects.pop();
    const events: { type: string; object: ApiObject }[] = [];
    for await (const event of api.watch(
      `${path('v2')}?watch=true&fieldSelector=metadata.name=refused`,
      new AbortController().signal,
    ))
      events.push(event);
    spoil = null;
    assert.deepEqual(
      events.map(({ type }) => type),
      ['ERROR'],
    );
  });
});

test('a webhook can change only labels and annotations of the metadata', async () => {
  await request('POST', path('v1'), host('v1', 'labelled', { hostPort: 'h.example:1' }));
  spoil = ({ convertedObjects: [one] }) =>
    Object.assign(one?.metadata ?? {}, { labels: { added: 'yes' }, finalizers: ['example.com/x'] });
  const { body } = await request('GET', path('v2', 'labelled'));
  spoil = null;
  assert.deepEqual(body.metadata.labels, { added: 'yes' });
  assert.equal(body.metadata.finalizers, undefined);
});

test('objects of both storage versions are listed in either version', async () => {
  const spec = { versions: versions('v2') };
  assert.equal((await request('PATCH', `${DEFINITIONS}/hosts.example.com`, { spec }, MERGE)).status, 200);
  await eventually(async () => {
    await request('POST', path('v2'), host('v2', 'newer', { host: 'i.example', port: '9' }));
    const { body } = await request('GET', `${DEFINITIONS}/hosts.example.com`);
    return body.status.storedVersions.includes('v2');
  });
  for (const [name, field] of [
    ['v1', 'hostPort'],
    ['v2', 'port'],
  ] as const) {
    const { body } = await request('GET', path(name));
    for (const item of body.items) {
      assert.equal(item.apiVersion, `example.com/${name}`);
      assert.ok(item.spec[field], `${item.metadata.name} has no ${field}`);
    }
  }
});

test('an object of an older storage version can be changed through both versions', async () => {
  const patched = await request('PATCH', path('v1', 'one'), { spec: { hostPort: 'z.example:80' } }, MERGE);
  assert.equal(patched.status, 200);
  assert.equal(patched.body.metadata.generation, 2);
  assert.deepEqual((await request('GET', path('v2', 'one'))).body.spec, { host: 'z.example', port: '80' });
});

test('a watch with a field selector applies it to converted objects', async () => {
  await request('POST', path('v1'), host('v1', 'selected', { hostPort: 'watch.example:1' }));
  const query = `?watch=true&timeoutSeconds=30&fieldSelector=${encodeURIComponent('spec.host=watch.example')}`;
  const ended = new AbortController();
  const events = api.watch(`${path('v2')}${query}`, ended.signal);
  const next = async () => {
    const { value } = await events.next();
    assert.ok(value);
    return [value.type, value.object.metadata.name, (value.object['spec'] as { port: string }).port];
  };
  assert.deepEqual(await next(), ['ADDED', 'selected', '1']);
  await request('PATCH', path('v1', 'selected'), { spec: { hostPort: 'watch.example:2' } }, MERGE);
  assert.deepEqual(await next(), ['MODIFIED', 'selected', '2']);
  await request('PATCH', path('v1', 'selected'), { spec: { hostPort: 'gone.example:3' } }, MERGE);
  assert.deepEqual(await next(), ['DELETED', 'selected', '2']);
  ended.abort();
  await request('DELETE', path('v1', 'selected'));
});
