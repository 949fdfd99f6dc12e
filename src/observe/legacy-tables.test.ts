import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LAYOUT } from '../kernel/xtables/layout.ts';
import type { IPFamily } from '../lib/address.ts';
import { isEmpty } from './legacy-tables.ts';

/** Returns an entry with a standard verdict, or the one that ends a table. */
function entry(
  family: IPFamily,
  target: number | 'ERROR',
  change: (bytes: Uint8Array) => void = () => {},
): Uint8Array {
  const layout = LAYOUT[family];
  const bytes = new Uint8Array(layout.bytes + (target === 'ERROR' ? 64 : 40));
  const view = new DataView(bytes.buffer);
  view.setUint16(layout.target, layout.bytes, true);
  view.setUint16(layout.next, bytes.length, true);
  if (target === 'ERROR') bytes.set(Buffer.from('ERROR'), layout.bytes + 2);
  else view.setInt32(layout.bytes + 32, target, true);
  change(bytes);
  return bytes;
}

const ACCEPT = -2;
const DROP = -1;
for (const family of ['ipv4', 'ipv6'] as const) {
  const end = entry(family, 'ERROR');
  const policy = entry(family, ACCEPT);
  const ROWS: readonly (readonly [what: string, entries: readonly Uint8Array[], isEmpty: boolean])[] = [
    ['three policies of ACCEPT', [policy, policy, policy, end], true],
    ['a policy of DROP', [policy, entry(family, DROP), policy, end], false],
    ['a rule that drops all', [entry(family, DROP), policy, end], false],
    ["a chain of a user's own", [policy, end, policy, end], false],
    [
      'a rule for a protocol',
      [
        entry(family, ACCEPT, (bytes) => bytes.fill(6, LAYOUT[family].protocol, LAYOUT[family].protocol + 1)),
        policy,
        end,
      ],
      false,
    ],
    [
      'an entry without a length',
      [entry(family, ACCEPT, (bytes) => bytes.fill(0, LAYOUT[family].next, LAYOUT[family].next + 2)), end],
      false,
    ],
    ['nothing', [], false],
  ];
  for (const [what, entries, expected] of ROWS)
    test(`${family}: a table with ${what}`, () =>
      assert.equal(isEmpty(Uint8Array.from(Buffer.concat(entries)), family), expected));
}
