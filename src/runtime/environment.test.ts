import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Container, Pod } from '../kube/types.ts';
import { containerEnvironment, type EnvironmentSources, podField } from './environment.ts';

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
