import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addAmounts, maxAmounts, subtractAmounts } from './amounts.ts';

for (const name of ['constructor', 'toString', '__proto__']) {
  test(`amounts of a resource named ${name} are added, subtracted and compared`, () => {
    const one = Object.fromEntries([[name, '1']]);
    const two = Object.fromEntries([[name, '2']]);
    assert.deepEqual(Object.entries(addAmounts({}, one)), [[name, '1']]);
    assert.deepEqual(Object.entries(addAmounts(one, one)), [[name, '2']]);
    assert.deepEqual(Object.entries(subtractAmounts(two, one)), [[name, '1']]);
    assert.deepEqual(Object.entries(maxAmounts({}, two)), [[name, '2']]);
    assert.deepEqual(Object.entries(maxAmounts(one, two)), [[name, '2']]);
  });
}
