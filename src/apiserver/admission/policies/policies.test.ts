import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { APPS, CORE, configMap, deployment, startApi } from '../../testing/api.ts';

const REGISTRATION = '/apis/admissionregistration.k8s.io/v1';
const api = startApi();
after(() => api.server.close());

const rule = (apiGroups: string[], resources: string[], operations = ['CREATE', 'UPDATE']) => ({
  apiGroups,
  apiVersions: ['*'],
  operations,
  resources,
});

async function policy(name: string, spec: object, binding: object = {}) {
  const made = await api.request('POST', `${REGISTRATION}/validatingadmissionpolicies`, {
    metadata: { name },
    spec: { matchConstraints: { resourceRules: [rule(['apps'], ['deployments'])] }, ...spec },
  });
  assert.equal(made.status, 201, made.body.message);
  const bound = await api.request('POST', `${REGISTRATION}/validatingadmissionpolicybindings`, {
    metadata: { name: `${name}-binding` },
    spec: { policyName: name, validationActions: ['Deny'], ...binding },
  });
  assert.equal(bound.status, 201, bound.body.message);
  return async () => {
    await api.request('DELETE', `${REGISTRATION}/validatingadmissionpolicies/${name}`);
    await api.request('DELETE', `${REGISTRATION}/validatingadmissionpolicybindings/${name}-binding`);
  };
}

const ROWS: readonly [name: string, spec: object, body: object, refusal: string | null][] = [
  [
    'a satisfied validation allows the write',
    { validations: [{ expression: 'object.spec.replicas <= 5' }] },
    deployment('few', { replicas: 3 }),
    null,
  ],
  [
    'a failed validation names its expression',
    { validations: [{ expression: 'object.spec.replicas <= 5' }] },
    deployment('many', { replicas: 6 }),
    'failed expression: object.spec.replicas <= 5',
  ],
  [
    'a message replaces the expression',
    { validations: [{ expression: 'object.spec.replicas <= 5', message: 'at most 5' }] },
    deployment('many', { replicas: 6 }),
    'at most 5',
  ],
  [
    'a message expression computes the message',
    {
      validations: [
        {
          expression: 'object.spec.replicas <= 5',
          messageExpression: '"not " + string(object.spec.replicas)',
        },
      ],
    },
    deployment('many', { replicas: 6 }),
    'not 6',
  ],
  [
    'variables build on each other',
    {
      variables: [
        { name: 'replicas', expression: 'object.spec.replicas' },
        { name: 'odd', expression: 'variables.replicas % 2 == 1' },
      ],
      validations: [{ expression: 'variables.odd', message: 'must be odd' }],
    },
    deployment('even', { replicas: 4 }),
    'must be odd',
  ],
  [
    'a match condition that is false skips the policy',
    {
      matchConditions: [{ name: 'other', expression: 'object.metadata.name != "many"' }],
      validations: [{ expression: 'false' }],
    },
    deployment('many', { replicas: 6 }),
    null,
  ],
  [
    'an error refuses by default',
    { validations: [{ expression: 'object.spec.none > 1' }] },
    deployment('any'),
    "expression 'object.spec.none > 1' resulted in error: no such key: none",
  ],
  [
    'an error is ignored with failurePolicy Ignore',
    { failurePolicy: 'Ignore', validations: [{ expression: 'object.spec.none > 1' }] },
    deployment('any'),
    null,
  ],
  [
    'the authorizer decides about the user',
    {
      validations: [
        {
          expression:
            "authorizer.group('apps').resource('deployments').namespace('default').check('create').allowed()",
        },
      ],
    },
    deployment('mine'),
    null,
  ],
];

for (const [name, spec, body, refusal] of ROWS) {
  test(name, async () => {
    const remove = await policy('limit', spec);
    const answer = await api.request('POST', `${APPS}/deployments?dryRun=All`, body);
    await remove();
    if (refusal === null) assert.equal(answer.status, 201, answer.body.message);
    else {
      assert.equal(answer.status, 422);
      const object = (body as { metadata: { name: string } }).metadata.name;
      assert.equal(
        answer.body.message,
        `deployments.apps "${object}" is forbidden: ValidatingAdmissionPolicy 'limit' with binding 'limit-binding' denied request: ${refusal}`,
      );
    }
  });
}

test('a binding reads its parameters from an object', async () => {
  await api.request('POST', `${CORE}/configmaps`, configMap('limits', { max: '2' }));
  const remove = await policy(
    'by-parameter',
    {
      paramKind: { apiVersion: 'v1', kind: 'ConfigMap' },
      validations: [{ expression: 'object.spec.replicas <= int(params.data.max)' }],
    },
    { paramRef: { name: 'limits', namespace: 'default', parameterNotFoundAction: 'Deny' } },
  );
  const make = (replicas: number) =>
    api.request('POST', `${APPS}/deployments?dryRun=All`, deployment('web', { replicas }));
  assert.equal((await make(2)).status, 201);
  assert.equal((await make(3)).status, 422);
  await api.request('DELETE', `${CORE}/configmaps/limits`);
  assert.match((await make(1)).body.message, /no params found for policy binding/);
  await remove();
});

test('a binding with the action Warn lets the write pass with a warning', async () => {
  const remove = await policy(
    'soft',
    { validations: [{ expression: 'false' }] },
    { validationActions: ['Warn'] },
  );
  const answer = await api.request('POST', `${APPS}/deployments?dryRun=All`, deployment('web'));
  await remove();
  assert.equal(answer.status, 201);
  assert.match(String(answer.headers['warning']), /Validation failed for ValidatingAdmissionPolicy 'soft'/);
});

test('the status of a policy names the type errors of its expressions', async () => {
  const remove = await policy('typed', {
    matchConstraints: {
      resourceRules: [{ ...rule(['apps'], ['deployments']), apiVersions: ['v1'] }],
    },
    validations: [
      { expression: 'object.spec.replicas > 1' },
      { expression: "object.spec.foo == 'object.bar'" },
      { expression: "object.spec.replicas > '1'" },
      { expression: 'object.metadata.labels["a"].size() < 3 && request.operation == "CREATE"' },
      {
        expression:
          'object.spec.template.spec.containers.all(c, c.imag != "" && c.resources.limits["cpu"] != "")',
        messageExpression: '"at " + object.metadata.creationTimestamp',
      },
    ],
  });
  const path = `${REGISTRATION}/validatingadmissionpolicies/typed`;
  let status: { observedGeneration?: number; typeChecking?: object } = {};
  for (let left = 100; left > 0 && status.observedGeneration === undefined; left--) {
    await new Promise((resolve) => {
      setTimeout(resolve, 10);
    });
    status = (await api.request('GET', path)).body.status ?? {};
  }
  await remove();
  assert.deepEqual(status, {
    observedGeneration: 1,
    typeChecking: {
      expressionWarnings: [
        {
          fieldRef: 'spec.validations[1].expression',
          warning: [
            "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'foo'",
            " | object.spec.foo == 'object.bar'",
            ' | ...........^',
            '',
          ].join('\n'),
        },
        {
          fieldRef: 'spec.validations[2].expression',
          warning: [
            "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'",
            " | object.spec.replicas > '1'",
            ' | .....................^',
            '',
          ].join('\n'),
        },
        {
          fieldRef: 'spec.validations[4].expression',
          warning: [
            "apps/v1, Kind=Deployment: ERROR: <input>:1:46: undefined field 'imag'",
            ' | object.spec.template.spec.containers.all(c, c.imag != "" && c.resources.limits["cpu"] != "")',
            ' | .............................................^',
            '',
          ].join('\n'),
        },
        {
          fieldRef: 'spec.validations[4].messageExpression',
          warning: [
            "apps/v1, Kind=Deployment: ERROR: <input>:1:7: found no matching overload for '_+_' applied to '(string, timestamp)'",
            ' | "at " + object.metadata.creationTimestamp',
            ' | ......^',
            '',
          ].join('\n'),
        },
      ],
    },
  });
});

test('a policy whose expression cannot be compiled is refused', async () => {
  const { status, body } = await api.request('POST', `${REGISTRATION}/validatingadmissionpolicies`, {
    metadata: { name: 'broken' },
    spec: {
      matchConstraints: { resourceRules: [rule([''], ['pods'])] },
      validations: [{ expression: 'object.spec.' }],
    },
  });
  assert.equal(status, 422);
  assert.match(
    body.message,
    /spec\.validations\[0\]\.expression: Invalid value: "object\.spec\.": compilation failed/,
  );
});
