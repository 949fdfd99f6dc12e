import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readCapabilities } from './capabilities.ts';

test('the bounding set by name', () => {
  // Bit 24, CAP_SYS_RESOURCE, is missing.
  const names = readCapabilities('CapBnd', 'CapEff:\t0\nCapBnd:\t000001fffeffffff\n');
  assert.equal(names.length, 40);
  assert.ok(names.includes('CAP_CHECKPOINT_RESTORE') && !names.includes('CAP_SYS_RESOURCE'));
});
