import assert from 'node:assert/strict';
import { test } from 'node:test';
import { allocatableChanges, isExtendedResource } from './extended-resources.ts';

for (const [name, expected] of [
  ['example.com/gpu', true],
  ['scheduling.k8s.io/foo', true],
  ['cpu', false],
  ['hugepages-2Mi', false],
  ['kubernetes.io/batch-cpu', false],
  ['beta.kubernetes.io/x', false],
  ['requests.example.com/gpu', false],
] as const) {
  test(`${name} is${expected ? '' : ' not'} an extended resource`, () =>
    assert.equal(isExtendedResource(name), expected));
}

const GPU = 'example.com/gpu';
for (const [what, capacity, allocatable, expected] of [
  ['a resource in capacity only becomes allocatable', { cpu: '4', [GPU]: '5' }, { cpu: '4' }, { [GPU]: '5' }],
  ['allocatable follows capacity', { [GPU]: '3' }, { [GPU]: '5' }, { [GPU]: '3' }],
  ['equal amounts in other words are left', { [GPU]: '1k' }, { [GPU]: '1000' }, {}],
  ['a resource that has left capacity is removed', { cpu: '4' }, { cpu: '4', [GPU]: '5' }, { [GPU]: null }],
  ["the kubelet's own resources are left", { cpu: '4' }, { memory: '1Gi' }, {}],
  ['a new node', undefined, undefined, {}],
] as const) {
  test(what, () =>
    assert.deepEqual(
      allocatableChanges({ ...(capacity && { capacity }), ...(allocatable && { allocatable }) }),
      expected,
    ),
  );
}
