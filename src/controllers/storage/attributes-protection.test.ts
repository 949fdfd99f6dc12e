import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PersistentVolume, PersistentVolumeClaim } from '../../kube/types.ts';
import { remainingFinalizers } from './attributes-protection.ts';

const DELETED = { deletionTimestamp: '2026-01-01T00:00:00Z' };
const PROTECTION = 'kubernetes.io/vac-protection';
const claim = (rest: object) => rest as PersistentVolumeClaim;
const volume = (name: string) => ({ spec: { volumeAttributesClassName: name } }) as PersistentVolume;

const ROWS: readonly [
  name: string,
  metadata: object,
  volumes: readonly PersistentVolume[],
  claims: readonly PersistentVolumeClaim[],
  left: readonly string[] | null,
][] = [
  ['a class that is not deleted keeps its finalizer', { finalizers: [PROTECTION] }, [], [], null],
  ['a deleted class is removed when unused', { ...DELETED, finalizers: [PROTECTION] }, [], [], []],
  [
    'finalizers of other controllers remain',
    { ...DELETED, finalizers: ['example.com/own', PROTECTION] },
    [volume('silver')],
    [],
    ['example.com/own'],
  ],
  ['a volume protects its class', { ...DELETED, finalizers: [PROTECTION] }, [volume('gold')], [], null],
  [
    'a claim protects the class that it requests',
    { ...DELETED, finalizers: [PROTECTION] },
    [],
    [claim({ spec: { volumeAttributesClassName: 'gold' } })],
    null,
  ],
  [
    'a claim protects the class that it still has',
    { ...DELETED, finalizers: [PROTECTION] },
    [],
    [claim({ spec: {}, status: { currentVolumeAttributesClassName: 'gold' } })],
    null,
  ],
];

for (const [name, metadata, volumes, claims, left] of ROWS) {
  test(name, () => {
    const attributes = { metadata: { name: 'gold', ...metadata }, driverName: 'example.com' };
    assert.deepEqual(remainingFinalizers(attributes, volumes, claims), left);
  });
}
