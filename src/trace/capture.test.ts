import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readFrame } from '../kernel/packet.ts';
import { icmpErrorFrame, tcpFrame, udpFrame, vxlanFrame } from '../kernel/testing/frames.ts';
import { createFrameOrder } from './capture.ts';
import { frameText } from './frame-text.ts';
import { createTranslationNotes } from './translation-notes.ts';

const ASKED = '10.244.1.2:4000 > 10.96.0.1:80';
const SENT = '10.244.1.2:4000 > 10.244.2.2:8080';

describe('a frame in one line', () => {
  const syn = tcpFrame(ASKED);
  const rows: [name: string, frame: Uint8Array, text: string][] = [
    ['a SYN', syn, '10.244.1.2:4000 → 10.96.0.1:80 TCP SYN'],
    [
      'an answer over IPv6',
      tcpFrame('[fd00::1]:80 > [fd00::2]:4000', { flags: 'SYN-ACK' }),
      '[fd00::1]:80 → [fd00::2]:4000 TCP SYN ACK',
    ],
    ['a datagram', udpFrame(ASKED, 'abc'), '10.244.1.2:4000 → 10.96.0.1:80 UDP, 3 bytes'],
    [
      'an ICMP error',
      icmpErrorFrame('10.0.0.1', '10.0.0.2', 3, 3, syn),
      '10.0.0.1 → 10.0.0.2 ICMP port unreachable',
    ],
    [
      'a segment inside VXLAN',
      vxlanFrame('172.30.0.11', '172.30.0.12', 4789, syn),
      '10.244.1.2:4000 → 10.96.0.1:80 TCP SYN (VXLAN 172.30.0.11 → 172.30.0.12)',
    ],
    ['ARP', Uint8Array.of(...new Uint8Array(12), 8, 6, ...new Uint8Array(28)), 'ARP'],
    ['another protocol', Uint8Array.of(...new Uint8Array(12), 0x88, 0xb5), 'EtherType 0x88b5'],
  ];
  for (const [name, frame, text] of rows) {
    test(name, () => assert.equal(frameText(readFrame(frame, 4789), frame), text));
  }
});

describe('a note on a packet', () => {
  const notes = (frames: readonly Uint8Array[]) => {
    const noteOf = createTranslationNotes();
    return frames.map((frame) => {
      const packet = readFrame(frame, null);
      return packet && noteOf(packet);
    });
  };
  const segment = (way: string, sequence = 5) => tcpFrame(way, { sequence });
  const rows: [name: string, frames: readonly Uint8Array[], expected: readonly (string | null)[]][] = [
    ['the same at two devices', [segment(ASKED), segment(ASKED)], [null, null]],
    [
      'translated between devices, once',
      [segment(ASKED), segment(SENT), segment(SENT)],
      [null, 'translated from 10.244.1.2:4000 → 10.96.0.1:80', null],
    ],
    ['another segment', [segment(ASKED, 5), segment(SENT, 6)], [null, null]],
    ['a datagram', [udpFrame(ASKED), udpFrame(SENT)], [null, null]],
  ];
  for (const [name, frames, expected] of rows) test(name, () => assert.deepEqual(notes(frames), expected));
});

describe('the order of frames', () => {
  const place = { kind: 'node', name: 'node-1' } as const;
  const device = { name: 'eth0', text: 'uplink eth0', isPort: false };
  const frameAt = (number: number, timeNs: bigint) => ({
    ...{ place, device, number, packet: null },
    frame: {
      data: new Uint8Array(0),
      length: 0,
      device: 1,
      direction: 'in',
      isForOther: false,
      timeNs,
    } as const,
  });

  test('frames that wait in the kernel are read before later ones are passed on', () => {
    const passed: number[] = [];
    let unread = [frameAt(1, 10n)];
    const order = createFrameOrder(
      1000,
      ({ number }) => passed.push(number),
      () => {
        const read = unread;
        unread = [];
        for (const frame of read) order.add(frame);
      },
    );
    order.add(frameAt(2, 20n));
    order.close();
    assert.deepEqual(passed, [1, 2]);
  });
});
