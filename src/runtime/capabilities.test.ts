import assert from 'node:assert/strict';
import { test } from 'node:test';
import { containerCapabilities } from './capabilities.ts';

const BOUNDING = ['CAP_CHOWN', 'CAP_KILL', 'CAP_NET_ADMIN', 'CAP_NET_RAW'];

const rows: readonly (readonly [what: string, security: object | undefined, names: readonly string[]])[] = [
  [
    'by default, the available capabilities of the default set',
    undefined,
    ['CAP_CHOWN', 'CAP_KILL', 'CAP_NET_RAW'],
  ],
  ['privileged: all available capabilities', { privileged: true }, BOUNDING],
  ['ALL: all available capabilities', { capabilities: { add: ['ALL'] } }, BOUNDING],
  [
    'all but one',
    { capabilities: { add: ['ALL'], drop: ['KILL'] } },
    ['CAP_CHOWN', 'CAP_NET_ADMIN', 'CAP_NET_RAW'],
  ],
  ['none', { capabilities: { drop: ['ALL'] } }, []],
  ['one more', { capabilities: { drop: ['ALL'], add: ['NET_ADMIN'] } }, ['CAP_NET_ADMIN']],
  [
    'an unavailable capability is requested if named',
    { capabilities: { drop: ['ALL'], add: ['BPF'] } },
    ['CAP_BPF'],
  ],
];
for (const [what, security, names] of rows) {
  test(what, () => assert.deepEqual(containerCapabilities(security, BOUNDING), names));
}
