import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { icmpErrorFrame, tcpFrame, udpFrame } from '../kernel/testing/frames.ts';
import { runFilter } from '../kernel/testing/run-filter.ts';
import { connectionFilter } from './packet-filter.ts';

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
