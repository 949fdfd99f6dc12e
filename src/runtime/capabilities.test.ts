import assert from 'node:assert/strict';
import { test } from 'node:test';
import { boundingCapabilities, containerCapabilities } from './capabilities.ts';

const BOUNDING = ['CAP_CHOWN', 'CAP_KILL', 'CAP_NET_ADMIN', 'CAP_NET_RAW'];

test('the bounding set by name', () => {
  // Bit 24, CAP_SYS_RESOURCE, is missing.
  const names = boundingCapabilities('CapEff:\t0\nCapBnd:\t000001fffeffffff\n');
  assert.equal(names.length, 40);
  assert.ok(names.includes('CAP_CHECKPOINT_RESTORE') && !names.includes('CAP_SYS_RESOURCE'));
});

const rows: readonly (readonly [what: string, security: object | undefined, names: readonly string[]])[] = [
  [
    'by default those of the default set that the machine has',
    undefined,
    ['CAP_CHOWN', 'CAP_KILL', 'CAP_NET_RAW'],
  ],
  ['privileged: all that the machine has', { privileged: true }, BOUNDING],
  ['all by name: all that the machine has', { capabilities: { add: ['ALL'] } }, BOUNDING],
  [
    'all but one',
    { capabilities: { add: ['ALL'], drop: ['KILL'] } },
    ['CAP_CHOWN', 'CAP_NET_ADMIN', 'CAP_NET_RAW'],
  ],
  ['none', { capabilities: { drop: ['ALL'] } }, []],
  ['one more', { capabilities: { drop: ['ALL'], add: ['NET_ADMIN'] } }, ['CAP_NET_ADMIN']],
  ['one that the machine lacks is asked for', { capabilities: { drop: ['ALL'], add: ['BPF'] } }, ['CAP_BPF']],
];
for (const [what, security, names] of rows) {
  test(what, () => assert.deepEqual(containerCapabilities(security, BOUNDING), names));
}
