import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BackendNumbers } from './backend-numbers.ts';

const words = (n: number) => Uint32Array.of(0, 0, 0xffff0000, n, 0x5000 | (6 << 16));

test('endpoints keep their numbers while in use, and no two share one', () => {
  const numbers = new BackendNumbers(3000, true);
  const known = new Map<number, { number: number; users: number }>();
  let random = 1;
  for (let step = 0; step < 40_000; step++) {
    random = (Math.imul(random, 1103515245) + 12345) >>> 0;
    const n = (random >>> 8) % 2500;
    const entry = known.get(n);
    if ((random & 3) > 1 || !entry) {
      const number = numbers.acquire(words(n), 0);
      assert.ok(number >= 0 && number < 3000);
      if (entry) assert.equal(number, entry.number);
      known.set(n, { number, users: (entry?.users ?? 0) + 1 });
    } else {
      assert.equal(numbers.release(entry.number), entry.users === 1);
      if (entry.users === 1) known.delete(n);
      else known.set(n, { ...entry, users: entry.users - 1 });
    }
  }
  for (const [n, { number }] of known) {
    assert.equal(numbers.find(words(n), 0), number);
    assert.deepEqual(numbers.wordsOf(number), words(n));
  }
  assert.equal(new Set([...known.values()].map(({ number }) => number)).size, known.size);
  for (let n = 0; n < 2500; n++) if (!known.has(n)) assert.equal(numbers.find(words(n), 0), -1);
});

test('numbers are reused only after all were used, and then reported; beyond the capacity there are none', () => {
  const numbers = new BackendNumbers(2, true);
  const first = numbers.acquire(words(1), 0);
  numbers.release(first);
  assert.equal(numbers.acquire(words(2), 0), 1);
  assert.deepEqual(numbers.takeReused(), []);
  assert.equal(numbers.acquire(words(3), 0), first);
  assert.deepEqual(numbers.takeReused(), [first]);
  assert.equal(numbers.acquire(words(4), 0), -1);
});

test('in maps that were used before, every new number is reported', () => {
  const numbers = new BackendNumbers(4, false);
  numbers.adopt([{ words: words(7), number: 2 }]);
  assert.equal(numbers.acquire(words(7), 0), 2);
  assert.deepEqual(numbers.takeReused(), []);
  assert.equal(numbers.acquire(words(8), 0), 3);
  assert.deepEqual(numbers.takeReused(), [3]);
  assert.deepEqual(numbers.dropUnused(), []);
});

test('adopted numbers without a use are released', () => {
  const numbers = new BackendNumbers(4, false);
  numbers.adopt([
    { words: words(7), number: 2 },
    { words: words(8), number: 0 },
  ]);
  numbers.acquire(words(8), 0);
  assert.deepEqual(numbers.dropUnused(), [2]);
  assert.equal(numbers.find(words(7), 0), -1);
});
