import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { icmpErrorFrame, tcpFrame, udpFrame } from '../kernel/testing/frames.ts';
import { runFilter } from '../kernel/testing/run-filter.ts';
import { connectionFilter, fullSegmentFilter } from './packet-filter.ts';

/** The first of eight ports, and one that is not sampled. */
const SAMPLED = 40_000;
const OTHER = 40_002;

interface Row {
  readonly name: string;
  readonly frame: Uint8Array;
  readonly sample?: number;
  readonly passes: boolean;
}

const rows: Row[] = [];
for (const [family, client, server] of [
  ['IPv4', '10.0.0.1', '10.0.0.2'],
  ['IPv6', '[fd00::1]', '[fd00::2]'],
] as const) {
  const there = (port: number, to = 80) => `${client}:${port} > ${server}:${to}`;
  const back = (port: number, from = 80) => `${server}:${from} > ${client}:${port}`;
  rows.push(
    { name: `a SYN, ${family}`, frame: tcpFrame(there(OTHER)), passes: true },
    { name: `an answer, ${family}`, frame: tcpFrame(back(OTHER), { flags: 'SYN-ACK' }), passes: true },
    { name: `a reset, ${family}`, frame: tcpFrame(back(OTHER), { flags: 'RST' }), passes: true },
    { name: `data, ${family}`, frame: tcpFrame(there(OTHER), { flags: 'ACK' }), passes: false },
    { name: `a DNS question, ${family}`, frame: udpFrame(there(OTHER, 53)), passes: true },
    { name: `a DNS answer, ${family}`, frame: udpFrame(back(OTHER, 53)), passes: true },
    { name: `another datagram, ${family}`, frame: udpFrame(there(OTHER)), passes: false },
    { name: `a sampled SYN, ${family}`, sample: 8, frame: tcpFrame(there(SAMPLED)), passes: true },
    { name: `a SYN that is not sampled, ${family}`, sample: 8, frame: tcpFrame(there(OTHER)), passes: false },
    {
      name: `the answer to a sampled SYN, ${family}`,
      sample: 8,
      frame: tcpFrame(back(SAMPLED), { flags: 'SYN-ACK' }),
      passes: true,
    },
    {
      name: `a reset of a sampled connection, ${family}`,
      sample: 8,
      frame: tcpFrame(back(SAMPLED), { flags: 'RST' }),
      passes: true,
    },
    {
      name: `a reset by a sampled client, ${family}`,
      sample: 8,
      frame: tcpFrame(there(SAMPLED), { flags: 'RST' }),
      passes: true,
    },
    {
      name: `a reset of a connection that is not sampled, ${family}`,
      sample: 8,
      frame: tcpFrame(back(OTHER), { flags: 'RST' }),
      passes: false,
    },
    {
      name: `the answer to a question that is not sampled, ${family}`,
      sample: 8,
      frame: udpFrame(back(OTHER, 53)),
      passes: false,
    },
  );
}
const asked = tcpFrame('10.0.0.1:1 > 10.0.0.2:2');
rows.push({
  name: 'an ICMP error while sampling',
  sample: 8,
  frame: icmpErrorFrame('10.0.0.9', '10.0.0.1', 3, 1, asked),
  passes: true,
});

describe('what flows reads of the packets of a node', () => {
  for (const { name, frame, sample = 1, passes } of rows) {
    test(name, () => assert.equal(runFilter(connectionFilter(sample, 512), frame), passes ? 512 : 0));
  }
});

describe('what flows reads of the full segments of a node', () => {
  /** A segment with so many bytes of data. */
  const segment = (way: string, dataBytes: number, sequence = 8, flags: 'ACK' | 'RST' | 'SYN' = 'ACK') => {
    const frame = tcpFrame(way, { flags, sequence });
    const isV6 = way.startsWith('[');
    const longer = new Uint8Array(frame.length + dataBytes);
    longer.set(frame);
    new DataView(longer.buffer).setUint16(14 + (isV6 ? 4 : 2), longer.length - 14 - (isV6 ? 40 : 0));
    return longer;
  };
  for (const [family, way, headers] of [
    ['IPv4', '10.0.0.1:40000 > 10.0.0.2:80', 40],
    ['IPv6', '[fd00::1]:40000 > [fd00::2]:80', 60],
  ] as const) {
    const rows: readonly (readonly [name: string, frame: Uint8Array, sample: number, passes: boolean])[] = [
      ['the largest', segment(way, 1500 - headers), 1, true],
      ['a larger one, which the device splits', segment(way, 1501 - headers), 1, false],
      ['one of 1,200 bytes', segment(way, 1200 - headers), 1, true],
      ['a smaller one', segment(way, 1199 - headers), 1, false],
      ['a reset', segment(way, 1500 - headers, 8, 'RST'), 1, false],
      ['one that is sampled', segment(way, 1500 - headers, 8), 8, true],
      ['one that is not sampled', segment(way, 1500 - headers, 9), 8, false],
      ['a datagram', udpFrame(way, new Uint8Array(1400)), 1, false],
    ];
    for (const [name, frame, sample, passes] of rows) {
      test(`${name}, ${family}`, () =>
        assert.equal(runFilter(fullSegmentFilter(1500, sample, 128), frame), passes ? 128 : 0));
    }
  }
});
