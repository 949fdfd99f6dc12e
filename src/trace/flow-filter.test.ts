import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { icmpErrorFrame, tcpFrame, udpFrame, vxlanFrame } from '../kernel/testing/frames.ts';
import { runFilter } from '../kernel/testing/run-filter.ts';
import { type FlowFilter, flowFilter } from './flow-filter.ts';

const SEQUENCE = 4_000_000_000;
const TCP: FlowFilter = { protocol: 'TCP', sequence: SEQUENCE, window: 2048, ports: [] };
const RELAYED: FlowFilter = { ...TCP, ports: [8080, 9090] };
const UDP: FlowFilter = { protocol: 'UDP', ports: [40000, 53] };
const V4 = '10.0.0.1:40000 > 10.0.0.2:8080';
const V6 = '[fd00::1]:40000 > [fd00::2]:8080';
const inVxlan = (inner: Uint8Array, port = 4789) => vxlanFrame('172.30.0.11', '172.30.0.12', port, inner);
const inVxlan6 = (inner: Uint8Array) => vxlanFrame('fd00:30::1', 'fd00:30::2', 4789, inner);

interface Row {
  readonly name: string;
  readonly filter: FlowFilter;
  readonly frame: Uint8Array;
  readonly passes: boolean;
}

const row = (name: string, filter: FlowFilter, frame: Uint8Array, passes: boolean): Row => {
  return { name, filter, frame, passes };
};

const rows: Row[] = [];
for (const [family, way] of [
  ['IPv4', V4],
  ['IPv6', V6],
] as const) {
  const syn = tcpFrame(way, { sequence: SEQUENCE });
  const other = tcpFrame(way, { sequence: SEQUENCE - 1 });
  const answer = tcpFrame(way, { flags: 'SYN-ACK', sequence: 5, acknowledgment: SEQUENCE + 1 });
  rows.push(
    row(`the SYN, ${family}`, TCP, syn, true),
    row(`the last byte of the window, ${family}`, TCP, tcpFrame(way, { sequence: SEQUENCE + 2047 }), true),
    row(`a byte behind the window, ${family}`, TCP, tcpFrame(way, { sequence: SEQUENCE + 2048 }), false),
    row(`a byte before the window, ${family}`, TCP, other, false),
    row(`the answer, ${family}`, TCP, answer, true),
    row(`the SYN inside VXLAN over IPv4, ${family}`, TCP, inVxlan(syn), true),
    row(`the SYN inside VXLAN over IPv6, ${family}`, TCP, inVxlan6(syn), true),
    row(`the answer inside VXLAN, ${family}`, TCP, inVxlan(answer), true),
    row(`another connection inside VXLAN, ${family}`, TCP, inVxlan(other), false),
    row(`another connection to the endpoint's port, ${family}`, TCP, other, false),
    row(`a connection of a proxy to the endpoint's port, ${family}`, RELAYED, other, true),
    row(`a datagram while a connection is traced, ${family}`, TCP, udpFrame(way, 'x'), false),
    row(`a datagram from the client's port, ${family}`, UDP, udpFrame(way, 'x'), true),
    row(`a datagram inside VXLAN, ${family}`, UDP, inVxlan(udpFrame(way, 'x')), true),
    row(`a segment while a datagram is traced, ${family}`, UDP, syn, false),
  );
}
rows.push(
  row('a datagram to another port', UDP, udpFrame('10.0.0.1:1 > 10.0.0.2:2'), false),
  row('a datagram to an endpoint', UDP, udpFrame('10.0.0.1:1 > 10.0.0.2:53'), true),
  row('VXLAN on another port', TCP, inVxlan(tcpFrame(V4, { sequence: SEQUENCE }), 8472), false),
  row('an ICMP error', TCP, icmpErrorFrame('10.0.0.9', '10.0.0.1', 3, 1, tcpFrame(V4)), true),
  row('an ICMP error, time exceeded', UDP, icmpErrorFrame('10.0.0.9', '10.0.0.1', 11, 0, tcpFrame(V4)), true),
  row('a ping', TCP, icmpErrorFrame('10.0.0.9', '10.0.0.1', 8, 0, tcpFrame(V4)), false),
  row('an ICMPv6 error', TCP, icmpErrorFrame('fd00::9', 'fd00::1', 1, 4, tcpFrame(V6)), true),
  row('a neighbour solicitation', TCP, icmpErrorFrame('fd00::9', 'fd00::1', 135, 0, tcpFrame(V6)), false),
  row('ARP', TCP, Uint8Array.of(...new Uint8Array(12), 8, 6, ...new Uint8Array(28)), false),
  row('a frame that is cut', TCP, tcpFrame(V4, { sequence: SEQUENCE }).subarray(0, 30), false),
);

describe('the kernel passes to a trace', () => {
  for (const { name, filter, frame, passes } of rows) {
    test(`${passes ? '' : 'not '}${name}`, () => {
      assert.equal(runFilter(flowFilter(filter, 4789, 320), frame), passes ? 320 : 0);
    });
  }
  test('no tunnel: what looks like VXLAN is a datagram', () => {
    const frame = inVxlan(tcpFrame(V4, { sequence: SEQUENCE }));
    assert.equal(runFilter(flowFilter(TCP, null, 320), frame), 0);
    assert.equal(runFilter(flowFilter({ protocol: 'UDP', ports: [4789] }, null, 320), frame), 320);
  });
});
