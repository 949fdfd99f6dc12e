import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseAddressRange, rangeCidrs, rangeContains } from './address-range.ts';

const READ: [string, string[] | null][] = [
  ['10.0.0.0/30', ['10.0.0.0/30']],
  ['10.0.0.7', ['10.0.0.7/32']],
  ['10.0.0.1-10.0.0.6', ['10.0.0.1/32', '10.0.0.2/31', '10.0.0.4/31', '10.0.0.6/32']],
  ['10.0.0.5 - 10.0.0.5', ['10.0.0.5/32']],
  ['0.0.0.0-255.255.255.255', ['0.0.0.0/0']],
  ['fd00::c8-fd00::cf', ['fd00::c8/125']],
  ['fd00::/127', ['fd00::/127']],
  ['10.0.0.9-10.0.0.1', null],
  ['10.0.0.1-fd00::1', null],
  ['10.0.0.1-10.0.0.2-10.0.0.3', null],
  ['10.0.0.0/33', null],
  ['here-there', null],
  ['', null],
];

for (const [text, cidrs] of READ) {
  test(`${JSON.stringify(text)} is ${cidrs === null ? 'not a range' : cidrs.join(' ')}`, () => {
    const range = parseAddressRange(text);
    assert.deepEqual(range && rangeCidrs(range).map((cidr) => cidr.text), cidrs);
  });
}

test('a range contains its ends and the addresses between them, of its family', () => {
  const range = parseAddressRange('10.0.0.1-10.0.0.3');
  assert.ok(range);
  const held = ['10.0.0.0', '10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4', '::a00:1', 'x'].filter(
    (address) => rangeContains(range, address),
  );
  assert.deepEqual(held, ['10.0.0.1', '10.0.0.2', '10.0.0.3']);
});
