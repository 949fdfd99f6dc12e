import assert from 'node:assert/strict';
import { test } from 'node:test';
import { matchesTerm } from './node-selection.ts';

for (const key of ['constructor', 'toString', 'hasOwnProperty']) {
  test(`a node without the label ${key} does not have it`, () => {
    const term = (operator: 'Exists' | 'DoesNotExist') => ({ matchExpressions: [{ key, operator }] });
    const node = { metadata: { name: 'n', labels: { other: 'x' } } };
    assert.equal(matchesTerm(term('Exists'), node), false);
    assert.equal(matchesTerm(term('DoesNotExist'), node), true);
    const labelled = { metadata: { name: 'n', labels: { [key]: 'x' } } };
    assert.equal(matchesTerm(term('Exists'), labelled), true);
  });
}
