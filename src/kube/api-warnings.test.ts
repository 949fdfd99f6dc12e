import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseWarnings, withWarnings } from './api-warnings.ts';

describe('warnings of an API server', () => {
  const rows: readonly (readonly [what: string, header: string, texts: readonly string[]])[] = [
    ['none', '', []],
    ['one', '299 - "spec.x: deprecated"', ['spec.x: deprecated']],
    ['two in one header', '299 - "a, b", 299 - "c"', ['a, b', 'c']],
    [
      'quotes and backslashes',
      String.raw`299 - "unknown field \"spec.a\\b\""`,
      [String.raw`unknown field "spec.a\b"`],
    ],
    ['other codes are not for users', '199 - "a", 299 - "b"', ['b']],
    ['text that looks like a warning', String.raw`299 - "say 299 - \"no\""`, ['say 299 - "no"']],
    ['an open quote', '299 - "a', []],
  ];
  for (const [what, header, texts] of rows) {
    test(what, () => assert.deepEqual(parseWarnings(header), texts));
  }

  test('are passed on, with the answer', async () => {
    const seen: string[] = [];
    const answer = { status: 200, headers: { warning: '299 - "old"' }, body: (async function* () {})() };
    const transport = withWarnings(
      async () => answer,
      (text) => seen.push(text),
    );
    assert.equal(await transport({ method: 'GET', path: '/', headers: {} }), answer);
    assert.deepEqual(seen, ['old']);
  });
});
