import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseCidr } from '../lib/address.ts';
import { AddressPool } from './address-pool.ts';

function pool(text: string): AddressPool {
  const cidr = parseCidr(text);
  assert.ok(cidr);
  return new AddressPool(cidr);
}

const rows: [cidr: string, size: bigint, first: string, last: string | null][] = [
  ['10.244.1.0/24', 253n, '10.244.1.2', '10.244.1.254'],
  ['10.244.1.8/30', 1n, '10.244.1.10', '10.244.1.10'],
  ['fd00:1::/126', 2n, 'fd00:1::2', 'fd00:1::3'],
  ['fd00:10:244:1::/64', (1n << 32n) - 2n, 'fd00:10:244:1::2', null],
];
for (const [cidr, size, first, last] of rows) {
  test(`${cidr} has ${size} addresses for pods, from ${first} to ${last ?? '…'}`, () => {
    const addresses = pool(cidr);
    assert.equal(addresses.size, size);
    assert.equal(addresses.take(), first);
    if (last === null) return;
    let taken = first;
    for (let i = 1n; i < size; i++) taken = addresses.take();
    assert.equal(taken, last);
    assert.throws(() => addresses.take(), { code: 'addresses-exhausted', message: new RegExp(cidr) });
  });
}

test('a network that is too small has no addresses', () => {
  assert.throws(() => pool('10.0.0.0/31').take(), { code: 'addresses-exhausted' });
  assert.throws(() => pool('10.0.0.0/32').take(), { code: 'addresses-exhausted' });
});

test('a released address is reused only after all others', () => {
  const addresses = pool('10.0.0.0/29');
  assert.equal(addresses.take(), '10.0.0.2');
  addresses.release('10.0.0.2');
  assert.deepEqual(
    Array.from({ length: 5 }, () => addresses.take()),
    ['10.0.0.3', '10.0.0.4', '10.0.0.5', '10.0.0.6', '10.0.0.2'],
  );
  assert.throws(() => addresses.take(), { code: 'addresses-exhausted' });
  addresses.release('10.0.0.4');
  assert.equal(addresses.take(), '10.0.0.4');
});

test('claimed addresses are skipped; addresses of other networks are refused', () => {
  const addresses = pool('10.0.0.0/29');
  assert.equal(addresses.claim('10.0.0.3'), true);
  for (const other of ['10.0.0.0', '10.0.0.1', '10.0.0.7', '10.0.1.2', 'fd00::2']) {
    assert.equal(addresses.claim(other), false, other);
  }
  assert.equal(addresses.take(), '10.0.0.4');
  assert.equal(addresses.taken, 2);
});
