import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Container, Pod } from '../kube/types.ts';
import { containerEnvironment, type EnvironmentSources, podField } from './environment.ts';
import { expand, missingVariable } from './expansion.ts';

const sources = (data: Readonly<Record<string, string>>, pod: Pod = {}): EnvironmentSources => ({
  pod,
  podIps: [],
  hostIps: [],
  allocatable: {},
  configMap: () => data,
  secret: () => data,
  services: {},
});

for (const key of ['constructor', 'toString', 'hasOwnProperty', '__proto__']) {
  const data = Object.fromEntries([[key, 'x']]);

  test(`a variable and a key named ${key} are found if they are set, and only then`, () => {
    const container = (optional: boolean): Container => ({
      name: 'main',
      envFrom: [{ configMapRef: { name: 'one' } }],
      env: [
        { name: 'FROM_KEY', valueFrom: { configMapKeyRef: { name: 'one', key, optional } } },
        { name: 'EXPANDED', value: `$(${key})` },
        { name: key, value: 'y' },
      ],
    });
    const found = containerEnvironment(container(false), {}, sources(data));
    assert.deepEqual([found.get('FROM_KEY'), found.get('EXPANDED'), found.get(key)], ['x', 'x', 'y']);
    const none = containerEnvironment(container(true), {}, sources({}));
    assert.deepEqual([none.get('FROM_KEY'), none.get('EXPANDED')], [undefined, `$(${key})`]);
    assert.throws(() => containerEnvironment(container(false), {}, sources({})), /couldn't find key/);
  });

  test(`the label and the annotation ${key} of a pod are its own`, () => {
    for (const field of ['labels', 'annotations'] as const) {
      const path = `metadata.${field}['${key}']`;
      assert.equal(podField(path, sources({}, { metadata: { [field]: {} } })), '');
      assert.equal(podField(path, sources({}, { metadata: { [field]: data } })), 'x');
    }
  });
}

test('variables of variables grow only as far as the kernel passes them on', () => {
  const env = Array.from({ length: 40 }, (_, i) => ({
    name: `V${i}`,
    value: i === 0 ? 'x'.repeat(1000) : `$(V${i - 1})$(V${i - 1})`,
  }));
  assert.throws(() => containerEnvironment({ name: 'main', env }, {}, sources({})), {
    reason: 'CreateContainerConfigError',
    message: /more than 131071 bytes/,
  });
  const many = Array.from({ length: 100 }, (_, i) => ({
    name: `V${i}`,
    value: i === 0 ? 'x'.repeat(100_000) : '$(V0)',
  }));
  assert.throws(
    () => containerEnvironment({ name: 'main', env: many }, {}, sources({})),
    /6291456 bytes together/,
  );
});

const expansions: readonly [text: string, expanded: string, missing: string | null][] = [
  ['$(A)-$(B)', '1-$(B)', 'B'],
  ['$$(A) $$$(A)', '$(A) $1', null],
  ['$(A', '$(A', null],
  ['$(A $$ $', '$(A $ $', null],
  ['a$b$(A)', 'a$b1', null],
  ['$($(A))', '$($(A))', '$(A'],
];
for (const [text, expanded, missing] of expansions)
  test(`the variables of ${text}`, () => {
    assert.equal(expand(text, new Map([['A', '1']])), expanded);
    assert.equal(missingVariable(text, new Map([['A', '1']])), missing);
  });

test('texts that are written to be slow are read once', () => {
  for (const unit of ['$', '$(', '$$(', '$()'])
    assert.equal(missingVariable(unit.repeat(1 << 20), new Map([['', '']])), null);
});
