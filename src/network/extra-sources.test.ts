import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { extraSources } from './extra-sources.ts';

describe('additional sources of a pod', () => {
  const rows: [
    name: string,
    pod: string | undefined,
    namespace: string | undefined,
    allowed: string[],
    refused: string[],
  ][] = [
    ['none without an annotation', undefined, '192.0.2.0/24', [], []],
    ['an address of a permitted network', '192.0.2.7', '192.0.2.0/24', ['192.0.2.7/32'], []],
    ['a part of a permitted network', '192.0.2.128/25', '192.0.2.0/24', ['192.0.2.128/25'], []],
    ['both families', '192.0.2.7, fd00::7', 'fd00::/64,192.0.2.0/24', ['192.0.2.7/32', 'fd00::7/128'], []],
    ['refused without permission of the namespace', '192.0.2.7', undefined, [], ['192.0.2.7']],
    ['refused outside the permitted network', '198.51.100.1', '192.0.2.0/24', [], ['198.51.100.1']],
    ['refused if larger than the permitted network', '192.0.2.0/23', '192.0.2.0/24', [], ['192.0.2.0/23']],
    ['refused if it is not an address', 'vip', '0.0.0.0/0', [], ['vip']],
    ['a permission that is not a network permits nothing', '192.0.2.7', 'everything', [], ['192.0.2.7']],
  ];
  for (const [name, pod, namespace, allowed, refused] of rows) {
    test(name, () => {
      const found = extraSources(pod, namespace);
      assert.deepEqual(
        found.allowed.map(({ text }) => text),
        allowed,
      );
      assert.deepEqual(
        found.refused.map(({ text }) => text),
        refused,
      );
    });
  }

  test('at most 64 are read', () => {
    const many = Array.from({ length: 70 }, (_, i) => `192.0.2.${i}`).join();
    const found = extraSources(many, '192.0.2.0/24');
    assert.deepEqual([found.allowed.length, found.refused.length], [64, 6]);
  });
});
