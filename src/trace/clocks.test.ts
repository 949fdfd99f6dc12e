import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { tcpFrame, udpFrame } from '../kernel/testing/frames.ts';
import { alignClocks, type ClockBounds, type ClockNote } from './clocks.ts';
import { inOrder, type ObservedPlace, type Sighting } from './sighting.ts';
import { observedPlace, sighting } from './testing/sightings.ts';
import { clockText } from './trace-text.ts';

/** Three machines; n1 is the client's. The clocks of the others are wrong by the time in each row. */

const client = observedPlace('pod default/client', ['eth0'], 'pod');
const n1 = observedPlace('n1', ['veth*', 'eth0']);
const n2 = observedPlace('n2', ['eth0', 'veth*']);
const n3 = observedPlace('n3', ['eth0']);
const web = observedPlace('pod default/web', ['eth0'], 'pod');
const MACHINES = new Map<ObservedPlace, string>([
  [client, 'n1'],
  [n1, 'n1'],
  [n2, 'n2'],
  [web, 'n2'],
  [n3, 'n3'],
]);

const ASKED = '10.1.0.2:4000 > 10.96.0.1:80';
const SENT = '10.1.0.2:4000 > 10.2.0.2:80';
const BACK = '10.2.0.2:80 > 10.1.0.2:4000';
/** Sets the TTL of an IPv4 packet, which is byte 22 of the frame. */
const withLimit = (frame: Uint8Array, limit: number) => {
  frame[22] = limit;
  return frame;
};
const syn = (way: string, limit: number) => withLimit(tcpFrame(way, { sequence: 7 }), limit);
const ack = (way: string, limit: number) =>
  withLimit(tcpFrame(way, { flags: 'SYN-ACK', sequence: 9, acknowledgment: 8 }), limit);

const THERE: readonly Sighting[] = [
  sighting(client, 'out eth0', 0, syn(ASKED, 64)),
  sighting(n1, 'in veth', 5, syn(ASKED, 64)),
  sighting(n1, 'out eth0', 20, syn(SENT, 63)),
  sighting(n2, 'in eth0', 30, syn(SENT, 63)),
  sighting(n2, 'out veth', 40, syn(SENT, 62)),
  sighting(web, 'in eth0', 41, syn(SENT, 62)),
];
const ANSWER: readonly Sighting[] = [
  sighting(web, 'out eth0', 50, ack(BACK, 64)),
  sighting(n2, 'in veth', 51, ack(BACK, 64)),
  sighting(n2, 'out eth0', 60, ack(BACK, 63)),
  sighting(n1, 'in eth0', 74, ack(BACK, 63)),
];
/** From n1 directly to a pod: no address is translated. */
const DIRECT: readonly Sighting[] = [
  sighting(client, 'out eth0', 0, syn(SENT, 64)),
  sighting(n1, 'in veth', 5, syn(SENT, 64)),
  sighting(n1, 'out eth0', 20, syn(SENT, 63)),
  sighting(n2, 'in eth0', 30, syn(SENT, 63)),
  sighting(n2, 'out veth', 40, syn(SENT, 62)),
];
/** n2 sends the packet on to n3, with an address of its own. */
const ONWARD: readonly Sighting[] = [
  ...THERE.slice(0, 4),
  sighting(n2, 'out eth0', 35, syn('10.2.0.1:5000 > 10.3.0.2:80', 62)),
  sighting(n3, 'in eth0', 45, syn('10.2.0.1:5000 > 10.3.0.2:80', 62)),
  sighting(n3, 'out eth0', 55, ack('10.3.0.2:80 > 10.2.0.1:5000', 64)),
  sighting(n2, 'in eth0', 65, ack('10.3.0.2:80 > 10.2.0.1:5000', 64)),
  ...ANSWER.slice(2),
];
/** On a network without routers, every device shows the same packet. */
const FLAT: readonly Sighting[] = [
  sighting(n1, 'in veth', 5, syn(SENT, 64)),
  sighting(n1, 'out eth0', 20, syn(SENT, 64)),
  sighting(n2, 'in eth0', 30, syn(SENT, 64)),
  sighting(n2, 'out veth', 40, syn(SENT, 64)),
];
const DATAGRAM: readonly Sighting[] = [
  sighting(n1, 'out eth0', 20, withLimit(udpFrame(SENT, 'trace-1'), 63)),
  sighting(n2, 'in eth0', 30, withLimit(udpFrame(SENT, 'trace-1'), 63)),
];
/** Sent again after a second, because the first one was lost between the nodes. */
const REPEATED: readonly Sighting[] = [
  sighting(n1, 'out eth0', 20, syn(SENT, 63)),
  sighting(n1, 'out eth0', 1_000_020, syn(SENT, 63)),
  sighting(n2, 'in eth0', 1_000_030, syn(SENT, 63)),
];

const MS = 1_000_000n;
/** What round trips of 80 ms show of a clock that is ahead by `us`. */
const roundTrip = (us: number): ClockBounds => ({
  low: BigInt(us) * 1000n - 40n * MS,
  high: BigInt(us) * 1000n + 40n * MS,
});

describe('clocks of several machines', () => {
  const rows: readonly {
    readonly name: string;
    readonly packets: readonly Sighting[];
    /** How far clocks are ahead, in microseconds. */
    readonly ahead: Readonly<Record<string, number>>;
    /** The microseconds taken from the times of each, and by which packets. */
    readonly notes: readonly (readonly [
      machine: string,
      by: ClockNote['by'],
      us: number,
      error: number | null,
    ])[];
    readonly isOrdered?: false;
  }[] = [
    {
      name: 'agree within the way of the packet and its answer',
      packets: [...THERE, ...ANSWER],
      ahead: { n2: 3 },
      notes: [['n2', 'both-ways', 0, 13]],
    },
    {
      name: 'one is five seconds ahead',
      packets: [...THERE, ...ANSWER],
      ahead: { n2: 5_000_000 },
      notes: [['n2', 'both-ways', 4_999_998, 12]],
    },
    {
      name: 'one is a millisecond behind',
      packets: [...THERE, ...ANSWER],
      ahead: { n2: -1000 },
      notes: [['n2', 'both-ways', -1002, 12]],
    },
    {
      name: 'no answer: a clock that may be right is left alone',
      packets: THERE,
      ahead: { n2: 1000 },
      notes: [['n2', 'one-way', 0, null]],
    },
    {
      name: 'no answer: the packet arrives after it was sent',
      packets: THERE,
      ahead: { n2: -1000 },
      notes: [['n2', 'one-way', -990.001, null]],
    },
    {
      name: 'no answer: round trips show that a clock is wrong',
      packets: THERE,
      ahead: { n2: 200_000 },
      notes: [['n2', 'one-way', 200_009.999, null]],
    },
    {
      name: 'no address is translated',
      packets: DIRECT,
      ahead: { n2: -1000 },
      notes: [['n2', 'one-way', -990.001, null]],
    },
    {
      name: 'a datagram',
      packets: DATAGRAM,
      ahead: { n2: -1000 },
      notes: [['n2', 'one-way', -990.001, null]],
    },
    {
      name: 'a packet that is sent again',
      packets: REPEATED,
      ahead: { n2: 3_000_000 },
      notes: [['n2', 'one-way', 4_000_009.999, null]],
      isOrdered: false,
    },
    {
      name: 'one that is known only by another one',
      packets: ONWARD,
      ahead: { n2: 1_000_000, n3: -2_000_000 },
      notes: [
        ['n2', 'both-ways', 999_998, 12],
        ['n3', 'both-ways', -2_000_002, 10],
      ],
    },
    {
      name: 'without routers the direction of a packet does not show: round trips',
      packets: FLAT,
      ahead: { n2: 5_000_000 },
      notes: [['n2', 'requests', 5_000_000, 80_000]],
    },
    {
      name: 'no packet on both: round trips',
      packets: THERE.filter(({ place }) => place !== n1),
      ahead: { n2: 1000 },
      notes: [['n2', 'requests', 0, 81_000]],
    },
  ];
  for (const { name, packets, ahead, notes, isOrdered = true } of rows) {
    test(name, () => {
      const machineOf = (place: ObservedPlace) => MACHINES.get(place) ?? '';
      const stamped = packets.map((one) => ({
        ...one,
        timeNs: one.timeNs + BigInt(ahead[machineOf(one.place)] ?? 0) * 1000n,
      }));
      const bounds = new Map(['n1', 'n2', 'n3'].map((node) => [node, roundTrip(ahead[node] ?? 0)]));
      const aligned = alignClocks(stamped, { of: machineOf, reference: 'n1', bounds });
      assert.deepEqual(
        aligned.notes.map(({ machine, by, shiftUs, errorUs }) => [machine, by, shiftUs, errorUs]),
        notes,
      );
      const way = (list: readonly Sighting[]) =>
        list.map(({ place, direction, device }) => `${place.name} ${direction} ${device.name}`);
      if (isOrdered) assert.deepEqual(way(inOrder(aligned.sightings)), way(packets));
    });
  }
});

test('corrections are described in words', () => {
  const text = (shiftUs: number, errorUs: number | null, by: ClockNote['by']) =>
    clockText({ machine: 'n2', reference: 'n1', shiftUs, errorUs, by });
  const rows: readonly (readonly [said: string, words: RegExp])[] = [
    [text(0, 12, 'both-ways'), /^agrees with that of n1 within 12 µs/],
    [text(5_000_000, 12, 'both-ways'), /^its times are shown 5.0 s earlier, to agree with that of n1/],
    [text(-1500, 12, 'both-ways'), /^its times are shown 1.50 ms later/],
    [text(0, null, 'one-way'), /one direction only: the time between the two nodes is not exact/],
    [text(-990, null, 'one-way'), /990 µs later, so that no packet arrives/],
    [text(0, 80_000, 'requests'), /order of hops between the two nodes may be wrong/],
    [text(5_000_000, 80_000, 'requests'), /by the round trips of requests \(within 80.00 ms\)/],
  ];
  for (const [said, words] of rows) assert.match(said, words);
});
