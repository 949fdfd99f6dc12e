import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEFAULTS } from '../defaults/defaults.ts';
import type { ApiObject } from '../object.ts';
import { definitionConditions } from './definition-conditions.ts';
import { parseJsonPath } from './json-path.ts';
import { createColumnPrinter } from './printer-columns.ts';
import { applyDefaults, pruneValue, type StructuralSchema } from './structural-schema.ts';
import { validateDefinition } from './validate-definition.ts';
import { validateValue } from './validate-value.ts';

const NOW = new Date('2026-01-01T00:00:00Z');
const open = { 'x-kubernetes-preserve-unknown-fields': true } as const;
const object = (
  properties: StructuralSchema['properties'],
  more: StructuralSchema = {},
): StructuralSchema => ({
  type: 'object',
  ...(properties ? { properties } : {}),
  ...more,
});

const pruned: readonly [what: string, schema: StructuralSchema, value: object, gone: string[]][] = [
  ['unknown members', object({ a: { type: 'string' } }), { a: '1', b: 2 }, ['b']],
  [
    'members within lists',
    object({ l: { type: 'array', items: object({}) } }),
    { l: [{ x: 1 }] },
    ['l[0].x'],
  ],
  ['no fields below preserve-unknown-fields', object({}, open), { b: { c: 1 } }, []],
  [
    'unknown fields of specified members in preserved objects',
    object({ a: object({}) }, open),
    { a: { x: 1 }, b: 1 },
    ['a.x'],
  ],
  ['no keys of a map', object(undefined, { additionalProperties: { type: 'string' } }), { k: 'v' }, []],
  ['neither metadata nor kind at the root', object({}), { kind: 'A', apiVersion: 'v1', metadata: {} }, []],
  [
    'an embedded object except its type and metadata',
    object({ e: { ...object({}), 'x-kubernetes-embedded-resource': true } }),
    { e: { kind: 'A', metadata: {}, spec: 1 } },
    ['e.spec'],
  ],
];
for (const [what, schema, value, gone] of pruned) {
  test(`pruning takes ${what}`, () => assert.deepEqual(pruneValue(schema, structuredClone(value)), gone));
}

const defaulted: readonly [what: string, schema: StructuralSchema, value: object, result: object][] = [
  ['an absent member', object({ a: { type: 'string', default: 'x' } }), {}, { a: 'x' }],
  [
    'members of a default',
    object({ a: object({ b: { type: 'integer', default: 1 } }, { default: {} }) }),
    {},
    { a: { b: 1 } },
  ],
  [
    'items of lists',
    object({ l: { type: 'array', items: object({ b: { default: 1 } }) } }),
    { l: [{}] },
    { l: [{ b: 1 }] },
  ],
  ['a null that is not allowed', object({ a: { type: 'string', default: 'x' } }), { a: null }, { a: 'x' }],
  ['not a null that is allowed', object({ a: { nullable: true, default: 'x' } }), { a: null }, { a: null }],
];
for (const [what, schema, value, result] of defaulted) {
  test(`a default fills in ${what}`, () => {
    const copy = structuredClone(value);
    applyDefaults(schema, copy);
    assert.deepEqual(copy, result);
  });
}

const spec = (member: StructuralSchema, more: StructuralSchema = {}) => object({ spec: member }, more);
const refused: readonly [schema: StructuralSchema, value: object, error: string | null][] = [
  [
    spec({ type: 'integer' }),
    { spec: 'x' },
    'spec: Invalid value: "string": spec in body must be of type integer: "string"',
  ],
  [
    spec({ type: 'integer', minimum: 1 }),
    { spec: 0 },
    'spec: Invalid value: 0: spec in body should be greater than or equal to 1',
  ],
  [
    spec({ type: 'integer', maximum: 1 }),
    { spec: 2 },
    'spec: Invalid value: 2: spec in body should be less than or equal to 1',
  ],
  [
    spec({ type: 'string', enum: ['a', 'b'] }),
    { spec: 'c' },
    'spec: Unsupported value: "c": supported values: "a", "b"',
  ],
  [
    spec({ type: 'string', nullable: true, enum: ['a', 'b'] }),
    { spec: null },
    'spec: Unsupported value: null: supported values: "a", "b"',
  ],
  [
    spec({ type: 'string', pattern: '^a$' }),
    { spec: 'b' },
    'spec: Invalid value: "b": spec in body should match \'^a$\'',
  ],
  [spec({ type: 'string', maxLength: 1 }), { spec: 'ab' }, 'spec: Too long: may not be more than 1 bytes'],
  [
    spec({ type: 'string', format: 'ipv4' }),
    { spec: '::1' },
    'spec: Invalid value: "::1": spec in body must be of type ipv4: "::1"',
  ],
  [
    spec({ type: 'array', items: { type: 'string' }, maxItems: 1 }),
    { spec: ['a', 'b'] },
    'spec: Too many: 2: must have at most 1 item',
  ],
  [object({}, { required: ['spec'] }), {}, 'spec: Required value'],
  [
    spec({ type: 'array', 'x-kubernetes-list-type': 'set', items: { type: 'string' } }),
    { spec: ['a', 'a'] },
    'spec[1]: Duplicate value: "a"',
  ],
  [
    spec({
      type: 'array',
      'x-kubernetes-list-type': 'map',
      'x-kubernetes-list-map-keys': ['k'],
      items: object({ k: { type: 'string' } }),
    }),
    { spec: [{ k: 'a' }, { k: 'a' }] },
    'spec[1]: Duplicate value: {"k":"a"}',
  ],
  [
    spec({ 'x-kubernetes-int-or-string': true }),
    { spec: true },
    'spec: Invalid value: "boolean": spec in body must be of type integer,string: "boolean"',
  ],
  [spec({ 'x-kubernetes-int-or-string': true }), { spec: '50%' }, null],
  [spec({ type: 'string', nullable: true }), { spec: null }, null],
  [
    spec(
      object(
        { a: { type: 'string' }, b: { type: 'string' } },
        { oneOf: [{ required: ['a'] }, { required: ['b'] }] },
      ),
    ),
    { spec: { a: '', b: '' } },
    '<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives',
  ],
];
for (const [schema, value, error] of refused) {
  test(`${JSON.stringify(value)} of ${JSON.stringify(schema)}`, () => {
    const [found] = validateValue(schema, value);
    assert.equal(found ? `${found.field}: ${found.message}` : null, error);
  });
}

test('a violated rule is reported with its message, and sees the old value', () => {
  const rule = { rule: 'self == oldSelf', message: 'is immutable' };
  const schema = spec({ type: 'string', 'x-kubernetes-validations': [rule] });
  const seen: unknown[] = [];
  const errors = validateValue(
    schema,
    { spec: 'b' },
    {
      old: { spec: 'a' },
      evaluateRule: ({ message = null }, _schema, value, old) => {
        seen.push([value, old]);
        return { message };
      },
    },
  );
  assert.deepEqual(seen, [['b', 'a']]);
  assert.equal(errors[0]?.message, 'Invalid value: "b": is immutable');
});

const source = {
  metadata: { name: 'web', annotations: { 'a.b/c': 'noted' } },
  spec: {
    replicas: 3,
    ports: [
      { name: 'http', port: 80 },
      { name: 'dns', port: 53 },
    ],
  },
};
const paths: readonly [path: string, values: unknown[]][] = [
  ['.spec.replicas', [3]],
  ['.spec.ports[0].port', [80]],
  ['.spec.ports[-1].port', [53]],
  ['.spec.ports[*].name', ['http', 'dns']],
  ['.spec.ports[?(@.name=="dns")].port', [53]],
  ['.spec.ports[?(@.port>60)].name', ['http']],
  [String.raw`.metadata.annotations.a\.b/c`, ['noted']],
  [String.raw`.metadata.annotations['a\.b/c']`, ['noted']],
  ['.spec.absent.more', []],
];
for (const [path, values] of paths) {
  test(`${path} finds ${JSON.stringify(values)}`, () =>
    assert.deepEqual(parseJsonPath(path)(source), values));
}

test('columns show the first value if it has their type, else an empty cell', () => {
  const printer = createColumnPrinter([
    { name: 'Replicas', type: 'integer', jsonPath: '.spec.replicas' },
    { name: 'Wrong', type: 'boolean', jsonPath: '.spec.replicas' },
    { name: 'Ports', type: 'string', jsonPath: '.spec.ports[*].name' },
  ]);
  assert.deepEqual(printer.cells(source as unknown as ApiObject, NOW), ['web', 3, null, 'http']);
});

/** A definition that is valid. */
function definition(
  change: (spec: Record<string, unknown>) => void = () => {},
  name = 'widgets.example.com',
): ApiObject {
  const spec: Record<string, unknown> = {
    group: 'example.com',
    names: { plural: 'widgets', kind: 'Widget' },
    scope: 'Namespaced',
    versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: { type: 'object' } } }],
  };
  change(spec);
  const made: ApiObject = {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name },
    spec,
  };
  DEFAULTS['apiextensions.v1.CustomResourceDefinition']?.(made as unknown as Record<string, never>);
  return made;
}

/** The definition with another schema for its version. */
const withSchema = (schema: unknown) =>
  definition((spec) => {
    spec['versions'] = [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: schema } }];
  });

const SCHEMA = 'spec.validation.openAPIV3Schema';
const definitions: readonly [what: string, definition: ApiObject, field: string | null][] = [
  ['a plain one', definition(), null],
  ['a name that is not plural and group', definition(undefined, 'other.example.com'), 'metadata.name'],
  [
    'a scope that does not exist',
    definition((spec) => {
      spec['scope'] = 'Galaxy';
    }),
    'spec.scope',
  ],
  [
    'no version',
    definition((spec) => {
      spec['versions'] = [];
    }),
    'spec.versions',
  ],
  [
    'no storage version',
    definition((spec) => {
      spec['versions'] = [
        { name: 'v1', served: true, storage: false, schema: { openAPIV3Schema: { type: 'object' } } },
      ];
    }),
    'spec.versions',
  ],
  [
    'no schema',
    definition((spec) => {
      spec['versions'] = [{ name: 'v1', served: true, storage: true }];
    }),
    'spec.versions[0].schema.openAPIV3Schema',
  ],
  ['a root that is not an object', withSchema({ type: 'string' }), `${SCHEMA}.type`],
  ['a member without type', withSchema(object({ a: {} })), `${SCHEMA}.properties[a].type`],
  ['a list without items', withSchema(object({ a: { type: 'array' } })), `${SCHEMA}.properties[a].items`],
  [
    'a default of another type',
    withSchema(object({ a: { type: 'string', default: 1 } })),
    `${SCHEMA}.properties[a].default`,
  ],
  [
    'map keys that items do not have',
    withSchema(
      object({
        a: {
          type: 'array',
          'x-kubernetes-list-type': 'map',
          'x-kubernetes-list-map-keys': ['k'],
          items: object({}),
        },
      }),
    ),
    `${SCHEMA}.properties[a].x-kubernetes-list-map-keys[0]`,
  ],
  [
    'a rule that cannot be compiled',
    withSchema(object({ a: { type: 'string', 'x-kubernetes-validations': [{ rule: 'self ==' }] } })),
    `${SCHEMA}.properties[a].x-kubernetes-validations[0].rule`,
  ],
  [
    'a conversion webhook without clientConfig',
    definition((spec) => {
      spec['conversion'] = { strategy: 'Webhook', webhook: { conversionReviewVersions: ['v1'] } };
    }),
    'spec.conversion.webhook.clientConfig',
  ],
  [
    'a protected group without approval',
    definition((spec) => {
      spec['group'] = 'x.k8s.io';
    }, 'widgets.x.k8s.io'),
    'metadata.annotations[api-approved.kubernetes.io]',
  ],
];
for (const [what, made, field] of definitions) {
  test(`a definition with ${what} is ${field ? 'refused' : 'accepted'}`, () => {
    assert.deepEqual(
      validateDefinition(made, null).map((error) => error.field),
      field ? [field] : [],
    );
  });
}

test('a definition whose names are free is established', () => {
  const { conditions, acceptedNames } = definitionConditions(definition(), [], NOW);
  assert.deepEqual(
    conditions.map(({ type, status }) => [type, status]),
    [
      ['NamesAccepted', 'True'],
      ['Established', 'True'],
    ],
  );
  assert.equal(acceptedNames.listKind, 'WidgetList');
});

test('a definition whose kind another definition has is not established', () => {
  const other = definition((spec) => {
    spec['names'] = { plural: 'gadgets', kind: 'Widget' };
  }, 'gadgets.example.com');
  other['status'] = { acceptedNames: (other['spec'] as { names: object }).names };
  const { conditions } = definitionConditions(definition(), [other], NOW);
  assert.deepEqual(
    conditions.map(({ type, status, reason }) => [type, status, reason]),
    [
      ['NamesAccepted', 'False', 'ListKindConflict'],
      ['Established', 'False', 'NotAccepted'],
    ],
  );
});

test('a stored rule may refer to what its schema does not have; a new one may not', () => {
  const rules = (rule: string) =>
    withSchema(object({ spec: { type: 'object', properties: {}, 'x-kubernetes-validations': [{ rule }] } }));
  const fields = (now: string, then: string | null) =>
    validateDefinition(rules(now), then === null ? null : rules(then)).map(({ field }) => field);
  const place = `${SCHEMA}.properties[spec].x-kubernetes-validations[0].rule`;
  assert.deepEqual(fields('self.z == 1', null), [place]);
  assert.deepEqual(fields('self.z == 1', 'self.z == 1'), []);
  assert.deepEqual(fields('self.z == 2', 'self.z == 1'), [place]);
});

const rule = 'self.all(x, self.all(y, x == y))';
const rulesByCost: readonly [what: string, schema: object, problems: readonly string[]][] = [
  ['a list of unlimited texts without items', { maxItems: 0 }, []],
  ['a small list of unlimited texts', { maxItems: 3 }, []],
  ['an unlimited list', {}, ['estimated rule cost', 'contributed to', 'estimated rule cost total']],
];
for (const [what, limits, problems] of rulesByCost) {
  test(`a rule about ${what} has ${problems.length} problems of cost`, () => {
    const spec = {
      type: 'array',
      items: { type: 'string' },
      ...limits,
      'x-kubernetes-validations': [{ rule }],
    };
    const found = validateDefinition(withSchema(object({ spec })), null).map(({ message }) => message);
    assert.equal(found.length, problems.length, found.join(', '));
    for (const [i, problem] of problems.entries()) assert.ok(found[i]?.includes(problem), found[i]);
  });
}
