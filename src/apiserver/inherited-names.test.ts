import assert from 'node:assert/strict';
import { afterEach, describe, test } from 'node:test';
import { APPS, CORE, startApi, type TestApi } from './testing/api.ts';

/** Names that every plain object of JavaScript inherits. */
const NAMES = ['__proto__', 'constructor', 'toString', 'hasOwnProperty'];
/** "__proto__" begins with an underscore: no label or annotation has this name. */
const LABELS = NAMES.slice(1);
const MERGE = { 'content-type': 'application/merge-patch+json' };
const STRATEGIC = { 'content-type': 'application/strategic-merge-patch+json' };
const JSON_PATCH = { 'content-type': 'application/json-patch+json' };
const APPLY = { 'content-type': 'application/apply-patch+yaml' };
const YAML = { 'content-type': 'application/yaml' };
const MAPS = `${CORE}/configmaps`;
const MAP = `${MAPS}/one`;

/** Returns an object with an own member of any name. */
const only = (name: string, value: unknown) => Object.fromEntries([[name, value]]);
const configMap = (data: object, metadata: object = {}) => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name: 'one', ...metadata },
  data,
});
const pod = (more: object, metadata: object = {}) => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'one', ...metadata },
  spec: { containers: [{ name: 'main', image: 'x', ...more }] },
});
const own = (object: object | undefined, name: string): unknown =>
  object && Object.hasOwn(object, name) ? (object as Record<string, unknown>)[name] : undefined;
const entries = (object: object | undefined) => Object.entries(object ?? {}).map((entry) => [...entry]);

interface Row {
  readonly what: string;
  readonly names: readonly string[];
  readonly run: (api: TestApi, name: string) => Promise<void>;
}

async function ok(api: TestApi, ...request: Parameters<TestApi['request']>) {
  const answer = await api.request(...request);
  assert.ok(answer.status < 300, JSON.stringify(answer.body));
  return answer.body;
}

const ROWS: readonly Row[] = [
  {
    what: 'data of a ConfigMap in JSON',
    names: NAMES,
    async run(api, name) {
      await ok(api, 'POST', MAPS, configMap(only(name, 'x')));
      assert.deepEqual(entries((await ok(api, 'GET', MAP)).data), [[name, 'x']]);
    },
  },
  {
    what: 'data of a ConfigMap in YAML',
    names: NAMES,
    async run(api, name) {
      const text = `{apiVersion: v1, kind: ConfigMap, metadata: {name: one}, data: {${name}: x}}`;
      await ok(api, 'POST', MAPS, text, YAML);
      assert.deepEqual(entries((await ok(api, 'GET', MAP)).data), [[name, 'x']]);
    },
  },
  {
    what: 'binaryData beside data of the same ConfigMap',
    names: NAMES,
    async run(api, name) {
      await ok(api, 'POST', MAPS, { ...configMap(only('other', 'x')), binaryData: only(name, 'eA==') });
      assert.deepEqual(entries((await ok(api, 'GET', MAP)).binaryData), [[name, 'eA==']]);
    },
  },
  {
    what: 'stringData of a Secret',
    names: NAMES,
    async run(api, name) {
      const secret = {
        apiVersion: 'v1',
        kind: 'Secret',
        metadata: { name: 'one' },
        stringData: only(name, 'x'),
      };
      await ok(api, 'POST', `${CORE}/secrets`, secret);
      assert.deepEqual(entries((await ok(api, 'GET', `${CORE}/secrets/one`)).data), [[name, 'eA==']]);
    },
  },
  ...[MERGE, STRATEGIC].map(
    (headers): Row => ({
      what: `data by ${headers['content-type']}: add, change, remove`,
      names: NAMES,
      async run(api, name) {
        await ok(api, 'POST', MAPS, configMap({ a: 'b' }));
        for (const value of ['x', 'y']) {
          await ok(api, 'PATCH', MAP, { data: only(name, value) }, headers);
          assert.equal(own((await ok(api, 'GET', MAP)).data, name), value);
        }
        await ok(api, 'PATCH', MAP, { data: only(name, null) }, headers);
        assert.deepEqual(entries((await ok(api, 'GET', MAP)).data), [['a', 'b']]);
      },
    }),
  ),
  {
    what: 'data by JSON patch: add, replace, copy, test, remove',
    names: NAMES,
    async run(api, name) {
      await ok(api, 'POST', MAPS, configMap({ a: 'b' }));
      const path = `/data/${name}`;
      const patch = async (...operations: object[]) => ok(api, 'PATCH', MAP, operations, JSON_PATCH);
      await patch({ op: 'add', path, value: 'x' }, { op: 'test', path, value: 'x' });
      assert.equal(own((await ok(api, 'GET', MAP)).data, name), 'x');
      await patch({ op: 'replace', path, value: 'y' }, { op: 'copy', from: path, path: '/data/copy' });
      assert.equal(own((await ok(api, 'GET', MAP)).data, name), 'y');
      await patch({ op: 'remove', path }, { op: 'test', path, value: null });
      assert.deepEqual(entries((await ok(api, 'GET', MAP)).data).sort(), [
        ['a', 'b'],
        ['copy', 'y'],
      ]);
    },
  },
  {
    what: 'no JSON patch through a prototype',
    names: ['__proto__', 'constructor'],
    async run(api, name) {
      await ok(api, 'POST', MAPS, configMap({ a: 'b' }));
      for (const path of [
        `/metadata/${name}/polluted`,
        `/data/${name}/prototype/polluted`,
        `/${name}/polluted`,
      ]) {
        const { status } = await api.request('PATCH', MAP, [{ op: 'add', path, value: 'x' }], JSON_PATCH);
        assert.equal(status, 422, path);
      }
    },
  },
  {
    what: 'data by server-side apply: owned, in conflict, removed',
    names: NAMES,
    async run(api, name) {
      const apply = (manager: string, data: object) =>
        api.request('PATCH', `${MAP}?fieldManager=${manager}`, configMap(data), APPLY);
      const { body } = await apply('a', only(name, 'x'));
      assert.deepEqual(entries(body.data), [[name, 'x']]);
      assert.ok(own(body.metadata.managedFields[0].fieldsV1['f:data'], `f:${name}`));
      assert.equal((await apply('b', only(name, 'y'))).status, 409);
      assert.equal((await apply('a', { other: 'z' })).status, 200);
      assert.deepEqual(entries((await ok(api, 'GET', MAP)).data), [['other', 'z']]);
    },
  },
  {
    what: 'data added and removed by updates, with its owner',
    names: NAMES,
    async run(api, name) {
      const owned = async (data: object) => {
        const { metadata } = await ok(api, 'PUT', `${MAP}?fieldManager=m`, configMap(data));
        return JSON.stringify(metadata.managedFields).includes(`"f:${name}"`);
      };
      await ok(api, 'PATCH', `${MAP}?fieldManager=a`, configMap({ a: 'b' }), APPLY);
      assert.equal(await owned({ a: 'b', ...only(name, 'x') }), true);
      assert.equal(await owned({ a: 'b' }), false);
    },
  },
  {
    what: 'managedFields with names that are not fields',
    names: NAMES,
    async run(api, name) {
      await ok(api, 'POST', MAPS, configMap({ a: 'b' }));
      const entry = { manager: 'm', operation: 'Update', apiVersion: 'v1', fieldsType: 'FieldsV1' };
      const managedFields = [{ ...entry, fieldsV1: { 'f:data': only(name, { polluted: {} }) } }];
      const put = await api.request('PUT', MAP, configMap({ a: 'c' }, { managedFields }));
      assert.ok(put.status < 500, JSON.stringify(put.body));
      const applied = await api.request(
        'PATCH',
        `${MAP}?fieldManager=a&force=true`,
        configMap({ a: 'd' }),
        APPLY,
      );
      assert.ok(applied.status < 500, JSON.stringify(applied.body));
    },
  },
  {
    what: 'labels and annotations, and selectors of them',
    names: LABELS,
    async run(api, name) {
      await ok(api, 'POST', MAPS, configMap({}));
      await ok(api, 'POST', MAPS, {
        ...configMap({}),
        metadata: { name: 'two', labels: only(name, 'x'), annotations: only(name, 'y') },
      });
      const two = await ok(api, 'GET', `${MAPS}/two`);
      assert.deepEqual(
        [entries(two.metadata.labels), entries(two.metadata.annotations)],
        [[[name, 'x']], [[name, 'y']]],
      );
      const named = async (selector: string) => {
        const { items } = await ok(api, 'GET', `${MAPS}?labelSelector=${encodeURIComponent(selector)}`);
        return items.map((one: { metadata: { name: string } }) => one.metadata.name).join();
      };
      for (const [selector, found] of [
        [name, 'two'],
        [`!${name}`, 'one'],
        [`${name}=x`, 'two'],
        [`${name}!=x`, 'one'],
        [`${name} notin (x)`, 'one'],
      ] as const)
        assert.equal(await named(selector), found, selector);
    },
  },
  {
    what: 'no label or annotation, as upstream',
    names: ['__proto__'],
    async run(api, name) {
      for (const field of ['labels', 'annotations']) {
        const { status } = await api.request('POST', MAPS, configMap({}, only(field, only(name, 'x'))));
        assert.equal(status, 422, field);
      }
      await ok(api, 'POST', MAPS, configMap({}, { labels: { a: 'b' } }));
      for (const [headers, body] of [
        [MERGE, { metadata: { labels: only(name, 'x') } }],
        [STRATEGIC, { metadata: { labels: only(name, 'x') } }],
        [JSON_PATCH, [{ op: 'add', path: `/metadata/labels/${name}`, value: 'x' }]],
        [APPLY, configMap({}, { labels: only(name, 'x') })],
      ] as const) {
        const { status } = await api.request('PATCH', `${MAP}?fieldManager=a`, body, headers);
        assert.equal(status, 422, headers['content-type']);
      }
    },
  },
  {
    what: 'no field selector',
    names: NAMES,
    async run(api, name) {
      assert.equal((await api.request('GET', `${MAPS}?fieldSelector=${name}=x`)).status, 400);
    },
  },
  {
    what: 'no resource of a container, and no failure of the quota',
    names: NAMES,
    async run(api, name) {
      const quota = {
        apiVersion: 'v1',
        kind: 'ResourceQuota',
        metadata: { name: 'q' },
        spec: { hard: { pods: '9' } },
      };
      await ok(api, 'POST', `${CORE}/resourcequotas`, quota);
      const limits = [{ type: 'Container', default: { cpu: '1' }, max: { cpu: '2' } }];
      const range = { apiVersion: 'v1', kind: 'LimitRange', metadata: { name: 'l' }, spec: { limits } };
      await ok(api, 'POST', `${CORE}/limitranges`, range);
      for (const part of ['requests', 'limits']) {
        const { status, body } = await api.request(
          'POST',
          `${CORE}/pods`,
          pod({ resources: only(part, only(name, '1')) }),
        );
        assert.ok(status === 422 || status === 403, JSON.stringify(body));
      }
      const hard = { ...quota, metadata: { name: 'r' }, spec: { hard: only(name, '1') } };
      assert.equal((await api.request('POST', `${CORE}/resourcequotas`, hard)).status, 422);
      const other = {
        ...range,
        metadata: { name: 'm' },
        spec: { limits: [{ type: 'Container', max: only(name, '1') }] },
      };
      assert.equal((await api.request('POST', `${CORE}/limitranges`, other)).status, 422);
    },
  },
  {
    what: 'variables of a container',
    names: NAMES,
    async run(api, name) {
      const env = [{ name, value: 'x' }];
      const body = await ok(api, 'POST', `${CORE}/pods`, pod({ env }));
      assert.deepEqual(body.spec.containers[0].env, env);
    },
  },
  {
    what: 'selectors of workloads',
    names: LABELS,
    async run(api, name) {
      const deployment = (labels: object) => ({
        apiVersion: 'apps/v1',
        kind: 'Deployment',
        metadata: { name: 'one' },
        spec: { selector: { matchLabels: only(name, 'x') }, template: { ...pod({}), metadata: { labels } } },
      });
      const refused = await api.request('POST', `${APPS}/deployments`, deployment({ other: 'x' }));
      assert.equal(refused.status, 422);
      const { spec } = await ok(api, 'POST', `${APPS}/deployments`, deployment(only(name, 'x')));
      assert.deepEqual(entries(spec.selector.matchLabels), [[name, 'x']]);
    },
  },
  ...(['Validating', 'Mutating'] as const).map(
    (form): Row => ({
      what: `labels and data in expressions of a ${form}AdmissionPolicy`,
      names: NAMES,
      async run(api, name) {
        const has = `'${name}' in object.data && object.data['${name}'] == 'x'`;
        const spec =
          form === 'Validating'
            ? { validations: [{ expression: has, message: 'it has no such key' }] }
            : {
                reinvocationPolicy: 'Never',
                mutations: [
                  {
                    patchType: 'JSONPatch',
                    jsonPatch: {
                      expression: `${has} ? [JSONPatch{op: 'add', path: '/data/found', value: 'yes'}] : []`,
                    },
                  },
                ],
              };
        await addPolicy(api, form, spec);
        const without = await api.request('POST', MAPS, configMap({ a: 'x' }));
        const { status, body } = await api.request('POST', MAPS, {
          ...configMap({ a: 'x', ...only(name, 'x') }),
          metadata: { name: 'two' },
        });
        assert.equal(status, 201, JSON.stringify(body));
        if (form === 'Validating') {
          assert.match(without.body.message, /it has no such key/);
        } else {
          assert.equal(without.body.data?.found, undefined, JSON.stringify(without.body));
          assert.equal(body.data.found, 'yes');
          assert.equal(own(body.data, name), 'x');
        }
      },
    }),
  ),
  {
    what: 'literal keys in expressions of a MutatingAdmissionPolicy',
    names: [...NAMES, 'prototype'],
    async run(api, name) {
      await addPolicy(api, 'Mutating', {
        reinvocationPolicy: 'Never',
        mutations: [
          {
            patchType: 'ApplyConfiguration',
            applyConfiguration: { expression: `Object{data: {'${name}': 'y', 'other': object.data.a}}` },
          },
        ],
      });
      const { data } = await ok(api, 'POST', MAPS, configMap({ a: 'x' }));
      assert.deepEqual([own(data, name), own(data, 'other'), own(data, 'a')], ['y', 'x', 'x']);
    },
  },
  {
    what: 'extra fields of a user in expressions',
    names: ['__proto__', 'constructor', 'tostring'],
    async run(api, name) {
      const expression = `'${name}' in request.userInfo.extra && request.userInfo.extra['${name}'] == ['x']`;
      await addPolicy(api, 'Validating', { validations: [{ expression }] });
      const jane = { 'impersonate-user': 'jane', 'impersonate-group': 'system:masters' };
      assert.equal((await api.request('POST', MAPS, configMap({}), jane)).status, 422);
      await ok(api, 'POST', MAPS, configMap({}), { ...jane, [`impersonate-extra-${name}`]: 'x' });
    },
  },
  {
    what: 'levels, types, kinds and formats that are looked up in tables',
    names: LABELS,
    async run(api, name) {
      const secret = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'one' }, type: name };
      await ok(api, 'POST', `${CORE}/secrets`, secret);
      const labels = only('pod-security.kubernetes.io/enforce', name);
      const namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'two', labels } };
      assert.equal((await api.request('POST', '/api/v1/namespaces', namespace)).status, 422);
      const quota = { apiVersion: 'v1', kind: 'ResourceQuota', metadata: { name: 'q' } };
      const spec = { hard: { pods: '9' }, scopes: [name] };
      assert.equal((await api.request('POST', `${CORE}/resourcequotas`, { ...quota, spec })).status, 422);
      assert.equal((await api.request('GET', `/${name}/ping`)).status, 404);
      await ok(api, 'POST', `${CORE}/serviceaccounts`, {
        apiVersion: 'v1',
        kind: 'ServiceAccount',
        metadata: { name: 'sa' },
      });
      const bound = await api.request('POST', `${CORE}/serviceaccounts/sa/token`, {
        apiVersion: 'authentication.k8s.io/v1',
        kind: 'TokenRequest',
        spec: { boundObjectRef: { kind: name, apiVersion: 'v1', name: 'x' } },
      });
      assert.equal(bound.status, 400, JSON.stringify(bound.body));
      await define(api, { type: 'object', properties: { text: { type: 'string', format: name } } });
      await ok(api, 'POST', WIDGETS, widget({ text: 'x' }));
      const matchConditions = [{ name: 'a', expression: `object.${name}('x')` }];
      const policy = await api.request(
        'POST',
        policiesOf('Validating'),
        policyOf('Validating', { matchConditions }),
      );
      assert.equal(policy.status, 422, JSON.stringify(policy.body));
    },
  },
  {
    what: 'keys and properties of custom resources',
    names: NAMES,
    async run(api, name) {
      await define(api, {
        type: 'object',
        properties: {
          map: { type: 'object', additionalProperties: { type: 'string' } },
          spec: { type: 'object', properties: only(name, { type: 'integer', default: 3 }) },
          free: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
        },
      });
      await ok(api, 'POST', WIDGETS, widget({ spec: {}, map: only(name, 'x'), free: only(name, {}) }));
      const { map, spec, free } = await ok(api, 'GET', `${WIDGETS}/one`);
      assert.deepEqual(
        [entries(map), entries(spec), entries(free)],
        [[[name, 'x']], [[name, 3]], [[name, {}]]],
      );
      const { free: none } = await replace(api, { spec: {}, free: {} });
      assert.deepEqual(entries(none), []);
    },
  },
  {
    what: 'required properties of custom resources',
    names: NAMES,
    async run(api, name) {
      const spec = { type: 'object', required: [name], properties: only(name, { type: 'string' }) };
      await define(api, { type: 'object', properties: { spec } });
      assert.equal((await api.request('POST', WIDGETS, widget({ spec: {} }))).status, 422);
      await ok(api, 'POST', WIDGETS, widget({ spec: only(name, 'x') }));
    },
  },
  {
    what: 'rules of custom resources about maps',
    names: NAMES,
    async run(api, name) {
      const map = {
        type: 'object',
        maxProperties: 5,
        additionalProperties: { type: 'string', maxLength: 5 },
      };
      const rules = [{ rule: `'${name}' in self && self['${name}'] == 'x' && self.all(key, key != 'no')` }];
      await define(api, {
        type: 'object',
        properties: { map: { ...map, 'x-kubernetes-validations': rules } },
      });
      assert.equal((await api.request('POST', WIDGETS, widget({ map: { a: 'x' } }))).status, 422);
      await ok(api, 'POST', WIDGETS, widget({ map: only(name, 'x') }));
    },
  },
  {
    what: 'paths of the scale subresource',
    names: ['__proto__', 'constructor'],
    async run(api, name) {
      const scale = {
        specReplicasPath: `.spec.${name}.polluted`,
        statusReplicasPath: `.status.${name}.polluted`,
      };
      const free = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
      await define(api, { type: 'object', properties: { spec: free, status: free } }, { scale, status: {} });
      await ok(api, 'POST', WIDGETS, widget({ spec: only(name, { polluted: 1 }) }));
      await ok(api, 'PATCH', `${WIDGETS}/one/scale`, { spec: { replicas: 5 } }, MERGE);
      const { spec } = await ok(api, 'GET', `${WIDGETS}/one`);
      assert.deepEqual(entries(spec), [[name, { polluted: 5 }]]);
      await replace(api, { spec: {} });
      const body = {
        apiVersion: 'autoscaling/v1',
        kind: 'Scale',
        metadata: { name: 'one' },
        spec: { replicas: 7 },
      };
      assert.ok((await api.request('PUT', `${WIDGETS}/one/scale`, body)).status >= 400);
    },
  },
];

const WIDGETS = '/apis/example.org/v1/namespaces/default/widgets';
const widget = (more: object) => ({
  apiVersion: 'example.org/v1',
  kind: 'Widget',
  metadata: { name: 'one' },
  ...more,
});

/** Replaces the widget by one with these fields. Updates of custom objects need a version. */
async function replace(api: TestApi, more: object) {
  const { metadata } = await ok(api, 'GET', `${WIDGETS}/one`);
  return ok(api, 'PUT', `${WIDGETS}/one`, { ...widget(more), metadata });
}

type Form = 'Validating' | 'Mutating';
const policiesOf = (form: Form) =>
  `/apis/admissionregistration.k8s.io/v1/${form.toLowerCase()}admissionpolicies`;

function policyOf(form: Form, spec: object) {
  const resourceRules = [
    { apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['configmaps'] },
  ];
  return {
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: `${form}AdmissionPolicy`,
    metadata: { name: 'p' },
    spec: { failurePolicy: 'Fail', matchConstraints: { resourceRules }, ...spec },
  };
}

/** Creates a policy about new ConfigMaps, and its binding. */
async function addPolicy(api: TestApi, form: Form, spec: object): Promise<void> {
  await ok(api, 'POST', policiesOf(form), policyOf(form, spec));
  await ok(api, 'POST', `${policiesOf(form).replace(/ies$/, 'y')}bindings`, {
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: `${form}AdmissionPolicyBinding`,
    metadata: { name: 'p' },
    spec: { policyName: 'p', ...(form === 'Validating' ? { validationActions: ['Deny'] } : {}) },
  });
}

async function define(api: TestApi, openAPIV3Schema: object, subresources?: object): Promise<void> {
  const version = { name: 'v1', served: true, storage: true, schema: { openAPIV3Schema } };
  await ok(api, 'POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: 'widgets.example.org' },
    spec: {
      group: 'example.org',
      scope: 'Namespaced',
      names: { plural: 'widgets', kind: 'Widget' },
      versions: [subresources ? { ...version, subresources } : version],
    },
  });
}

describe('names that objects of JavaScript inherit:', () => {
  afterEach(() => {
    const { polluted } = {} as { polluted?: unknown };
    Reflect.deleteProperty(Object.prototype, 'polluted');
    Reflect.deleteProperty(Object, 'polluted');
    assert.equal(polluted, undefined, 'all objects got a member');
  });
  for (const { what, names, run } of ROWS) {
    for (const name of names) {
      test(`${what} (${name})`, async (t) => {
        const api = startApi();
        t.after(() => api.server.close());
        await run(api, name);
      });
    }
  }
});
