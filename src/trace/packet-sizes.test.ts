import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readFrame, TCP_FLAG } from '../kernel/packet.ts';
import type { Segment } from '../kernel/tcp-segment.ts';
import { icmpErrorFrame, tcpFrame } from '../kernel/testing/frames.ts';
import type { FlowSighting } from './flow.ts';
import { isBlackHole, measureSizes, sizeLines } from './packet-sizes.ts';
import type { ObservedPlace, Sighting } from './sighting.ts';

const place = (name: string, kind: ObservedPlace['kind']): ObservedPlace => ({
  kind,
  name,
  devices: new Map(),
});
const CLIENT = place('pod client', 'pod');
const SERVER = place('pod web', 'pod');
const N1 = place('n1', 'node');
const N2 = place('n2', 'node');
/** The devices that a packet to the server passes; on the way back, in the reverse order. */
const PATH = [
  [CLIENT, 'out'],
  [N1, 'in'],
  [N1, 'out'],
  [N2, 'in'],
  [N2, 'out'],
  [SERVER, 'in'],
] as const;
const DEVICE = { name: 'eth0', text: 'eth0', isPort: false };
const CLIENT_END = { ip: '10.2.0.1', port: 5000 };
const SERVER_END = { ip: '10.3.0.2', port: 80 };
const WAY = '10.2.0.1:5000 > 10.3.0.2:80';
const BACK = '10.3.0.2:80 > 10.2.0.1:5000';
const [ISN, PEER_ISN] = [5, 4_294_967_290];

interface Limit {
  /** Packets larger than this end before the hop with this number, counted on the way to the server. */
  readonly bytes: number;
  readonly before: number;
  readonly tells?: true;
}

/** Measures a connection whose network has limits. */
async function measured(limits: readonly Limit[], maxSegment: number | null = 1460) {
  const sightings: Sighting[] = [];
  let time = 0n;
  const see = (at: number, isBack: boolean, frame: Uint8Array): Sighting => {
    const [seenAt, way] = PATH[at] ?? PATH[0];
    const direction = isBack ? (way === 'in' ? 'out' : 'in') : way;
    const packet = readFrame(frame, null);
    assert.ok(packet);
    const sighting: Sighting = { place: seenAt, device: DEVICE, direction, timeNs: time++, packet };
    sightings.push(sighting);
    return sighting;
  };
  const handshake = (isBack: boolean): FlowSighting[] =>
    PATH.map((_, i) => {
      const frame = isBack
        ? tcpFrame(BACK, { flags: 'SYN-ACK', sequence: PEER_ISN, acknowledgment: ISN + 1 })
        : tcpFrame(WAY, { sequence: ISN });
      const one = see(isBack ? PATH.length - 1 - i : i, isBack, frame);
      const tcp = one.packet.tcp && { ...one.packet.tcp, maxSegment };
      return {
        ...one,
        packet: { ...one.packet, tcp },
        way: isBack ? 'back' : 'there',
        kind: isBack ? 'SYN-ACK' : 'SYN',
      };
    });
  const flow = [...handshake(false), ...handshake(true)];
  const send = (from: string, { flags, sequence, acknowledgment, dataBytes }: Segment) => {
    assert.equal(flags, TCP_FLAG.ack);
    const isBack = from === SERVER.name;
    const frame = tcpFrame(isBack ? BACK : WAY, { flags: 'ACK', sequence, acknowledgment });
    // The peer has acknowledged all of it: no process reads it.
    assert.equal((sequence + dataBytes) >>> 0, ((isBack ? PEER_ISN : ISN) + 1) >>> 0);
    const order = isBack ? [5, 4, 3, 2, 1, 0] : [0, 1, 2, 3, 4, 5];
    for (const at of order) {
      const limit = limits.find(
        ({ bytes, before }) => dataBytes + 40 > bytes && (isBack ? at < before : at >= before),
      );
      if (!limit) see(at, isBack, frame);
      else {
        if (limit.tells) see(order[0] ?? 0, !isBack, icmpErrorFrame('10.9.0.1', '10.2.0.1', 3, 4, frame));
        return;
      }
    }
  };
  let clock = 0;
  return await measureSizes({
    ...{ flow, isRelayed: false, patienceMs: 10 },
    connections: (name) => [
      name === SERVER.name
        ? { local: SERVER_END, remote: CLIENT_END }
        : { local: CLIENT_END, remote: SERVER_END },
    ],
    sightings: () => sightings,
    send,
    sleep: async (ms) => {
      clock += ms;
    },
    now: () => clock,
  });
}

describe('the largest packets of a connection', () => {
  test('arrive in both directions', async () => {
    const sizes = await measured([]);
    assert.deepEqual(
      sizes.map(({ way, full, passes }) => [way, full, passes]),
      [
        ['there', 1500, 1500],
        ['back', 1500, 1500],
      ],
    );
    assert.deepEqual(sizeLines(sizes), ['packets of 1500 bytes arrive there and back']);
  });
  for (const bytes of [141, 576, 1000, 1399, 1499]) {
    test(`end at ${bytes} bytes between the nodes`, async () => {
      const sizes = await measured([{ bytes, before: 3 }]);
      assert.deepEqual(
        sizes.map(({ way, passes, last, next }) => [way, passes, last?.place, next?.place]),
        [
          ['there', bytes, 'n1', 'n2'],
          ['back', bytes, 'n2', 'n1'],
        ],
      );
      assert.ok(sizes.every(isBlackHole));
      assert.match(sizeLines(sizes).join('\n'), /^BLACK HOLE: .* between n1, eth0 and n2, eth0/);
    });
  }
  test('end inside of a node', async () => {
    const sizes = await measured([{ bytes: 1400, before: 2 }]);
    assert.match(sizeLines(sizes).join('\n'), /because a rule or a route of n1/);
  });
  test('are refused with a message to the sender', async () => {
    const sizes = await measured([{ bytes: 1400, before: 3, tells: true }]);
    assert.ok(!sizes.some(isBlackHole));
    assert.match(sizeLines(sizes)[0] ?? '', /larger than 1400 bytes do not pass: .* tells the sender/);
  });
  test('are not measured if small ones are lost too, or the size is not known', async () => {
    assert.deepEqual(await measured([{ bytes: 50, before: 3 }]), []);
    assert.deepEqual(await measured([], null), []);
  });
});
