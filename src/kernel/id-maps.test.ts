import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isMapped, parseIdMap } from './id-maps.ts';

test('an id is mapped if one of the lines of a map contains it', () => {
  const ranges = parseIdMap('         0       1000          1\n         1     100000      65536\n');
  assert.deepEqual(
    [0, 1, 65_536, 65_537].map((id) => isMapped(ranges, id)),
    [true, true, true, false],
  );
});

test('a map with one id has no other', () => {
  const ranges = parseIdMap('0 1000 1\n');
  assert.deepEqual(
    [isMapped(ranges, 0), isMapped(ranges, 5), isMapped(ranges, 65_534)],
    [true, false, false],
  );
});

test('a process without a map has no ids', () => {
  assert.deepEqual(parseIdMap(''), []);
});
