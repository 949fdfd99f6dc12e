import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  addressAt,
  canonicalAddress,
  cidrContains,
  cidrsOverlap,
  compareAddresses,
  indexInCidr,
  parseCidr,
  sloppyAddress,
  sloppyCidr,
  subnetAt,
} from './address.ts';

const canonical: [string, string | null][] = [
  ['10.0.0.1', '10.0.0.1'],
  ['255.255.255.255', '255.255.255.255'],
  ['010.0.0.1', null],
  ['10.0.0', null],
  ['10.0.0.256', null],
  ['', null],
  ['::', '::'],
  ['::1', '::1'],
  ['1::', '1::'],
  ['2001:DB8:0:0:1:0:0:1', '2001:db8::1:0:0:1'],
  ['2001:db8:0:1:1:1:1:1', '2001:db8:0:1:1:1:1:1'],
  ['0:0:0:1:0:0:0:0', '0:0:0:1::'],
  ['::ffff:10.0.0.1', '::ffff:10.0.0.1'],
  ['::ffff:a00:1', '::ffff:10.0.0.1'],
  ['fe80::1%eth0', null],
  ['1:2:3:4:5:6:7', null],
  ['1::2::3', null],
  ['1:2:3:4:5:6:7:8:9', null],
  [':1:2:3:4:5:6:7', null],
  ['1:2:3:4:5:6:7::', '1:2:3:4:5:6:7:0'],
];
for (const [input, expected] of canonical) {
  test(`canonicalAddress ${JSON.stringify(input)} → ${expected}`, () =>
    assert.equal(canonicalAddress(input), expected));
}

test('addresses of old objects may have white space and leading zeros', () => {
  assert.equal(sloppyAddress(' 010.001.0.1 '), '10.1.0.1');
  assert.equal(sloppyAddress('0x0a.1.1.1'), null);
  assert.equal(sloppyCidr(' 010.000.0.0/8')?.text, '10.0.0.0/8');
});

test('networks clear their host bits; invalid text is refused', () => {
  assert.equal(parseCidr('10.1.2.3/8')?.text, '10.0.0.0/8');
  assert.equal(parseCidr('fd00:1::5/31')?.text, 'fd00::/31');
  for (const bad of ['10.0.0.0', '10.0.0.0/33', '10.0.0.0/-1', '10.0.0.0/08', 'fd00::/129', 'x/8', '/8']) {
    assert.equal(parseCidr(bad), null, bad);
  }
});

test('contains, overlaps, address and subnet arithmetic', () => {
  const net = cidr('10.244.0.0/16');
  assert.ok(cidrContains(net, '10.244.255.255'));
  assert.ok(!cidrContains(net, '10.245.0.0'));
  assert.ok(!cidrContains(net, 'fd00::1'));
  assert.ok(cidrContains(cidr('0.0.0.0/0'), '1.2.3.4'));
  assert.ok(cidrsOverlap(net, cidr('10.0.0.0/8')));
  assert.ok(!cidrsOverlap(net, cidr('10.96.0.0/12')));
  assert.equal(subnetAt(net, 24, 3).text, '10.244.3.0/24');
  assert.equal(subnetAt(cidr('fd00:10:244::/48'), 64, 2).text, 'fd00:10:244:2::/64');
  assert.throws(() => subnetAt(net, 24, 256), RangeError);
  assert.equal(addressAt(net, 258), '10.244.1.2');
  assert.equal(addressAt(cidr('fd00::/64'), 0xffffn), 'fd00::ffff');
  assert.throws(() => addressAt(cidr('10.0.0.0/31'), 2), RangeError);
  assert.equal(indexInCidr(net, '10.244.1.2'), 258n);
  assert.equal(indexInCidr(net, '10.1.0.0'), null);
});

test('addresses sort by family, then by value', () => {
  const sorted = ['fd00::2', '10.0.0.10', '10.0.0.9', '::1'].sort(compareAddresses);
  assert.deepEqual(sorted, ['10.0.0.9', '10.0.0.10', '::1', 'fd00::2']);
});

function cidr(text: string) {
  const parsed = parseCidr(text);
  assert.ok(parsed, text);
  return parsed;
}
