import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readFrame } from '../kernel/packet.ts';
import { icmpErrorFrame, tcpFrame, udpFrame, vxlanFrame } from '../kernel/testing/frames.ts';
import { compileFilter } from './capture-filter.ts';

const REQUEST = tcpFrame('10.244.1.2:4000 > 10.96.0.1:80');
const PACKETS = {
  request: REQUEST,
  answer: tcpFrame('10.96.0.1:80 > 10.244.1.2:4000', { flags: 'SYN-ACK' }),
  question: udpFrame('10.244.1.2:4001 > 10.96.0.10:53'),
  error: icmpErrorFrame('10.244.1.1', '10.244.1.2', 3, 3, REQUEST),
  six: tcpFrame('[fd00::2]:4000 > [fd00::1]:443'),
  tunnelled: vxlanFrame('172.30.0.11', '172.30.0.12', 4789, tcpFrame('10.244.1.2:4000 > 10.244.2.2:8080')),
  /** An ARP request. */
  arp: new Uint8Array(42),
} as const;
type Name = keyof typeof PACKETS;

const ADDRESSES: Readonly<Record<string, readonly string[]>> = {
  'pod/client': ['10.244.1.2', 'fd00::2'],
  'svc/hello': ['10.96.0.1', '10.244.2.2'],
};
const lookup = (name: string) => {
  const found = ADDRESSES[name];
  if (!found) throw new Error(`there is no ${name}`);
  return found;
};

describe('filters of a capture', () => {
  const rows: readonly (readonly [filter: string, passes: readonly Name[]])[] = [
    ['tcp', ['request', 'answer', 'six', 'tunnelled']],
    ['udp', ['question']],
    ['icmp', ['error']],
    ['host 10.96.0.1', ['request', 'answer']],
    ['src host 10.96.0.1', ['answer']],
    ['dst host svc/hello', ['request', 'tunnelled']],
    ['host pod/client and not udp', ['request', 'answer', 'error', 'six', 'tunnelled']],
    ['net 10.244.0.0/16', ['request', 'answer', 'question', 'error', 'tunnelled']],
    ['dst net fd00::/64', ['six']],
    ['port 80', ['request', 'answer']],
    ['dst port 80', ['request']],
    ['port 53-443', ['request', 'answer', 'question', 'six']],
    ['udp or icmp', ['question', 'error']],
    ['udp or tcp and port 443', ['question', 'six']],
    ['(udp or tcp) and dst port 443', ['six']],
    ['not (tcp or udp)', ['error', 'arp']],
    ['not tcp and not udp and not icmp', ['arp']],
  ];
  for (const [filter, passes] of rows) {
    test(filter, () => {
      const wants = compileFilter(filter, lookup);
      const names = (Object.keys(PACKETS) as Name[]).filter((name) => wants(readFrame(PACKETS[name], 4789)));
      assert.deepEqual(names, passes);
    });
  }
  const wrong: readonly (readonly [filter: string, message: RegExp])[] = [
    ['', /ends too early/],
    ['tcp and', /ends too early/],
    ['tcp port 80', /"and" or "or" is missing before "port"/],
    ['(tcp', /closing parenthesis/],
    ['port http', /is not a port/],
    ['port 90-80', /is not a port/],
    ['port', /port needs a value/],
    ['net 10.244', /not a network/],
    ['sctp', /"sctp" is not known/],
    ['host pod/absent', /there is no pod\/absent/],
  ];
  for (const [filter, message] of wrong) {
    test(`wrong: ${JSON.stringify(filter)}`, () =>
      assert.throws(() => compileFilter(filter, lookup), message));
  }
});
