import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addressBytes, type Cidr, formatAddress, parseCidr } from '../lib/address.ts';
import { nextKey, wordsOf } from './encoding.ts';
import { type AddressRange, mergedRanges, outermost } from './ranges.ts';

const cidrs = (...texts: string[]): Cidr[] => texts.map((text) => parseCidr(text) ?? assert.fail(text));
const texts = (ranges: readonly AddressRange[]) =>
  ranges.map(({ first, last }) => `${formatAddress(first)}-${formatAddress(last)}`);

const MERGED: Readonly<Record<string, { readonly of: readonly string[]; readonly are: readonly string[] }>> =
  {
    'separate networks stay separate, in order': {
      of: ['10.2.0.0/16', '10.0.0.0/16'],
      are: ['10.0.0.0-10.0.255.255', '10.2.0.0-10.2.255.255'],
    },
    'adjacent networks become one range': {
      of: ['10.0.0.0/16', '10.1.0.0/16'],
      are: ['10.0.0.0-10.1.255.255'],
    },
    'a network inside another adds nothing': {
      of: ['10.0.0.0/8', '10.1.2.0/24', '10.0.0.0/8'],
      are: ['10.0.0.0-10.255.255.255'],
    },
    'the last address can end a range': {
      of: ['255.255.255.0/24', '255.255.255.255/32'],
      are: ['255.255.255.0-255.255.255.255'],
    },
    'networks of the other family are left out': { of: ['fd00::/8'], are: [] },
  };

for (const [what, { of, are }] of Object.entries(MERGED)) {
  test(`merged ranges: ${what}`, () => assert.deepEqual(texts(mergedRanges(cidrs(...of), 'ipv4')), are));
}

test('the outermost networks may be adjacent, but do not overlap', () => {
  const ranges = outermost(cidrs('10.0.1.0/24', '10.0.0.0/24', '10.0.0.0/25', '10.0.1.0/24'), 'ipv4');
  assert.deepEqual(texts(ranges), ['10.0.0.0-10.0.0.255', '10.0.1.0-10.0.1.255']);
});

test('the next key is the next address in network order; the last one has no next key', () => {
  const next = (text: string) => {
    const key = nextKey(Uint32Array.from(wordsOf(addressBytes(text) ?? assert.fail(text))));
    return key && formatAddress(new Uint8Array(key.buffer));
  };
  assert.equal(next('10.0.255.255'), '10.1.0.0');
  assert.equal(next('fd00::ffff'), 'fd00::1:0');
  assert.equal(next('255.255.255.255'), null);
});
