import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLogger } from '../lib/log.ts';
import { decodeMessage } from './decode.ts';
import { encodeMessage, type OutgoingMessage, textData } from './encode.ts';
import { CLASS_IN, type RecordData, TYPE } from './message.ts';
import { createResolver } from './resolver.ts';
import { createResponder } from './responder.ts';
import { queryBytes } from './testing/client.ts';
import { shopZone } from './testing/cluster.ts';

const HEADER = {
  id: 7,
  response: true,
  opcode: 0,
  authoritative: true,
  truncated: false,
  recursionDesired: true,
  recursionAvailable: true,
  authenticData: false,
  checkingDisabled: false,
  rcode: 0,
};

function outgoing(name: string, records: [string, number, RecordData][]): OutgoingMessage {
  return {
    header: HEADER,
    question: { name, type: TYPE.A, class: CLASS_IN },
    answers: records.map(([owner, type, data]) => ({ name: owner, type, class: CLASS_IN, ttl: 5, data })),
    authorities: [],
    additionals: [],
    edns: null,
  };
}

test('what is encoded decodes to the same, for each kind of data', () => {
  const message = outgoing('www.example.com', [
    ['www.example.com', TYPE.A, Uint8Array.of(1, 2, 3, 4)],
    ['www.example.com', TYPE.CNAME, { target: 'example.com' }],
    ['mail.example.com', TYPE.MX, { preference: 10, target: 'mail.example.com' }],
    ['_a._b.example.com', TYPE.SRV, { priority: 1, weight: 2, port: 3, target: 'mail.example.com' }],
    ['example.com', TYPE.TXT, Uint8Array.from(textData('a', 'b c'))],
    [
      'odd\\.label\\\\.\\000x\\255.example.com',
      TYPE.PTR,
      { target: 'odd\\.label\\\\.\\000x\\255.example.com' },
    ],
    ['example.com', 9999, Uint8Array.of(0xc0, 12)],
    [
      'example.com',
      TYPE.SOA,
      {
        primary: 'ns.example.com',
        mailbox: 'm',
        serial: 0xffffffff,
        refresh: 1,
        retry: 2,
        expire: 3,
        minimum: 4,
      },
    ],
  ]);
  const decoded = decodeMessage(encodeMessage(message));
  assert.deepEqual(decoded?.answers, message.answers);
  assert.deepEqual(decoded?.questions, [message.question]);
});

test('names are compressed, but not where the RFCs forbid it', () => {
  const compressed = encodeMessage(
    outgoing('a.example.com', [['a.example.com', TYPE.CNAME, { target: 'b.example.com' }]]),
  );
  assert.equal(compressed.length, 12 + 19 + 12 + 4);
  const srv = encodeMessage(
    outgoing('a.example.com', [
      ['a.example.com', TYPE.SRV, { priority: 0, weight: 0, port: 0, target: 'a.example.com' }],
    ]),
  );
  assert.equal(srv.length, 12 + 19 + 12 + 6 + 15);
});

test('no limit is ever passed, and what is sent is whole', () => {
  const message = outgoing(
    'a.example.com',
    Array.from({ length: 40 }, (_, i) => [`n${i}.example.com`, TYPE.CNAME, { target: `t${i}.example.com` }]),
  );
  for (let limit = 31; limit < 1400; limit++) {
    const bytes = encodeMessage(message, limit);
    assert.ok(bytes.length <= limit);
    assert.ok(decodeMessage(bytes), `${limit}`);
  }
});

test('pointers that loop, lead forward or run out are refused', () => {
  const head = [0, 1, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0];
  for (const name of [
    [0xc0, 12],
    [0xc0, 14, 0xc0, 12],
    [1, 97, 0xc0, 12],
    [0xc0],
    [0xc0, 4],
    [0xff, 0xff],
    [64],
    [5, 1],
  ]) {
    assert.equal(decodeMessage(Uint8Array.from([...head, ...name, 0, 1, 0, 1])), null, name.join());
  }
  const long = Array.from({ length: 130 }, () => [1, 97]).flat();
  assert.equal(decodeMessage(Uint8Array.from([...head, ...long, 0, 0, 1, 0, 1])), null);
});

test('malformed packets never throw, and what is answered is well formed', () => {
  const resolve = createResolver(shopZone(), null);
  const respond = createResponder({
    resolve: (query) => resolve(query),
    recursionAvailable: false,
    domain: 'cluster.local',
    metrics: null,
    logger: { ...silentLogger, error: (_, message) => assert.fail(message) },
  });
  const edns = { udpSize: 1232, version: 0, dnssecOk: true };
  const seeds = [
    queryBytes('web.shop.svc.cluster.local A'),
    queryBytes('_http._tcp.web.shop.svc.cluster.local SRV', { edns }),
    queryBytes('1.0.96.10.in-addr.arpa PTR', { edns }),
    encodeMessage(
      outgoing('a.b.c', [
        ['x.a.b.c', TYPE.CNAME, { target: 'y.b.c' }],
        ['b.c', TYPE.SRV, { priority: 1, weight: 1, port: 1, target: 'b.c' }],
      ]),
    ),
  ];
  const random = generator(20_240_601);
  const packets = Number(process.env['FAIRLEAD_FUZZ_PACKETS'] ?? 100_000);
  for (let i = 0; i < packets; i++) {
    const packet = mutate(seeds[i % seeds.length] ?? seeds[0] ?? Buffer.alloc(0), random);
    const decoded = decodeMessage(packet);
    if (decoded) encodeMessage({ ...decoded, header: decoded, question: decoded.questions[0] ?? null }, 1232);
    if (i % 4 === 3 && packet.length > 2) packet[2] = (packet[2] ?? 0) & 0x7f;
    const answer = respond(packet, i % 2 ? 'udp' : 'tcp', 'ipv4');
    assert.ok(!(answer instanceof Promise));
    if (answer) assert.ok(decodeMessage(answer), `answer to ${packet.toString('hex')}`);
  }
});

/** A small generator (mulberry32): the same packets at each run. */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function mutate(seed: Buffer, random: () => number): Buffer {
  const below = (limit: number) => Math.floor(random() * limit);
  const packet = Buffer.from(seed);
  for (let edits = 1 + below(4); edits > 0; edits--) {
    const at = below(packet.length);
    switch (below(4)) {
      case 0:
        packet[at] = below(256);
        break;
      case 1:
        packet[at] = (packet[at] ?? 0) ^ (1 << below(8));
        break;
      case 2:
        packet[at] = 0xc0 | below(2);
        break;
      default:
        packet[at] = [0, 1, 63, 64, 255][below(5)] ?? 0;
    }
  }
  return random() < 0.3 ? packet.subarray(0, below(packet.length + 1)) : packet;
}
