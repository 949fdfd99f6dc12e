import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { APPS, CORE, configMap, deployment, startApi } from '../../testing/api.ts';

const REGISTRATION = '/apis/admissionregistration.k8s.io/v1';
const api = startApi();
after(() => api.server.close());

const resourceRules = [
  { apiGroups: ['apps'], apiVersions: ['*'], operations: ['CREATE', 'UPDATE'], resources: ['deployments'] },
];

const apply = (expression: string) => ({
  patchType: 'ApplyConfiguration',
  applyConfiguration: { expression },
});
const patch = (expression: string) => ({ patchType: 'JSONPatch', jsonPatch: { expression } });

async function policy(name: string, mutations: readonly object[], spec: object = {}, binding: object = {}) {
  const made = await api.request('POST', `${REGISTRATION}/mutatingadmissionpolicies`, {
    metadata: { name },
    spec: { matchConstraints: { resourceRules }, reinvocationPolicy: 'Never', mutations, ...spec },
  });
  assert.equal(made.status, 201, made.body.message);
  const bound = await api.request('POST', `${REGISTRATION}/mutatingadmissionpolicybindings`, {
    metadata: { name: `${name}-binding` },
    spec: { policyName: name, ...binding },
  });
  assert.equal(bound.status, 201, bound.body.message);
  return async () => {
    await api.request('DELETE', `${REGISTRATION}/mutatingadmissionpolicies/${name}`);
    await api.request('DELETE', `${REGISTRATION}/mutatingadmissionpolicybindings/${name}-binding`);
  };
}

type Row = readonly [
  name: string,
  mutations: readonly object[],
  spec: object,
  expected: (deployment: Made) => unknown,
  value: unknown,
];
interface Made {
  readonly metadata: { readonly annotations?: object; readonly labels?: object };
  readonly spec: {
    readonly replicas: number;
    readonly template: { readonly spec: { readonly containers: readonly Record<string, unknown>[] } };
  };
}
const replicas = ({ spec }: Made) => spec.replicas;
const labels = ({ metadata }: Made) => metadata.labels;
const images = ({ spec }: Made) => spec.template.spec.containers.map(({ name, image }) => `${name}=${image}`);

const ROWS: readonly Row[] = [
  ['an apply configuration sets a field', [apply('Object{spec: Object.spec{replicas: 7}}')], {}, replicas, 7],
  [
    'an apply configuration adds to a map and preserves the rest',
    [
      apply(
        'Object{metadata: Object.metadata{labels: object.metadata.?labels.orValue({}).size() == 0 ? {"a": "b"} : {"c": "d"}}}',
      ),
    ],
    {},
    labels,
    { a: 'b' },
  ],
  [
    'an apply configuration adds a container to the others',
    [
      apply(`Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
        containers: [Object.spec.template.spec.containers{name: "sidecar", image: "proxy:1"}]
      }}}}`),
    ],
    {},
    images,
    ['web=web:1', 'sidecar=proxy:1'],
  ],
  [
    'an optional field without a value is omitted',
    [apply('Object{spec: Object.spec{?replicas: object.metadata.?annotations["none"]}}')],
    {},
    replicas,
    2,
  ],
  [
    'text in quotes that looks like a literal is unchanged',
    [apply('Object{metadata: Object.metadata{annotations: {"a": "Object{x", \'b\': r"\\{" + "}" }}}')],
    {},
    ({ metadata }) => metadata.annotations,
    { a: 'Object{x', b: '\\{}' },
  ],
  [
    'mutations see the results of previous ones',
    [
      apply('Object{spec: Object.spec{replicas: object.spec.replicas + 1}}'),
      apply('Object{spec: Object.spec{replicas: object.spec.replicas * 10}}'),
    ],
    {},
    replicas,
    30,
  ],
  [
    'a JSON patch adds an item to a list, and a member whose key is escaped',
    [
      patch(`[
        JSONPatch{op: "add", path: "/metadata/annotations", value: {}},
        JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("example.com/a"), value: "x"},
        JSONPatch{op: "add", path: "/spec/template/spec/containers/-",
          value: Object.spec.template.spec.containers{name: "sidecar", image: "proxy:1"}},
      ]`),
    ],
    {},
    (made) => [made.metadata.annotations, images(made)],
    [{ 'example.com/a': 'x' }, ['web=web:1', 'sidecar=proxy:1']],
  ],
  [
    'a JSON patch with a failed test is not applied',
    [
      patch(`[
        JSONPatch{op: "test", path: "/spec/replicas", value: 9},
        JSONPatch{op: "replace", path: "/spec/replicas", value: 1}
      ]`),
    ],
    {},
    replicas,
    2,
  ],
  [
    'a match condition that is false skips the policy',
    [apply('Object{spec: Object.spec{replicas: 7}}')],
    { matchConditions: [{ name: 'other', expression: 'object.metadata.name != "web"' }] },
    replicas,
    2,
  ],
  [
    'variables and parameters can be used',
    [apply('Object{spec: Object.spec{replicas: variables.wanted}}')],
    {
      paramKind: { apiVersion: 'v1', kind: 'ConfigMap' },
      variables: [{ name: 'wanted', expression: 'int(params.data.replicas)' }],
    },
    replicas,
    5,
  ],
  [
    'an error is ignored with failurePolicy Ignore',
    [apply('Object{spec: Object.spec{replicas: object.spec.none}}')],
    { failurePolicy: 'Ignore' },
    replicas,
    2,
  ],
];

test('bindings of the rows read their parameters from an object', async () => {
  const made = await api.request('POST', `${CORE}/configmaps`, configMap('wanted', { replicas: '5' }));
  assert.equal(made.status, 201);
});

const web = () =>
  deployment('web', {
    replicas: 2,
    template: {
      metadata: { labels: { app: 'web' } },
      spec: { containers: [{ name: 'web', image: 'web:1' }] },
    },
    selector: { matchLabels: { app: 'web' } },
  });

for (const [name, mutations, spec, read, expected] of ROWS) {
  test(name, async () => {
    const binding =
      'paramKind' in spec
        ? { paramRef: { name: 'wanted', namespace: 'default', parameterNotFoundAction: 'Deny' } }
        : {};
    const remove = await policy('change', mutations, spec, binding);
    const answer = await api.request('POST', `${APPS}/deployments?dryRun=All`, web());
    await remove();
    assert.equal(answer.status, 201, answer.body.message);
    assert.deepEqual(read(answer.body as unknown as Made), expected);
  });
}

const DENIED = `deployments.apps "web" is forbidden: policy 'change' with binding 'change-binding' denied request: `;

const REFUSALS: readonly [name: string, mutation: object, status: number, message: string][] = [
  [
    'a failed expression refuses the write',
    apply('Object{spec: Object.spec{replicas: object.spec.none}}'),
    403,
    `${DENIED}expression 'Object{spec: Object.spec{replicas: object.spec.none}}' resulted in error: no such key: none`,
  ],
  [
    'a type must be named by the path of its field',
    apply('Object{spec: Object.specx{replicas: 1}}'),
    403,
    `${DENIED}type mismatch: unexpected type name "Object.specx", expected "Object.spec", which matches field name path from root Object type`,
  ],
  [
    'a field must belong to the kind',
    apply('Object{spec: Object.spec{replicasx: 1}}'),
    403,
    `${DENIED}error applying patch: failed to convert patch object to typed object: .spec.replicasx: field not declared in schema`,
  ],
  [
    'an atomic value cannot be applied',
    apply('Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {"l": "v"}}}}'),
    403,
    `${DENIED}error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector`,
  ],
  [
    'a JSON patch must not add unknown fields',
    patch('[JSONPatch{op: "add", path: "/spec/none", value: 1}]'),
    500,
    'Internal error occurred: strict decoding error: unknown field "spec.none"',
  ],
];

for (const [name, mutation, status, message] of REFUSALS) {
  test(name, async () => {
    const remove = await policy('change', [mutation]);
    const answer = await api.request('POST', `${APPS}/deployments?dryRun=All`, web());
    await remove();
    assert.equal(answer.body.message, message);
    assert.equal(answer.status, status);
  });
}

test('a policy with reinvocationPolicy IfNeeded is reinvoked after changes of a later one', async () => {
  const counting = apply('Object{spec: Object.spec{replicas: object.spec.replicas + 1}}');
  const labelling = apply('Object{metadata: Object.metadata{labels: {"late": "yes"}}}');
  for (const [reinvocationPolicy, expected] of [
    ['Never', 3],
    ['IfNeeded', 4],
  ] as const) {
    const removals = [await policy('a', [counting], { reinvocationPolicy }), await policy('b', [labelling])];
    const answer = await api.request('POST', `${APPS}/deployments?dryRun=All`, web());
    for (const remove of removals) await remove();
    assert.equal(answer.body.spec.replicas, expected, reinvocationPolicy);
  }
});

const INVALID: readonly [name: string, mutation: object, message: RegExp][] = [
  [
    'an apply configuration of another type',
    apply('"text"'),
    /applyConfiguration\.expression: Invalid value: .*must evaluate to Object but got string/,
  ],
  [
    'an apply configuration of a part',
    apply('Object.spec{replicas: 1}'),
    /must evaluate to Object but got a part of Object/,
  ],
  [
    'a JSON patch that is not a list',
    patch('JSONPatch{op: "remove", path: "/x"}'),
    /must evaluate to list\(JSONPatch\) but got JSONPatch/,
  ],
  ['an unknown type', apply('Thing{a: 1}'), /undeclared reference to 'Thing'/],
  ['an unknown field of JSONPatch', patch('[JSONPatch{operation: "add"}]'), /undefined field 'operation'/],
  ['an unterminated literal', apply('Object{spec: '), /compilation failed/],
];

for (const [name, mutation, message] of INVALID) {
  test(`${name} is refused when the policy is created`, async () => {
    const { status, body } = await api.request('POST', `${REGISTRATION}/mutatingadmissionpolicies`, {
      metadata: { name: 'broken' },
      spec: { matchConstraints: { resourceRules }, reinvocationPolicy: 'Never', mutations: [mutation] },
    });
    assert.equal(status, 422, body.message);
    assert.match(body.message, message);
  });
}
