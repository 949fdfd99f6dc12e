import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readFrame } from '../kernel/packet.ts';
import { tcpFrame } from '../kernel/testing/frames.ts';
import { createStalledSegments, type StalledSegment } from './stalled-segments.ts';

const MS = 1_000_000n;
/** When a segment is sent again, in milliseconds: twice as long after each time. */
const BACKOFF = [0, 210, 630, 1470, 3150];

describe('segments that are sent again', () => {
  const rows: readonly (readonly [
    name: string,
    seen: readonly (readonly [ms: number, sequence: number, device?: number])[],
    reports: number,
  ])[] = [
    ['and again, without progress', BACKOFF.map((ms) => [ms, 5]), 1],
    [
      'and seen at several devices',
      BACKOFF.flatMap((ms) => [1, 2, 3].map((one) => [ms, 5, one] as const)),
      1,
    ],
    [
      'once',
      [
        [0, 5],
        [210, 5],
      ],
      0,
    ],
    [
      'and then go on',
      [
        [0, 5],
        [210, 5],
        [630, 5],
        [640, 1505],
        [850, 1505],
      ],
      0,
    ],
    ['at several devices, once each', [1, 2, 3, 4].map((one) => [one, 5, one]), 0],
    ['at once by a fast sender', [0, 1, 2, 3, 4].map((ms) => [ms, 5]), 0],
  ];
  for (const [name, seen, reports] of rows) {
    test(name, () => {
      const found: StalledSegment[] = [];
      const segments = createStalledSegments((one) => found.push(one));
      for (const [ms, sequence, device = 1] of seen) {
        const packet = readFrame(tcpFrame('10.2.0.1:5000 > 10.3.0.2:80', { flags: 'ACK', sequence }), null);
        assert.ok(packet);
        segments.segment(packet, device, BigInt(ms) * MS);
      }
      assert.equal(found.length, reports);
      if (found[0]) assert.equal(found[0].sender.ip, '10.2.0.1');
    });
  }
});
