import assert from 'node:assert/strict';
import { test } from 'node:test';
import { expireFailures, expireReroutes } from './expiry.ts';
import { BACKEND, FLAG, FLOW, REROUTE } from './generated/layout.ts';
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

test('a reroute that begins while ended ones are searched for is not lost', () => {
  const maps = makeMaps({ frontends: 16, endpoints: 16, backends: 16, members: 16 }, null);
  const read = (flag: number) =>
    new Uint32Array((maps.flags.lookup(keyOf(flag)) ?? new Uint8Array(8)).slice().buffer)[0];
  const count = (value: number) =>
    maps.flags.update(keyOf(FLAG.REROUTES), new Uint8Array(Uint32Array.of(value, 0).buffer));
  const reroute = (number: number, until: bigint) => {
    const entry = new Uint8Array(REROUTE.size);
    new DataView(entry.buffer).setBigUint64(REROUTE.until, until, true);
    maps.reroutes.update(new Uint8Array(FLOW.size).fill(number), entry);
  };
  try {
    assert.equal(expireReroutes(maps, 100n), false);
    reroute(1, 50n);
    reroute(2, 0n);
    count(2);
    assert.equal(expireReroutes(maps, 100n), true, 'an established connection has no end');
    assert.equal(read(FLAG.REROUTES_ENDED), 0);
    maps.reroutes.delete(new Uint8Array(FLOW.size).fill(2));
    // Counted, as the programs do, after the search has passed its place.
    const during = {
      flags: maps.flags,
      reroutes: {
        entries() {
          const found = maps.reroutes.entries();
          reroute(3, 0n);
          count(3);
          return found;
        },
        delete: (key: Uint8Array) => maps.reroutes.delete(key),
      },
    };
    expireReroutes(during, 100n);
    assert.deepEqual([read(FLAG.REROUTES), read(FLAG.REROUTES_ENDED)], [3, 2]);
    assert.equal(expireReroutes(maps, 100n), true);
    maps.reroutes.delete(new Uint8Array(FLOW.size).fill(3));
    assert.equal(expireReroutes(maps, 100n), false);
    assert.equal(read(FLAG.REROUTES_ENDED), 3);
  } finally {
    closeMaps(maps);
  }
});
