import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BACKEND_SIZE, STATE } from './layout.ts';
import { sweepFailures } from './rescued-flows.ts';
import { closeMaps, makeMaps } from './socket-programs.ts';

const keyOf = (index: number) => new Uint8Array(Uint32Array.of(index).buffer);

test('whether endpoints have failed is looked up for as long as one in use has', () => {
  const maps = makeMaps({ frontends: 16, endpoints: 16, backends: 16, members: 16 }, null);
  try {
    const isLookedUp = () => maps.state.lookup(keyOf(STATE.failures))?.[0];
    assert.equal(
      sweepFailures(maps, () => true),
      false,
    );
    const failed = new Uint32Array(BACKEND_SIZE / 4);
    failed[6] = 2;
    maps.backends.update(keyOf(3), new Uint8Array(failed.buffer));
    maps.state.update(keyOf(STATE.failures), Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0));
    assert.equal(
      sweepFailures(maps, (number) => number === 3),
      true,
    );
    assert.equal(isLookedUp(), 1);
    // What is left of an endpoint that no Service has any more counts for nothing.
    assert.equal(
      sweepFailures(maps, (number) => number !== 3),
      false,
    );
    assert.equal(isLookedUp(), 0);
    maps.state.update(keyOf(STATE.failures), Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0));
    maps.backends.update(keyOf(3), new Uint8Array(BACKEND_SIZE));
    assert.equal(
      sweepFailures(maps, () => true),
      false,
    );
    assert.equal(isLookedUp(), 0);
  } finally {
    closeMaps(maps);
  }
});
