import assert from 'node:assert/strict';
import { test } from 'node:test';
import { expireFailures } from './expiry.ts';
import { BACKEND, FLAG } from './generated/layout.ts';
import { closeMaps, makeMaps } from './maps.ts';

const keyOf = (index: number) => new Uint8Array(Uint32Array.of(index).buffer);

test('the flag of failures stays set while an endpoint in use has failed', () => {
  const maps = makeMaps({ frontends: 16, endpoints: 16, backends: 16, members: 16 }, null);
  try {
    const isLookedUp = () => maps.flags.lookup(keyOf(FLAG.FAILURES))?.[0];
    assert.equal(
      expireFailures(maps, () => true),
      false,
    );
    const failed = new Uint32Array(BACKEND.size / 4);
    failed[6] = 2;
    maps.backends.update(keyOf(3), new Uint8Array(failed.buffer));
    maps.flags.update(keyOf(FLAG.FAILURES), Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0));
    assert.equal(
      expireFailures(maps, (number) => number === 3),
      true,
    );
    assert.equal(isLookedUp(), 1);
    // The state of an endpoint that is not in use is ignored.
    assert.equal(
      expireFailures(maps, (number) => number !== 3),
      false,
    );
    assert.equal(isLookedUp(), 0);
    maps.flags.update(keyOf(FLAG.FAILURES), Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0));
    maps.backends.update(keyOf(3), new Uint8Array(BACKEND.size));
    assert.equal(
      expireFailures(maps, () => true),
      false,
    );
    assert.equal(isLookedUp(), 0);
  } finally {
    closeMaps(maps);
  }
});
