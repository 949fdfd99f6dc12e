import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseCidr } from '../lib/address.ts';
import { insideCheck } from './inside-addresses.ts';

const isInside = insideCheck({
  networks: () => ['10.244.0.0/16', 'fd00:10::/48'].flatMap((text) => parseCidr(text) ?? []),
  isMember: (address) => address === '192.0.2.1',
});

test('no name leads into the cluster, to this host or to the metadata of a cloud', () => {
  for (const address of [
    ...['10.244.1.2', '192.0.2.1', '127.0.0.1', '169.254.169.254', '100.100.100.200', '168.63.129.16'],
    ...['fd00:10::1', '::1', '::ffff:198.51.100.7', 'fe80::1', 'fd00:ec2::254', 'fd20:ce::254', 'not one'],
  ])
    assert.equal(isInside(address), true, address);
  for (const address of ['198.51.100.7', '10.0.0.1', '2001:db8::1']) assert.equal(isInside(address), false);
});

test('nor by an address that a router translates to IPv4 (NAT64, 6to4); others of these networks are outside', () => {
  for (const address of [
    ...['64:ff9b::169.254.169.254', '64:ff9b::10.244.1.2', '64:ff9b:1::192.0.2.1'],
    ...['2002:a9fe:a9fe::1', '2002:af4:102:5::7'],
  ])
    assert.equal(isInside(address), true, address);
  for (const address of ['64:ff9b::198.51.100.7', '2002:c633:6407::1'])
    assert.equal(isInside(address), false, address);
});
