import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MessageWriter, NLA_F_NESTED } from '../netlink/attributes.ts';
import {
  describeServer,
  type RealServer,
  readRealServer,
  readServer,
  readTimeouts,
  type ServerId,
  type VirtualServer,
  writeRealServer,
  writeServer,
} from './codec.ts';
import { IpvsBatch } from './connection.ts';
import { SERVER_FLAG } from './constants.ts';

const bytesOf = (write: (writer: MessageWriter) => void): string => {
  const writer = new MessageWriter();
  write(writer);
  return Buffer.from(writer.bytes()).toString('hex');
};

const V4: ServerId = { family: 'ipv4', protocol: 6, address: '10.96.0.1', port: 443 };
const V6: ServerId = { family: 'ipv6', protocol: 17, address: 'fd00:96::a', port: 53 };
const MARK: ServerId = { family: 'ipv6', mark: 0xfa000005 };
const plain = { scheduler: 'rr', schedulerFlags: 0, persistenceSeconds: null };

// Attributes by their numbers in linux/ip_vs.h: length and type little-endian, value, padding.
const ROWS: readonly (readonly [what: string, write: (writer: MessageWriter) => void, hex: string])[] = [
  [
    'the identity of an IPv4 virtual server',
    (w) => writeServer(w, V4),
    `${'30000180'}${'060001000200 0000'}${'060002000600 0000'}${'14000300 0a600001 00000000 00000000 00000000'}${'06000400 01bb 0000'}`,
  ],
  [
    'the identity of an IPv6 virtual server',
    (w) => writeServer(w, V6),
    `${'30000180'}${'06000100 0a00 0000'}${'06000200 1100 0000'}${'14000300 fd000096 00000000 00000000 0000000a'}${'06000400 0035 0000'}`,
  ],
  [
    'the identity of a virtual server for a mark',
    (w) => writeServer(w, MARK),
    `${'14000180'}${'06000100 0a00 0000'}${'08000500 050000fa'}`,
  ],
  [
    'a whole IPv4 virtual server: all flags set, a netmask for single clients',
    (w) => writeServer(w, V4, { id: V4, ...plain }),
    `${'54000180'}${'06000100 0200 0000'}${'06000200 0600 0000'}${'14000300 0a600001 00000000 00000000 00000000'}${'06000400 01bb 0000'}${'07000600 727200 00'}${'0c000700 00000000 ffffffff'}${'08000800 00000000'}${'08000900 ffffffff'}`,
  ],
  [
    'a persistent IPv6 virtual server: the netmask is a prefix length',
    (w) =>
      writeServer(w, MARK, {
        id: MARK,
        scheduler: 'mh',
        schedulerFlags: SERVER_FLAG.scheduler1 | SERVER_FLAG.scheduler2,
        persistenceSeconds: 10_800,
      }),
    `${'38000180'}${'06000100 0a00 0000'}${'08000500 050000fa'}${'07000600 6d6800 00'}${'0c000700 19000000 ffffffff'}${'08000800 302a0000'}${'08000900 80000000'}`,
  ],
  [
    'the identity of a real server',
    (w) => writeRealServer(w, 'ipv4', { address: '10.244.1.11', port: 8080, weight: 1 }, false),
    `${'28000280'}${'14000100 0af4010b 00000000 00000000 00000000'}${'06000200 1f90 0000'}${'06000b00 0200 0000'}`,
  ],
  [
    'a whole real server: masquerading, weight, no thresholds',
    (w) => writeRealServer(w, 'ipv6', { address: 'fd00::1', port: 80, weight: 7 }, true),
    `${'48000280'}${'14000100 fd000000 00000000 00000000 00000001'}${'06000200 0050 0000'}${'06000b00 0a00 0000'}${'08000300 00000000'}${'08000400 07000000'}${'08000500 00000000'}${'08000600 00000000'}`,
  ],
];
for (const [what, write, hex] of ROWS) {
  test(`bytes of ${what}`, () => assert.equal(bytesOf(write), hex.replaceAll(' ', '')));
}

test('a written server is read back unchanged', () => {
  const servers: VirtualServer[] = [
    { id: V4, ...plain },
    { id: V6, ...plain, scheduler: 'wlc', persistenceSeconds: 5 },
    { id: MARK, ...plain, schedulerFlags: SERVER_FLAG.scheduler2 },
  ];
  for (const server of servers) {
    const writer = new MessageWriter();
    writeServer(writer, server.id, server);
    assert.deepEqual(readServer(writer.bytes()), server);
  }
  const real: RealServer = { address: 'fd00::2', port: 65_535, weight: 0 };
  const writer = new MessageWriter();
  writeRealServer(writer, 'ipv6', real, true);
  const shown = { forwarding: 0, activeConnections: 0, inactiveConnections: 0, persistentConnections: 0 };
  assert.deepEqual(readRealServer(writer.bytes(), 'ipv6'), { ...real, ...shown });
});

test('flags that the kernel sets are ignored', () => {
  const writer = new MessageWriter();
  writeServer(writer, V4, { id: V4, ...plain, schedulerFlags: SERVER_FLAG.hashed | SERVER_FLAG.onePacket });
  assert.equal(readServer(writer.bytes())?.schedulerFlags, 0);
});

test('messages without a server, with an unknown family or empty ones are skipped', () => {
  assert.equal(readServer(new Uint8Array(0)), null);
  assert.equal(readRealServer(new Uint8Array(0), 'ipv4'), null);
  const odd = new MessageWriter();
  odd.nested(1, () => odd.attributeU16(1, 99));
  assert.equal(readServer(odd.bytes()), null);
  assert.deepEqual(readTimeouts(new Uint8Array(0)), { tcp: 0, tcpFin: 0, udp: 0 });
});

test('an address of the other family is refused, naming the address', () => {
  assert.throws(() => writeServer(new MessageWriter(), { ...V4, address: 'fd00::1' } as ServerId), {
    code: 'EINVAL',
    message: /"fd00::1" is not an IPv4 address/,
  });
});

test('servers have the names that ipvsadm prints', () => {
  assert.equal(describeServer(V4), 'TCP 10.96.0.1:443');
  assert.equal(describeServer(V6), 'UDP [fd00:96::a]:53');
  assert.equal(describeServer(MARK), 'FWM 4194304005 IPv6');
});

test('a batch has one message per command, and only the last is acknowledged', () => {
  let sequence = 100;
  const batch = new IpvsBatch({ id: 0x21, version: 1, groups: new Map() }, () => ++sequence);
  batch.addServer({ id: V4, ...plain });
  batch.addRealServer(V4, { address: '10.0.0.1', port: 80, weight: 1 });
  batch.changeRealServer(V4, { address: '10.0.0.1', port: 80, weight: 0 });
  batch.deleteRealServer(V4, { address: '10.0.0.1', port: 80 });
  batch.changeServer({ id: V4, ...plain });
  batch.deleteServer(V4);
  const { bytes, first, last } = batch.finish();
  assert.deepEqual([first, last, batch.length], [101, 106, 6]);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const seen: number[][] = [];
  for (let at = 0; at < bytes.length; at += view.getUint32(at, true)) {
    seen.push([
      view.getUint16(at + 4, true),
      view.getUint16(at + 6, true),
      view.getUint32(at + 8, true),
      view.getUint8(at + 16),
      view.getUint8(at + 17),
      view.getUint16(at + 22, true) & NLA_F_NESTED,
    ]);
  }
  const commands = [1, 5, 6, 7, 2, 3];
  assert.deepEqual(
    seen,
    commands.map((command, i) => [0x21, i === 5 ? 5 : 1, 101 + i, command, 1, NLA_F_NESTED]),
  );
  assert.equal(batch.object(1), 'add real server 10.0.0.1:80 of TCP 10.96.0.1:443');
});

test('consecutive real servers are encoded like single ones', () => {
  const reals: RealServer[] = [
    { address: '10.0.0.1', port: 80, weight: 1 },
    { address: '192.168.255.254', port: 65_535, weight: 7 },
    { address: '10.0.0.3', port: 1, weight: 0 },
  ];
  let sequence = 0;
  const open = (first: number) => {
    sequence = first;
    return new IpvsBatch({ id: 0x21, version: 1, groups: new Map() }, () => ++sequence);
  };
  const writes: ((batch: IpvsBatch, real: RealServer) => void)[] = [
    (batch, real) => batch.addRealServer(V4, real),
    (batch, real) => batch.changeRealServer(V4, real),
    (batch, real) => batch.deleteRealServer(V4, real),
    (batch, { port, weight }) => batch.addRealServer(V6, { address: `fd00::${weight}`, port, weight }),
  ];
  for (const write of writes) {
    const batch = open(0);
    for (const real of reals) write(batch, real);
    const single = reals.map((real, i) => {
      const one = open(i);
      write(one, real);
      // Only the last of a batch is acknowledged.
      const bytes = Buffer.from(one.finish().bytes);
      if (i < reals.length - 1) bytes.writeUInt16LE(1, 6);
      return bytes;
    });
    assert.equal(Buffer.from(batch.finish().bytes).toString('hex'), Buffer.concat(single).toString('hex'));
    for (const [i, { port }] of reals.entries()) assert.match(batch.object(i), new RegExp(`:${port} of `));
  }
  assert.equal(open(0).length, 0);
});
