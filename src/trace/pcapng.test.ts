import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { enhancedPacket, interfaceDescription, nameResolution, sectionHeader } from './pcapng.ts';

/** Each block as its draft lays it out (draft-ietf-opsawg-pcapng, sections 4.1 to 4.5), in hexadecimal words. */
const ROWS: readonly { name: string; block: Uint8Array; bytes: string }[] = [
  {
    name: 'a section header',
    block: sectionHeader('fairlead'),
    bytes: `0a0d0d0a 2c000000 4d3c2b1a 01000000 ffffffffffffffff
            0400 0800 666169726c656164  0000 0000  2c000000`,
  },
  {
    name: 'an interface description, with padded names and a resolution of nanoseconds',
    block: interfaceDescription('eth0', 'node-1', 65535),
    bytes: `01000000 34000000 0100 0000 ffff0000
            0200 0400 65746830
            0300 0600 6e6f64652d31 0000
            0900 0100 09 000000
            0000 0000  34000000`,
  },
  {
    name: 'an incoming packet of five bytes, with a comment',
    block: enhancedPacket({
      device: 2,
      timeNs: 0x17f0_0000_0000_0005n,
      data: Uint8Array.of(1, 2, 3, 4, 5),
      length: 9,
      direction: 'in',
      comment: 'DNAT',
    }),
    bytes: `06000000 3c000000 02000000 0000f017 05000000 05000000 09000000
            0102030405 000000
            0100 0400 444e4154
            0200 0400 01000000
            0000 0000  3c000000`,
  },
  {
    name: 'an outgoing packet without a comment',
    block: enhancedPacket({
      device: 0,
      timeNs: 1n,
      data: Uint8Array.of(1, 2, 3, 4),
      length: 4,
      direction: 'out',
      comment: null,
    }),
    bytes: `06000000 30000000 00000000 00000000 01000000 04000000 04000000
            01020304
            0200 0400 02000000
            0000 0000  30000000`,
  },
  {
    name: 'names of an IPv4 and an IPv6 address; other text is left out',
    block: nameResolution([
      ['10.0.0.1', 'web'],
      ['fd00::1', 'web6'],
      ['web', 'no address'],
    ]),
    bytes: `04000000 38000000
            0100 0800 0a000001 77656200
            0200 1500 fd000000000000000000000000000001 7765623600 000000
            0000 0000  38000000`,
  },
];

describe('pcapng', () => {
  for (const { name, block, bytes } of ROWS) {
    test(name, () => assert.equal(Buffer.from(block).toString('hex'), bytes.replaceAll(/\s/g, '')));
  }
});
