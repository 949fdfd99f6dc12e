import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { JsonObject } from '../object.ts';
import type { FieldError } from '../status-error.ts';
import { appArmorProfile, seccompProfile, validateContainerCommon } from './containers.ts';

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

const IDS: readonly [what: string, field: string, id: number, isAccepted: boolean][] = [
  ['root', 'runAsUser', 0, true],
  ['the largest user', 'runAsUser', 2147483647, true],
  ['a user that system calls ignore', 'runAsUser', 4294967295, false],
  ['a user that wraps around to root', 'runAsUser', 4294967296, false],
  ['a negative user', 'runAsUser', -1, false],
  ['the largest group', 'runAsGroup', 2147483647, true],
  ['a group that system calls ignore', 'runAsGroup', 4294967295, false],
];

describe('numbers of users and groups of containers', () => {
  for (const [what, field, id, isAccepted] of IDS) {
    test(what, () => {
      const errors: FieldError[] = [];
      const container = {
        ...{ name: 'main', image: 'web', terminationMessagePolicy: 'File', imagePullPolicy: 'Always' },
        securityContext: { [field]: id },
      };
      const scope = { volumes: new Map(), claims: new Set<string>(), grace: 30, restartPolicy: 'Always' };
      validateContainerCommon(container, 'c', scope, errors);
      const expected = isAccepted ? [] : [`c.securityContext.${field} FieldValueInvalid`];
      assert.deepEqual(
        errors.map((error) => `${error.field} ${error.reason}`),
        expected,
      );
    });
  }
});
