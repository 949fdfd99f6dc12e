import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readFrame } from '../kernel/packet.ts';
import { icmpErrorFrame, type TcpOptions, tcpFrame, udpFrame, vxlanFrame } from '../kernel/testing/frames.ts';
import { connectionsFor, type FlowKey, type ProxyConnection, sequencesOf, sightingsOf } from './flow.ts';
import { endText, type Leg, legsOf } from './hops.ts';
import { type Answer, answerOf, type SocketResult, unanswered } from './outcome.ts';
import { inOrder, type Sighting } from './sighting.ts';
import { observedPlace, sighting } from './testing/sightings.ts';

const SEQUENCE = 1_000_000;
const client = observedPlace('pod default/client', ['eth0'], 'pod');
const node1 = observedPlace('node-1', ['veth*', 'bridge', 'eth0', 'lo']);
const node2 = observedPlace('node-2', ['eth0', 'bridge', 'veth*']);
const server = observedPlace('pod default/web', ['eth0'], 'pod');

const ASKED = '10.244.1.2:4000 > 10.96.0.1:80';
const SENT = '10.244.1.2:4000 > 10.244.2.2:8080';
const ANSWERED = '10.244.2.2:8080 > 10.244.1.2:4000';
const RESTORED = '10.96.0.1:80 > 10.244.1.2:4000';
const there = (way: string) => tcpFrame(way, { sequence: SEQUENCE });
const back = (way: string, flags: TcpOptions['flags'] = 'SYN-ACK') =>
  tcpFrame(way, { flags, sequence: 77, acknowledgment: SEQUENCE + 1 });

/** A SYN from a pod through a Service to a pod of another node. */
const WAY_THERE: Sighting[] = [
  sighting(client, 'out eth0', 0, there(ASKED)),
  sighting(node1, 'in veth', 5, there(ASKED)),
  sighting(node1, 'in bridge', 5, there(ASKED)),
  sighting(node1, 'out eth0', 20, there(SENT)),
  sighting(node2, 'in eth0', 30, there(SENT)),
  sighting(node2, 'out bridge', 40, there(SENT)),
  sighting(node2, 'out veth', 41, there(SENT)),
  sighting(server, 'in eth0', 45, there(SENT)),
];
const WAY_BACK: Sighting[] = [
  sighting(server, 'out eth0', 60, back(ANSWERED)),
  sighting(node2, 'in veth', 62, back(ANSWERED)),
  sighting(node2, 'out eth0', 70, back(ANSWERED)),
  sighting(node1, 'in eth0', 80, back(ANSWERED)),
  sighting(node1, 'out bridge', 90, back(RESTORED)),
  sighting(node1, 'out veth', 91, back(RESTORED)),
  sighting(client, 'in eth0', 99, back(RESTORED)),
];
const KEY: FlowKey = { protocol: 'TCP', sequence: SEQUENCE };

describe('frames of a flow', () => {
  const nonce = Buffer.from('trace-00c0ffee');
  const datagrams: FlowKey = { protocol: 'UDP', nonce };
  const rows: { name: string; key?: FlowKey; frames: readonly Uint8Array[]; kinds: readonly string[] }[] = [
    {
      name: 'a handshake, before and after translation',
      frames: [there(ASKED), there(SENT), back(ANSWERED), back(RESTORED)],
      kinds: ['there SYN', 'there SYN', 'back SYN-ACK', 'back SYN-ACK'],
    },
    {
      name: 'another connection with the same addresses',
      frames: [tcpFrame(ASKED, { sequence: SEQUENCE + 5000 })],
      kinds: [],
    },
    { name: 'a reset', frames: [back(RESTORED, 'RST')], kinds: ['back RST'] },
    {
      name: 'an ICMP error with the first eight bytes of the segment',
      frames: [icmpErrorFrame('172.30.0.11', '10.244.1.2', 3, 1, there(SENT))],
      kinds: ['back error'],
    },
    {
      name: "an ICMPv6 error about another program's segment",
      frames: [icmpErrorFrame('fd00::9', 'fd00::1', 1, 4, tcpFrame('[fd00::1]:1 > [fd00::2]:2'))],
      kinds: [],
    },
    {
      name: 'a sequence number that wraps around',
      key: { protocol: 'TCP', sequence: 0xffffffff },
      frames: [tcpFrame(ASKED, { flags: 'ACK', sequence: 3, acknowledgment: 9_000_000 })],
      kinds: ['there segment'],
    },
    {
      name: 'a datagram and an answer without the text, masqueraded by a node',
      key: datagrams,
      frames: [
        udpFrame(ASKED, nonce),
        udpFrame('172.30.0.11:61000 > 10.244.2.2:8080', nonce),
        udpFrame('10.244.2.2:8080 > 172.30.0.11:61000', 'hello'),
        udpFrame(RESTORED, 'hello'),
      ],
      kinds: ['there datagram', 'there datagram', 'back answer', 'back answer'],
    },
    {
      name: 'an answer from an address that was translated before any device passed the datagram',
      key: datagrams,
      frames: [
        udpFrame('172.30.0.11:4000 > 172.30.0.11:45000', nonce),
        udpFrame('10.96.0.1:80 > 172.30.0.11:4000', 'hello'),
        udpFrame('10.96.0.1:80 > 172.30.0.11:4001', 'hello'),
      ],
      kinds: ['there datagram', 'back answer'],
    },
    {
      name: 'a server that repeats the text',
      key: datagrams,
      frames: [udpFrame(ASKED, nonce), udpFrame(RESTORED, nonce)],
      kinds: ['there datagram', 'back answer'],
    },
    {
      name: 'another datagram to the same endpoint',
      key: datagrams,
      frames: [udpFrame(ASKED, nonce), udpFrame('10.244.1.9:4000 > 10.96.0.1:80', 'other')],
      kinds: ['there datagram'],
    },
    {
      name: 'an ICMP error about the datagram',
      key: datagrams,
      frames: [
        udpFrame(SENT, nonce),
        icmpErrorFrame('10.244.2.2', '10.244.1.2', 3, 3, udpFrame(SENT, nonce)),
      ],
      kinds: ['there datagram', 'back error'],
    },
    {
      name: 'an ICMP error about the datagram, which no device has passed',
      key: datagrams,
      frames: [
        icmpErrorFrame('fd00::12', 'fd00::1', 1, 3, udpFrame('[fd00::1]:4000 > [fd00::2]:80', nonce)),
        icmpErrorFrame('fd00::12', 'fd00::1', 1, 3, udpFrame('[fd00::1]:4000 > [fd00::2]:80', 'other')),
      ],
      kinds: ['back error'],
    },
  ];
  for (const { name, key = KEY, frames, kinds } of rows) {
    test(name, () => {
      const sightings = frames.map((frame, i) => sighting(node1, 'in eth0', i, frame));
      assert.deepEqual(
        sightingsOf(sightings, key).map(({ way, kind }) => `${way} ${kind}`),
        kinds,
      );
    });
  }
});

describe('hops', () => {
  const legs = (sightings: readonly Sighting[], untilUs = Number.POSITIVE_INFINITY): Leg[] =>
    legsOf(sightingsOf(inOrder(sightings), KEY), {
      startNs: 0n,
      asked: { ip: '10.96.0.1', port: 80 },
      translators: {
        destination: [
          { object: 'nft: map services', to: null },
          { object: 'chain of one endpoint', to: '10.244.2.2:8080' },
          { object: 'chain of another endpoint', to: '10.244.2.3:8080' },
        ],
        source: [{ object: 'mark bit 14', to: null }],
      },
      isRelayed: false,
      untilUs,
    });
  const text = ({ kind, hops }: Leg) => [
    kind,
    ...hops.map(({ place, direction, deviceText, changes }) => {
      const changed = changes.map(({ field, before, after }) => ` ${field} ${before} → ${after}`).join('');
      return `${place} ${direction} ${deviceText}${changed}`;
    }),
  ];
  const expected = [
    [
      'SYN',
      'pod default/client out eth0',
      'node-1 in veth',
      'node-1 in bridge',
      'node-1 out eth0 destination 10.96.0.1:80 → 10.244.2.2:8080',
      'node-2 in eth0',
      'node-2 out bridge',
      'node-2 out veth',
      'pod default/web in eth0',
    ],
    [
      'SYN-ACK',
      'pod default/web out eth0',
      'node-2 in veth',
      'node-2 out eth0',
      'node-1 in eth0',
      'node-1 out bridge source 10.244.2.2:8080 → 10.96.0.1:80',
      'node-1 out veth',
      'pod default/client in eth0',
    ],
  ];

  test('are grouped by packet, with what changed', () => {
    assert.deepEqual(legs([...WAY_THERE, ...WAY_BACK]).map(text), expected);
  });
  test('are ordered by time over places, and as read at one place', () => {
    const byPlace = [server, node2, client, node1].flatMap((place) =>
      [...WAY_THERE, ...WAY_BACK].filter((one) => one.place === place),
    );
    assert.deepEqual(legs(byPlace).map(text), expected);
  });
  test('name what translates, on the way there only', () => {
    const changes = legs([...WAY_THERE, ...WAY_BACK]).flatMap(({ hops }) =>
      hops.flatMap((hop) => hop.changes),
    );
    assert.deepEqual(
      changes.map(({ field, by }) => [field, by]),
      [
        ['destination', ['nft: map services', 'chain of one endpoint']],
        ['source', []],
      ],
    );
  });
  test('a destination that was translated at the socket changes at the first hop', () => {
    const [leg] = legs([sighting(client, 'out eth0', 0, there(SENT))]);
    assert.deepEqual(leg?.hops[0]?.changes[0]?.after, '10.244.2.2:8080');
  });
  test('a SYN that is sent again the same way is one leg with the time of the repeat', () => {
    const again = WAY_THERE.map((one) => ({ ...one, timeNs: one.timeNs + 1_000_000_000n }));
    const [leg, ...others] = legs([...WAY_THERE, ...again]);
    assert.deepEqual(others, []);
    assert.equal(leg?.hops.length, WAY_THERE.length);
    assert.deepEqual(leg?.repeatsUs, [1_000_000]);
  });
  test('a SYN that is sent again too late to be followed to its end is left out', () => {
    const again = (at: bigint) =>
      WAY_THERE.slice(0, 2).map((one) => ({ ...one, timeNs: one.timeNs + at * 1000n }));
    const found = legs([...WAY_THERE, ...again(1_000_000n)], 999_999);
    assert.deepEqual(
      found.map(({ hops, repeatsUs }) => [hops.length, repeatsUs]),
      [[WAY_THERE.length, []]],
    );
    assert.equal(legs([...WAY_THERE, ...again(1_000_000n)], 1_000_000).length, 2);
  });
  test('an answer that comes while the last packets are awaited is shown', () => {
    assert.deepEqual(legs([...WAY_THERE, ...WAY_BACK], 0).map(text), expected);
  });
  test('a SYN that is sent again to another endpoint, and its reset, are legs of their own', () => {
    const OTHER = '10.244.1.2:4000 > 10.244.1.9:8080';
    const found = legs([
      ...WAY_THERE,
      sighting(server, 'out eth0', 60, back(ANSWERED, 'RST')),
      sighting(client, 'out eth0', 100_000, there(ASKED)),
      sighting(node1, 'out bridge', 100_020, there(OTHER)),
      sighting(node1, 'in bridge', 100_030, back('10.244.1.9:8080 > 10.244.1.2:4000', 'RST')),
    ]);
    assert.deepEqual(
      found.map(({ kind, hops }) => [kind, hops.length]),
      [
        ['SYN', 8],
        ['RST', 1],
        ['SYN', 2],
        ['RST', 1],
      ],
    );
  });
  test('errors about SYNs of one connection, sent at the same time, are packets of their own', () => {
    const [CLIENT, ENDPOINT, NODE] = ['fd00::1', 'fd00:2::fa', 'fd00::12'];
    const syn = (timestamp: number) =>
      tcpFrame(`[${CLIENT}]:4000 > [${ENDPOINT}]:80`, { sequence: SEQUENCE, timestamp });
    const error = (timestamp: number) => icmpErrorFrame(NODE, CLIENT, 1, 3, syn(timestamp));
    const [leg, again, ...others] = legs([
      sighting(client, 'out eth0', 0, syn(1)),
      sighting(client, 'out eth0', 1_000_000, syn(2)),
      sighting(node2, 'out eth0', 3_000_000, error(1)),
      sighting(node2, 'out eth0', 3_000_001, error(2)),
      sighting(node1, 'in eth0', 3_000_002, error(1)),
      sighting(node1, 'in eth0', 3_000_003, error(2)),
      sighting(client, 'in eth0', 3_000_004, error(1)),
      sighting(client, 'in eth0', 3_000_005, error(2)),
    ]);
    assert.deepEqual(others, []);
    assert.deepEqual(leg && text(leg), [
      'SYN',
      'pod default/client out eth0 destination 10.96.0.1:80 → [fd00:2::fa]:80',
    ]);
    assert.deepEqual(leg?.repeatsUs, [1_000_000]);
    assert.deepEqual(again && text(again), [
      'error',
      'node-2 out eth0',
      'node-1 in eth0',
      'pod default/client in eth0',
    ]);
    assert.deepEqual(
      again?.hops.map(({ sinceUs }) => sinceUs),
      [3_000_000, 3_000_002, 3_000_004],
    );
    assert.deepEqual(again?.repeatsUs, [3_000_001]);
  });
  test('SYNs that wait for a neighbour leave together, each on its own way', () => {
    const syn = (timestamp: number) => tcpFrame(SENT, { sequence: SEQUENCE, timestamp });
    const [leg, ...others] = legs([
      sighting(node2, 'in eth0', 0, syn(1)),
      sighting(node2, 'in eth0', 1_000_000, syn(2)),
      sighting(node2, 'out bridge', 1_500_000, syn(1)),
      sighting(node2, 'out bridge', 1_500_001, syn(2)),
    ]);
    assert.deepEqual(others, []);
    assert.deepEqual(
      leg?.hops.map(({ sinceUs }) => sinceUs),
      [0, 1_500_000],
    );
    assert.deepEqual(leg?.repeatsUs, [1_000_000]);
  });
  test('inside VXLAN the inner addresses count', () => {
    const frame = vxlanFrame('172.30.0.11', '172.30.0.12', 4789, there(SENT));
    const packet = readFrame(frame, 4789);
    assert.deepEqual(packet?.tunnel, { source: '172.30.0.11', destination: '172.30.0.12' });
    const [leg] = legs([sighting(node1, 'out eth0', 0, frame, 4789)]);
    assert.equal(leg?.hops[0] && endText(leg.hops[0].destination), '10.244.2.2:8080');
  });
});

describe('the answer', () => {
  const reset = [
    sighting(server, 'out eth0', 60, back(ANSWERED, 'RST')),
    sighting(client, 'in eth0', 99, back(RESTORED, 'RST')),
  ];
  const rejected = icmpErrorFrame('172.30.0.11', '10.244.1.2', 3, 3, there(ASKED));
  const rows: {
    name: string;
    sightings: readonly Sighting[];
    socket?: SocketResult;
    answer: Answer | null;
  }[] = [
    { name: 'an answer', sightings: [...WAY_THERE, ...WAY_BACK], answer: { kind: 'answered' } },
    {
      name: 'an answer that is lost on its way',
      sightings: [...WAY_THERE, ...WAY_BACK.slice(0, 3)],
      answer: null,
    },
    {
      name: 'a reset of the server',
      sightings: [...WAY_THERE, ...reset],
      answer: { kind: 'refused', text: 'RST', by: 'pod default/web' },
    },
    {
      name: 'an ICMP error of the node',
      sightings: [
        ...WAY_THERE.slice(0, 3),
        sighting(node1, 'out veth', 9, rejected),
        sighting(client, 'in eth0', 10, rejected),
      ],
      answer: { kind: 'refused', text: 'ICMP port unreachable', by: 'node-1' },
    },
    {
      name: 'no route at the socket',
      sightings: [],
      socket: { error: 'ENETUNREACH' },
      answer: { kind: 'unreachable', text: 'ENETUNREACH', by: null },
    },
    {
      name: 'a program that refuses at the socket',
      sightings: [],
      socket: { error: 'ECONNREFUSED' },
      answer: { kind: 'refused', text: 'ECONNREFUSED', by: null },
    },
  ];
  for (const { name, sightings, socket = 'open', answer } of rows) {
    test(name, () => {
      assert.deepEqual(answerOf(sightingsOf(inOrder(sightings), KEY), null, socket, client.name), answer);
    });
  }
  test('nothing: the furthest hop of the packet, although it is sent again', () => {
    const again = sighting(client, 'out eth0', 1_000_000, there(ASKED));
    const seen = sightingsOf(inOrder([...WAY_THERE.slice(0, 5), again]), KEY);
    assert.deepEqual(unanswered(seen, null), { kind: 'nothing', last: { place: 'node-2', device: 'eth0' } });
  });
});

describe('a proxy', () => {
  const RELAY = '172.30.0.11:5000 > 10.244.2.2:8080';
  const accept = [
    sighting(node1, 'in bridge', 5, there(ASKED)),
    sighting(node1, 'out bridge', 9, back(RESTORED)),
    sighting(client, 'in eth0', 12, back(RESTORED)),
  ];
  const relay = (sequence: number, at: number, flags: TcpOptions['flags'] = 'SYN') =>
    sighting(
      node1,
      flags === 'SYN' ? 'out eth0' : 'in eth0',
      at,
      flags === 'SYN'
        ? tcpFrame(sequence < 90_000 ? RELAY : '172.30.0.11:5001 > 10.244.2.3:8080', { sequence })
        : tcpFrame('10.244.2.2:8080 > 172.30.0.11:5000', { flags, acknowledgment: sequence + 1 }),
    );
  const CLIENT = { ip: '10.244.1.2', port: 4000 };
  const tried = (port: number, endpoint: string): ProxyConnection => ({
    client: CLIENT,
    proxy: { ip: '172.30.0.11', port },
    endpoint: { ip: endpoint, port: 8080 },
  });
  const first = tried(5000, '10.244.2.2');
  const second = tried(5001, '10.244.2.3');
  const others: ProxyConnection[] = [
    { ...tried(5001, '10.244.2.3'), client: { ...CLIENT, port: 4001 } },
    { client: CLIENT, proxy: null, endpoint: { ip: '10.244.2.3', port: 8080 } },
  ];
  const rows: {
    name: string;
    frames: readonly Sighting[];
    connections: readonly ProxyConnection[];
    found: readonly number[];
    answer: Answer | null;
  }[] = [
    { name: 'opens no connection', frames: [], connections: [], found: [], answer: null },
    {
      name: 'opens a connection, and the endpoint answers',
      frames: [relay(500, 20), relay(500, 30, 'SYN-ACK')],
      connections: [first],
      found: [500],
      answer: { kind: 'answered' },
    },
    {
      name: 'opens a connection without an answer',
      frames: [relay(500, 20)],
      connections: [first],
      found: [500],
      answer: null,
    },
    {
      name: 'tries the next endpoint after a refusal',
      frames: [relay(500, 20), relay(500, 25, 'RST'), relay(90_000, 30), relay(90_000, 40, 'SYN-ACK')],
      connections: [first, second],
      found: [500, 90_000],
      answer: { kind: 'answered' },
    },
    {
      name: 'finds no host with the address of the endpoint, and resets the client',
      frames: [
        sighting(
          node1,
          'in lo',
          20,
          icmpErrorFrame('172.30.0.11', '172.30.0.11', 3, 1, tcpFrame(RELAY, { sequence: 500 })),
        ),
        sighting(client, 'in eth0', 30, back(RESTORED, 'RST')),
      ],
      connections: [first],
      found: [500],
      answer: { kind: 'refused', text: 'ICMP host unreachable', by: 'node-1' },
    },
    {
      name: 'opens a connection while a pod opens one to the endpoint from the same port',
      frames: [
        relay(500, 20),
        sighting(node1, 'in veth', 22, tcpFrame('10.244.1.2:5000 > 10.244.2.2:8080', { sequence: 700 })),
        relay(500, 30, 'SYN-ACK'),
      ],
      connections: [first],
      found: [500],
      answer: { kind: 'answered' },
    },
    {
      name: 'opens a connection whose source is translated',
      frames: [
        sighting(node1, 'out eth0', 20, tcpFrame('192.0.2.9:5000 > 10.244.2.2:8080', { sequence: 500 })),
      ],
      connections: [first],
      found: [500],
      answer: null,
    },
    {
      name: 'opens connections for other clients earlier and meanwhile',
      frames: [relay(90_000, 2), relay(500, 20), relay(95_000, 22), relay(500, 30, 'SYN-ACK')],
      connections: [...others, first],
      found: [500],
      answer: { kind: 'answered' },
    },
  ];
  for (const { name, frames, connections, found, answer } of rows) {
    test(name, () => {
      const ordered = inOrder([...accept, ...frames].sort((a, b) => Number(a.timeNs - b.timeNs)));
      const own = sightingsOf(ordered, KEY);
      const sequences = sequencesOf(ordered, 'node-1', connectionsFor(own, 'node-1', connections));
      assert.deepEqual(sequences, found);
      const relayed = sequences.flatMap((sequence) => sightingsOf(ordered, { protocol: 'TCP', sequence }));
      assert.deepEqual(answerOf(own, relayed, 'connected', client.name), answer);
    });
  }
});

test('on the node of the client, answers to a proxy are not answers to the client', () => {
  const nonce = Buffer.from('trace-00c0ffee');
  const relayed = '172.30.0.11:5000 > 10.244.2.2:8080';
  const datagrams = [
    sighting(node1, 'in lo', 0, udpFrame('172.30.0.11:4000 > 172.30.0.11:45000', nonce)),
    sighting(node1, 'out eth0', 5, udpFrame(relayed, nonce)),
  ];
  const answerTo = (way: string) => sighting(node1, 'in eth0', 9, udpFrame(way, 'hello'));
  const refusal = icmpErrorFrame('10.244.2.2', '172.30.0.11', 3, 3, udpFrame(relayed, nonce));
  const rows = [
    { last: answerTo('10.244.2.2:8080 > 172.30.0.11:5000'), answer: null },
    { last: sighting(node1, 'in eth0', 9, refusal), answer: null },
    { last: answerTo('10.96.0.1:80 > 172.30.0.11:4000'), answer: { kind: 'answered' } },
  ];
  for (const { last, answer } of rows) {
    const own = sightingsOf([...datagrams, last], { protocol: 'UDP', nonce });
    assert.equal(own.length, 3);
    assert.deepEqual(answerOf(own, null, 'open', 'node-1'), answer);
  }
});
