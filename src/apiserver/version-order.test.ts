import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compareVersions } from './version-order.ts';

test('stable versions come before beta and alpha, higher numbers first, other names last', () => {
  const order = [
    'v10',
    'v2',
    'v1',
    'v11beta2',
    'v10beta3',
    'v3beta1',
    'v12alpha1',
    'v11alpha2',
    'foo1',
    'foo10',
  ];
  assert.deepEqual([...order].reverse().sort(compareVersions), order);
});
