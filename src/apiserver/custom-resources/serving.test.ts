import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { eventually } from '../../lib/testing/eventually.ts';
import { startApi } from '../testing/api.ts';
import { definitionOf } from './testing/definition.ts';

const api = startApi();
after(() => api.server.close());
const { request } = api;
const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
const WIDGETS = '/apis/example.com/v1/namespaces/default/widgets';

const schema = {
  type: 'object',
  properties: {
    spec: {
      type: 'object',
      required: ['size'],
      'x-kubernetes-validations': [
        {
          rule: '!has(self.replicas) || self.replicas <= self.size * 10',
          message: 'too many replicas for the size',
        },
        { rule: 'self.size >= oldSelf.size', message: 'size cannot shrink' },
      ],
      properties: {
        size: { type: 'integer', minimum: 1 },
        color: { type: 'string', default: 'red' },
        replicas: { type: 'integer' },
        steps: {
          type: 'array',
          'x-kubernetes-list-type': 'map',
          'x-kubernetes-list-map-keys': ['name'],
          items: {
            type: 'object',
            required: ['name'],
            properties: { name: { type: 'string' }, run: { type: 'string' } },
          },
        },
      },
    },
    status: { type: 'object', properties: { phase: { type: 'string' }, replicas: { type: 'integer' } } },
  },
};
const version = (name: string, storage: boolean) => ({
  name,
  served: true,
  storage,
  schema: { openAPIV3Schema: schema },
  subresources: {
    status: {},
    scale: { specReplicasPath: '.spec.replicas', statusReplicasPath: '.status.replicas' },
  },
  additionalPrinterColumns: [{ name: 'Size', type: 'integer', jsonPath: '.spec.size' }],
});
const definition = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'widgets.example.com' },
  spec: {
    group: 'example.com',
    scope: 'Namespaced',
    names: { plural: 'widgets', kind: 'Widget', shortNames: ['wd'] },
    versions: [version('v1', true), version('v2', false)],
  },
};
const widget = (name: string, spec: object, more: object = {}) => ({
  apiVersion: 'example.com/v1',
  kind: 'Widget',
  metadata: { name },
  spec,
  ...more,
});

test('a definition is established and its kind discovered in every served version', async () => {
  const { status } = await request('POST', DEFINITIONS, definition);
  assert.equal(status, 201);
  const { body } = await eventually(
    () => request('GET', `${DEFINITIONS}/widgets.example.com`),
    (answer) => answer.body.status.conditions?.some((one: { type: string }) => one.type === 'Established'),
  );
  assert.equal(body.status.acceptedNames.listKind, 'WidgetList');
  assert.deepEqual(body.status.storedVersions, ['v1']);
  const { body: list } = await request('GET', '/apis/example.com/v1');
  assert.deepEqual(
    list.resources.map((one: { name: string }) => one.name),
    ['widgets', 'widgets/scale', 'widgets/status'],
  );
  assert.equal((await request('GET', '/apis/example.com/v2')).status, 200);
});

test('an object gets the defaults of its schema, and its unknown fields are dropped', async () => {
  const { status, body } = await request('POST', WIDGETS, widget('plain', { size: 1, extra: true }));
  assert.equal(status, 201);
  assert.deepEqual(body.spec, { size: 1, color: 'red' });
  assert.equal(body.metadata.generation, 1);
});

const refusals: readonly [what: string, spec: object, query: string, status: number, message: RegExp][] = [
  [
    'a value out of bounds',
    { size: 0 },
    '',
    422,
    /spec\.size: Invalid value: 0: spec\.size in body should be greater than or equal to 1/,
  ],
  ['a missing value', {}, '', 422, /spec\.size: Required value/],
  [
    'a value that violates a rule',
    { size: 1, replicas: 11 },
    '',
    422,
    /spec: Invalid value: too many replicas for the size/,
  ],
  [
    'an unknown field with strict validation',
    { size: 1, extra: 1 },
    '?fieldValidation=Strict',
    400,
    /unknown field "spec\.extra"/,
  ],
];
for (const [what, spec, query, status, message] of refusals) {
  test(`${what} is refused`, async () => {
    const answer = await request('POST', `${WIDGETS}${query}`, widget('wrong', spec));
    assert.equal(answer.status, status);
    assert.match(answer.body.message, message);
  });
}

const applied: readonly [what: string, body: string, query: string, status: number, message: RegExp][] = [
  [
    'an unknown member',
    'metadata: {name: bad, namespace: default}\nspec: {size: 1, extra: 1}',
    '',
    500,
    /^failed to create typed patch object \(default\/bad; example\.com\/v1, Kind=Widget\): \.spec\.extra: field not declared in schema$/,
  ],
  [
    'unknown metadata',
    'metadata: {name: bad, odd: 1}\nspec: {size: 1}',
    '',
    500,
    /\.metadata\.odd: field not declared in schema/,
  ],
  [
    'a duplicate key with strict validation',
    'spec:\n  size: 1\n  size: 2',
    '&fieldValidation=Strict',
    400,
    /line 5: key "size" already set in map/,
  ],
];
for (const [what, body, query, status, message] of applied) {
  test(`${what} is refused in an apply`, async () => {
    const answer = await request(
      'PATCH',
      `${WIDGETS}/bad?fieldManager=me${query}`,
      `apiVersion: example.com/v1\nkind: Widget\n${body}\n`,
      { 'content-type': 'application/apply-patch+yaml' },
    );
    assert.equal(answer.status, status);
    assert.match(answer.body.message, message);
  });
}

test('another version shows the same object', async () => {
  const { body } = await request('GET', '/apis/example.com/v2/namespaces/default/widgets/plain');
  assert.equal(body.apiVersion, 'example.com/v2');
  assert.equal(body.spec.size, 1);
});

test('only the status subresource writes the status', async () => {
  const { body } = await request('GET', `${WIDGETS}/plain`);
  const written = await request('PUT', `${WIDGETS}/plain/status`, {
    ...body,
    spec: { size: 9 },
    status: { phase: 'Up' },
  });
  assert.deepEqual(written.body.status, { phase: 'Up' });
  assert.equal(written.body.spec.size, 1);
  assert.equal(written.body.metadata.generation, 1);
});

test('a written status must fit its schema, and a write of it changes no metadata', async () => {
  const { body } = await request('GET', `${WIDGETS}/plain`);
  const write = (status: object) =>
    request('PUT', `${WIDGETS}/plain/status`, {
      ...body,
      metadata: { ...body.metadata, labels: { a: 'b' } },
      status,
    });
  const refused = await write({ phase: 3 });
  assert.equal(refused.status, 422);
  assert.match(
    refused.body.message,
    /status\.phase: Invalid value: "integer": phase in body must be of type string/,
  );
  const written = await write({ phase: 'Down' });
  assert.equal(written.status, 200, written.body.message);
  assert.equal(written.body.metadata.labels, undefined);
});

test('an update needs the version that it replaces', async () => {
  const { status, body } = await request('PUT', `${WIDGETS}/plain`, widget('plain', { size: 1 }));
  assert.equal(status, 422);
  assert.match(body.message, /metadata\.resourceVersion: .* must be specified for an update/);
});

test('null of a field that is not nullable counts as absent, but in an apply', async () => {
  const spec = { size: 1, replicas: null, color: null, steps: null };
  const made = await request('POST', WIDGETS, widget('nulls', spec));
  assert.equal(made.status, 201, made.body.message);
  assert.deepEqual(made.body.spec, { size: 1, color: 'red' });
  const apply = { 'content-type': 'application/apply-patch+yaml' };
  const applied = await request(
    'PATCH',
    `${WIDGETS}/applied-nulls?fieldManager=a`,
    widget('applied-nulls', spec),
    apply,
  );
  assert.equal(applied.status, 422);
  assert.match(applied.body.message, /spec\.replicas in body must be of type integer: "null"/);
  await request('DELETE', `${WIDGETS}/nulls`);
});

test("an applied empty map or null keeps other managers' members, without a conflict", async () => {
  await request('POST', `${WIDGETS}?fieldManager=z`, widget('shared', { size: 1 }));
  const apply = { 'content-type': 'application/apply-patch+yaml' };
  for (const spec of [{}, null]) {
    const { status, body } = await request(
      'PATCH',
      `${WIDGETS}/shared?fieldManager=m`,
      { ...widget('shared', {}), spec },
      apply,
    );
    assert.equal(status, 200, body.message);
    assert.equal(body.spec.size, 1);
    // Applies first.
    assert.equal(body.metadata.managedFields[0].manager, 'm');
  }
  await request('DELETE', `${WIDGETS}/shared`);
});

test('scale reads and writes the paths of the definition', async () => {
  const merge = { 'content-type': 'application/merge-patch+json' };
  await request('PATCH', `${WIDGETS}/plain`, { spec: { replicas: 1 } }, merge);
  const { body } = await request('PATCH', `${WIDGETS}/plain/scale`, { spec: { replicas: 3 } }, merge);
  assert.equal(body.spec.replicas, 3);
  assert.equal((await request('GET', `${WIDGETS}/plain`)).body.spec.replicas, 3);
});

test('a transition rule compares with the stored object', async () => {
  const merge = { 'content-type': 'application/merge-patch+json' };
  await request('PATCH', `${WIDGETS}/plain`, { spec: { size: 5 } }, merge);
  const { status, body } = await request('PATCH', `${WIDGETS}/plain`, { spec: { size: 4 } }, merge);
  assert.equal(status, 422);
  assert.match(body.message, /size cannot shrink/);
});

test('a strategic merge patch is refused, since custom kinds have no merge keys', async () => {
  const { status } = await request(
    'PATCH',
    `${WIDGETS}/plain`,
    {},
    { 'content-type': 'application/strategic-merge-patch+json' },
  );
  assert.equal(status, 415);
});

test('two managers apply items of one map-type list', async () => {
  const apply = (manager: string, name: string) =>
    request(
      'PATCH',
      `${WIDGETS}/applied?fieldManager=${manager}`,
      widget('applied', { size: 1, steps: [{ name, run: 'x' }] }),
      { 'content-type': 'application/apply-patch+yaml' },
    );
  assert.equal((await apply('a', 'first')).status, 201);
  const { body } = await apply('b', 'second');
  assert.deepEqual(
    body.spec.steps.map((step: { name: string }) => step.name),
    ['first', 'second'],
  );
});

test('a table has the columns of the definition', async () => {
  const { body } = await request('GET', WIDGETS, undefined, {
    accept: 'application/json;as=Table;v=v1;g=meta.k8s.io',
  });
  assert.deepEqual(
    body.columnDefinitions.map((one: { name: string }) => one.name),
    ['Name', 'Size'],
  );
  assert.deepEqual(body.rows[0].cells, ['applied', 1]);
});

test('OpenAPI describes the kind', async () => {
  const index = await request('GET', '/openapi/v3');
  assert.ok(index.body.paths['apis/example.com/v1']);
  const { body } = await request('GET', '/openapi/v3/apis/example.com/v1');
  assert.equal(body.components.schemas['com.example.v1.Widget'].properties.spec.required[0], 'size');
});

test('metadata has the same schema as for every kind', async () => {
  const { body } = await request('GET', '/openapi/v3/apis/example.com/v1');
  const { schemas } = body.components;
  assert.match(
    schemas['com.example.v1.Widget'].properties.metadata.description,
    /^Standard object's metadata/,
  );
  const { properties } = schemas['io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta'];
  assert.match(properties.creationTimestamp.description, /^CreationTimestamp is a timestamp/);
});

test('OpenAPI 2 shows a kind that preserves unknown fields as any object', async () => {
  const names = { plural: 'blobs', kind: 'Blob' };
  const open = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
  await request('POST', DEFINITIONS, {
    ...definition,
    metadata: { name: 'blobs.open.example.com' },
    spec: {
      ...definition.spec,
      group: 'open.example.com',
      names,
      versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: open } }],
    },
  });
  const shown = await eventually(
    async () => (await request('GET', '/openapi/v2')).body.definitions['com.example.open.v1.Blob'],
    (found) => found !== undefined,
  );
  assert.deepEqual(shown, {
    type: 'object',
    'x-kubernetes-group-version-kind': [{ group: 'open.example.com', version: 'v1', kind: 'Blob' }],
  });
});

test('a default that is added later is shown in objects stored before', async () => {
  const names = { plural: 'lamps', kind: 'Lamp' };
  const withSchema = (spec: object) => ({
    ...definition,
    metadata: { name: 'lamps.light.example.com' },
    spec: {
      ...definition.spec,
      group: 'light.example.com',
      names,
      versions: [
        {
          name: 'v1',
          served: true,
          storage: true,
          schema: { openAPIV3Schema: { type: 'object', properties: { spec } } },
        },
      ],
    },
  });
  const plain = { type: 'object', properties: { color: { type: 'string' } } };
  await request('POST', DEFINITIONS, withSchema(plain));
  const lamps = '/apis/light.example.com/v1/namespaces/default/lamps';
  const lamp = { apiVersion: 'light.example.com/v1', kind: 'Lamp', metadata: { name: 'desk' }, spec: {} };
  await eventually(
    () => request('POST', lamps, lamp),
    ({ status }) => status === 201,
  );
  const defaulted = { type: 'object', properties: { color: { type: 'string', default: 'warm' } } };
  const merge = { 'content-type': 'application/merge-patch+json' };
  await request('PATCH', `${DEFINITIONS}/lamps.light.example.com`, withSchema(defaulted), merge);
  const { body } = await eventually(
    () => request('GET', `${lamps}/desk`),
    (answer) => answer.body.spec.color !== undefined,
  );
  assert.equal(body.spec.color, 'warm');
  const list = await request('GET', lamps);
  assert.equal(list.body.items[0].spec.color, 'warm');
});

test('versions are ordered by stability and number; requests for deprecated ones cause a warning', async () => {
  const names = { plural: 'gears', kind: 'Gear' };
  const versions = [
    { ...version('v1beta1', true), deprecated: true },
    { ...version('v1', false), deprecated: true, deprecationWarning: 'v1 goes away' },
    version('v2', false),
  ];
  await request('POST', DEFINITIONS, {
    ...definition,
    metadata: { name: 'gears.gears.example.com' },
    spec: { ...definition.spec, group: 'gears.example.com', names, versions },
  });
  const group = await eventually(
    () => request('GET', '/apis/gears.example.com'),
    ({ status }) => status === 200,
  );
  assert.deepEqual(
    group.body.versions.map((one: { version: string }) => one.version),
    ['v2', 'v1', 'v1beta1'],
  );
  for (const [name, warning] of [
    ['v1beta1', '299 - "gears.example.com/v1beta1 Gear is deprecated; use gears.example.com/v2 Gear"'],
    ['v1', '299 - "v1 goes away"'],
    ['v2', undefined],
  ] as const) {
    const { headers } = await request('GET', `/apis/gears.example.com/${name}/gears`);
    assert.equal(headers['warning'], warning);
  }
});

test('finalizers of custom resources need no domain, but new ones without one are warned of', async () => {
  const made = await request('POST', WIDGETS, {
    ...widget('finalized', { size: 1 }),
    metadata: { name: 'finalized', finalizers: ['release-disk', 'example.com', 'example.com/keep'] },
  });
  assert.equal(made.status, 201);
  const advice = /"([^"\\]+)\\": prefer a domain-qualified finalizer name( including a path)?/g;
  const advised = (warning: unknown) =>
    [...String(warning ?? '').matchAll(advice)].map(([, name, path]) => [name, path !== undefined]);
  assert.deepEqual(advised(made.headers['warning']), [
    ['release-disk', false],
    ['example.com', true],
  ]);
  const added = await request(
    'PATCH',
    `${WIDGETS}/finalized`,
    [{ op: 'add', path: '/metadata/finalizers/-', value: 'other' }],
    { 'content-type': 'application/json-patch+json' },
  );
  assert.deepEqual(advised(added.headers['warning']), [['other', false]]);
  await request(
    'PATCH',
    `${WIDGETS}/finalized`,
    { metadata: { finalizers: null } },
    { 'content-type': 'application/merge-patch+json' },
  );
});

test('unknown fields in the metadata of embedded resources are reported with their paths', async () => {
  const embedded = { type: 'object', 'x-kubernetes-embedded-resource': true, properties: {} };
  const properties = { one: embedded, many: { type: 'array', items: embedded } };
  await request('POST', DEFINITIONS, definitionOf('wood.example.com', 'boxes', 'Box', properties));
  const boxes = '/apis/wood.example.com/v1/namespaces/default/boxes';
  await eventually(
    () => request('GET', boxes),
    ({ status }) => status === 200,
  );
  const content = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'p', labels: { a: 'b' }, lables: {} } };
  const box = {
    apiVersion: 'wood.example.com/v1',
    kind: 'Box',
    metadata: { name: 'box' },
    one: content,
    many: [content],
  };
  const refused = await request('POST', `${boxes}?fieldValidation=Strict`, box);
  assert.equal(refused.status, 400);
  assert.match(refused.body.message, /unknown field "one.metadata.lables"/);
  assert.match(refused.body.message, /unknown field "many\[0\].metadata.lables"/);
  const { body } = await request('POST', `${boxes}?fieldValidation=Ignore`, box);
  assert.deepEqual(body.one.metadata, { name: 'p', labels: { a: 'b' } });
});

test('deletion of a definition deletes its objects and its kind', async () => {
  await request('DELETE', `${DEFINITIONS}/widgets.example.com`);
  await eventually(
    () => request('GET', `${DEFINITIONS}/widgets.example.com`),
    ({ status }) => status === 404,
  );
  assert.equal((await request('GET', WIDGETS)).status, 404);
});

// Parts of the definitions of Cilium 1.20 and MetalLB 0.16, which kube-apiserver 1.36 takes.
const taken: readonly [what: string, value: object, more?: object][] = [
  ['a pattern with a Unicode class', { type: 'string', pattern: '^\\PC*$' }],
  [
    'a rule about the parts of a text',
    {
      type: 'array',
      maxItems: 100,
      items: {
        type: 'string',
        maxLength: 21,
        'x-kubernetes-validations': [
          {
            rule: "self.split(':').size() != 2 || (isIP(self.split(':')[0]) || self.split(':')[0].matches('[0-9]+'))",
          },
        ],
      },
    },
  ],
  [
    'a webhook of conversion reviews v1beta1',
    { type: 'string' },
    {
      conversion: {
        strategy: 'Webhook',
        webhook: {
          conversionReviewVersions: ['v1beta1', 'v1beta2'],
          clientConfig: { service: { namespace: 'default', name: 'hook' } },
        },
      },
    },
  ],
];
for (const [at, [what, value, more = {}]] of taken.entries())
  test(`a definition is taken with ${what}`, async () => {
    const own = startApi();
    try {
      const plural = `taken${at}s`;
      const schema = { openAPIV3Schema: { type: 'object', properties: { value } } };
      const answer = await own.request('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', {
        metadata: { name: `${plural}.example.com` },
        spec: {
          group: 'example.com',
          scope: 'Namespaced',
          names: { plural, kind: `Taken${at}` },
          versions: [{ name: 'v1', served: true, storage: true, schema }],
          ...more,
        },
      });
      assert.equal(answer.status, 201, answer.body.message);
    } finally {
      await own.server.close();
    }
  });
