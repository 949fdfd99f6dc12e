import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { JsonObject } from '../object.ts';
import type { FieldError } from '../status-error.ts';
import { appArmorProfile, seccompProfile } from './containers.ts';

type Checked = typeof seccompProfile;

const ROWS: readonly [what: string, check: Checked, profile: JsonObject, refusals: string[]][] = [
  ["the runtime's own profile", seccompProfile, { type: 'RuntimeDefault' }, []],
  ['a profile of the node', seccompProfile, { type: 'Localhost', localhostProfile: 'web.json' }, []],
  ['no type', seccompProfile, {}, ['p.type FieldValueRequired']],
  ['an unknown type', seccompProfile, { type: 'Mine' }, ['p.type FieldValueNotSupported']],
  [
    'a profile of the node without a name',
    seccompProfile,
    { type: 'Localhost' },
    ['p.localhostProfile FieldValueRequired'],
  ],
  [
    'a seccomp profile outside the folder of profiles',
    seccompProfile,
    { type: 'Localhost', localhostProfile: '../web.json' },
    ['p.localhostProfile FieldValueInvalid'],
  ],
  [
    'a name with a type that has none',
    appArmorProfile,
    { type: 'Unconfined', localhostProfile: 'web' },
    ['p.localhostProfile FieldValueInvalid'],
  ],
  [
    'an AppArmor profile, whose name is not a path',
    appArmorProfile,
    { type: 'Localhost', localhostProfile: '../web' },
    [],
  ],
];

describe('security profiles of containers', () => {
  for (const [what, check, profile, refusals] of ROWS) {
    test(what, () => {
      const errors: FieldError[] = [];
      check(profile, 'p', errors, profile, profile);
      assert.deepEqual(
        errors.map(({ field, reason }) => `${field} ${reason}`),
        refusals,
      );
    });
  }
});
