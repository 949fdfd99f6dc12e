import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hasLabels, selects } from './selector.ts';

for (const key of ['constructor', 'toString', 'hasOwnProperty', '__proto__']) {
  test(`the label ${key} is not found on objects without it`, () => {
    const labels = Object.fromEntries([[key, 'x']]);
    const rows = [
      ['Exists', [], false, true],
      ['DoesNotExist', [], true, false],
      ['In', ['x'], false, true],
      ['NotIn', ['x'], true, false],
    ] as const;
    for (const [operator, values, without, having] of rows) {
      const selector = { matchExpressions: [{ key, operator, values: [...values] }] };
      assert.equal(selects(selector, {}), without, operator);
      assert.equal(selects(selector, undefined), without, operator);
      assert.equal(selects(selector, labels), having, operator);
    }
    assert.equal(hasLabels(labels, {}), false);
    assert.equal(hasLabels(labels, { ...labels }), true);
    assert.equal(selects({ matchLabels: labels }, {}), false);
  });
}
