import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { JsonObject } from '../object.ts';
import type { FieldError } from '../status-error.ts';
import { validateVolumes } from './volumes.ts';

const spec = { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } } };
const ephemeral = (name: string, metadata?: object) => ({
  name,
  ephemeral: { volumeClaimTemplate: { spec, ...(metadata ? { metadata } : {}) } },
});
const claim = (claimName: string) => ({ name: 'other', persistentVolumeClaim: { claimName } });

const ROWS: readonly [what: string, podName: string, volumes: object[], refusals: string[]][] = [
  ['a claim with a valid name', 'web', [ephemeral('data')], []],
  [
    'a claim with a name that is too long',
    'w'.repeat(250),
    [ephemeral('data')],
    ['spec.volumes[0].name FieldValueInvalid'],
  ],
  ['the template of a pod, which has no name yet', '', [ephemeral('data'), claim('-data')], []],
  [
    'a volume that names the claim of another volume',
    'web',
    [claim('web-data'), ephemeral('data')],
    ['spec.volumes[0].persistentVolumeClaim.claimName FieldValueInvalid'],
  ],
  ['labels and annotations of the claim', 'web', [ephemeral('data', { labels: { a: 'b' } })], []],
  [
    'other metadata of the claim',
    'web',
    [ephemeral('data', { name: 'mine', labels: { a: '-' } })],
    [
      'spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.labels FieldValueInvalid',
      'spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.name FieldValueForbidden',
    ],
  ],
];

describe('volumes of a pod', () => {
  for (const [what, podName, volumes, refusals] of ROWS) {
    test(what, () => {
      const errors: FieldError[] = [];
      validateVolumes({ volumes } as unknown as JsonObject, 'spec.volumes', podName, errors);
      assert.deepEqual(
        errors.map(({ field, reason }) => `${field} ${reason}`),
        refusals,
      );
    });
  }
});
