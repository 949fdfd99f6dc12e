import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readFrame } from '../kernel/packet.ts';
import { icmpErrorFrame, tcpFrame } from '../kernel/testing/frames.ts';
import { hostPort } from '../lib/address.ts';
import { createConnectionTable, UNANSWERED_NS } from './connection-table.ts';

const ASKED = '10.244.1.2:4000 > 10.96.0.1:80';
const SENT = '10.244.1.2:4000 > 10.244.2.2:8080';
const ANSWERED = '10.244.2.2:8080 > 10.244.1.2:4000';
const RESTORED = '10.96.0.1:80 > 10.244.1.2:4000';
const SYN = tcpFrame(ASKED, { sequence: 7000 });
const SYN_SENT = tcpFrame(SENT, { sequence: 7000 });
const SYN_ACK = tcpFrame(ANSWERED, { flags: 'SYN-ACK', sequence: 9, acknowledgment: 7001 });
const RST = tcpFrame(ANSWERED, { flags: 'RST', acknowledgment: 7001 });

interface Row {
  readonly name: string;
  readonly frames: readonly Uint8Array[];
  /** The first frame leaves the node. */
  readonly isLeaving?: boolean;
  readonly seen: readonly string[];
}

const THROUGH = '10.244.1.2:4000 10.96.0.1:80 10.244.2.2:8080';
const DIRECT = '10.244.1.2:4000 10.244.2.2:8080 10.244.2.2:8080';
const UNTRANSLATED = '10.244.1.2:4000 10.96.0.1:80 10.96.0.1:80';
const rows: Row[] = [
  {
    name: 'an answer, seen at two devices',
    frames: [SYN, SYN_SENT, SYN_ACK, SYN_ACK],
    seen: [`answered ${THROUGH}`],
  },
  {
    name: 'an answer to a pod that was addressed itself',
    frames: [SYN_SENT, SYN_ACK],
    seen: [`answered ${DIRECT}`],
  },
  {
    name: 'a process of the node itself',
    frames: [SYN_SENT, SYN_ACK],
    isLeaving: true,
    seen: [`answered ${DIRECT} own`],
  },
  { name: 'a refusal of the endpoint', frames: [SYN, SYN_SENT, RST, RST], seen: [`refused ${THROUGH} RST`] },
  {
    name: 'a refusal of the node',
    frames: [SYN, icmpErrorFrame('10.244.1.1', '10.244.1.2', 3, 3, SYN)],
    seen: [`refused ${UNTRANSLATED} ICMP port unreachable`],
  },
  {
    name: 'no route',
    frames: [SYN, icmpErrorFrame('10.244.1.1', '10.244.1.2', 3, 1, SYN)],
    seen: [`unreachable ${UNTRANSLATED} ICMP host unreachable`],
  },
  { name: 'no answer, although it is sent again', frames: [SYN, SYN], seen: [`unanswered ${UNTRANSLATED}`] },
  {
    name: 'a reset of the server after the answer',
    frames: [SYN, SYN_SENT, SYN_ACK, tcpFrame(RESTORED, { flags: 'RST', acknowledgment: 7500 })],
    seen: [`answered ${THROUGH}`, `reset ${THROUGH} by the server`],
  },
  {
    name: 'a reset of the client right after the answer',
    frames: [SYN, SYN_SENT, SYN_ACK, tcpFrame(ASKED, { flags: 'RST', sequence: 7001, acknowledgment: 10 })],
    seen: [`answered ${THROUGH}`, `reset ${THROUGH} by the client`],
  },
  {
    name: 'a reset of another connection of the client',
    frames: [SYN, SYN_SENT, SYN_ACK, tcpFrame('10.244.9.9:80 > 10.244.1.2:4000', { flags: 'RST' })],
    seen: [`answered ${THROUGH}`],
  },
  { name: 'answers to connections that began earlier', frames: [SYN_ACK, RST], seen: [] },
];

test('connections whose packets were not all read are not reported', () => {
  const found: string[] = [];
  const table = createConnectionTable(({ outcome }) => found.push(outcome));
  const packet = readFrame(SYN, null);
  assert.ok(packet);
  table.packet(packet, false, 0n);
  table.clear();
  table.expire(2n * UNANSWERED_NS);
  assert.deepEqual(found, []);
});

describe('connections by their packets', () => {
  for (const { name, frames, isLeaving = false, seen } of rows) {
    test(name, () => {
      const found: string[] = [];
      const table = createConnectionTable(({ outcome, client, destination, endpoint, isOwn, cause }) => {
        const words = [outcome, ...[client, destination, endpoint].map(hostPort)];
        found.push([...words, ...(isOwn ? ['own'] : []), ...(cause ? [cause] : [])].join(' '));
      });
      for (const [i, frame] of frames.entries()) {
        const packet = readFrame(frame, null);
        assert.ok(packet);
        table.packet(packet, isLeaving && i === 0, BigInt(i) * 1000n);
      }
      table.expire(UNANSWERED_NS + 100_000n);
      assert.deepEqual(found, seen);
    });
  }
});
