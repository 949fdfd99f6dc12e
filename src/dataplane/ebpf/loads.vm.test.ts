import assert from 'node:assert/strict';
import { release } from 'node:os';
import { test } from 'node:test';
import { controlGroupRoot } from '../../kernel/control-group.ts';
import { parseCidr } from '../../lib/address.ts';
import { closeMaps, makeMaps } from './maps.ts';
import { closePrograms, loadPrograms } from './programs.ts';
import { checkRequirements } from './requirements.ts';
import { attachSynTimeout } from './syn-timeout.ts';

// Run on each kernel that docs/support.md names: the verifiers differ in what they know of a register.

const [major = 0, minor = 0] = release()
  .split('.')
  .map((part) => Number.parseInt(part, 10));
const isTooOld = major < 5 || (major === 5 && minor < 18);

test(`Linux ${release()} has what the mode requires, or is refused with the version that does`, () => {
  if (isTooOld) assert.throws(() => checkRequirements(), /lacks \S.* came with Linux 5\.18/);
  else checkRequirements();
});

const skip = isTooOld && 'the mode needs Linux 5.18';

test(`the verifier of Linux ${release()} accepts all programs`, { skip }, async () => {
  const maps = makeMaps({ frontends: 64, endpoints: 64, backends: 64, members: 64 }, null);
  try {
    const programs = await loadPrograms(maps);
    assert.ok(programs.sockets.size > 0 && programs.devices.size > 0);
    closePrograms(programs);
  } finally {
    closeMaps(maps);
  }
});

test(`Linux ${release()} accepts the program of short SYN timers`, () => {
  const root = controlGroupRoot();
  const network = parseCidr('10.96.0.0/16');
  assert.ok(root !== null && network !== null);
  attachSynTimeout(root, [network]).close();
});
