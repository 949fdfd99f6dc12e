import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errnoError } from '../kernel/libc.ts';
import { featureError, missingRights } from './requirements.ts';

const EPERM = 1;
const EOPNOTSUPP = 95;

const RIGHTS: readonly (readonly [what: string, mask: string, missing: RegExp | null])[] = [
  ['root of a machine', '000001ffffffffff', null],
  ['root of an unprivileged container', '00000000a80425fb', /^root without CAP_SYS_ADMIN, CAP_NET_ADMIN$/],
  ['root of a container with SYS_ADMIN', '00000000a82425fb', /^root without CAP_NET_ADMIN$/],
];
for (const [what, mask, missing] of RIGHTS) {
  test(`rights: ${what}`, () => {
    const error = missingRights(`CapPrm:\t0\nCapEff:\t${mask}\nCapBnd:\t000001ffffffffff\n`);
    if (missing === null) assert.equal(error, null);
    else assert.match(error?.message ?? '', missing);
  });
}

test('a feature that is forbidden is not called missing', () => {
  const forbidden = featureError('bridges', errnoError(EPERM, 'add bridge'));
  assert.match(forbidden.message, /may not be used here/);
  const missing = featureError('bridges', errnoError(EOPNOTSUPP, 'add bridge'));
  assert.match(missing.message, /this kernel lacks bridges/);
});
