import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Registry } from 'prom-client';
import { silentLogger } from '../lib/log.ts';
import { decodeMessage } from './decode.ts';
import { encodeMessage, type OutgoingMessage, textData } from './encode.ts';
import { CLASS_IN, type RecordData, TYPE } from './message.ts';
import { createDnsMetrics } from './metrics.ts';
import { createResolver } from './resolver.ts';
import { createResponder } from './responder.ts';
import { shopZone } from './testing/cluster.ts';
import { malformedPackets } from './testing/malformed.ts';

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

test('encoding and decoding are inverse operations for each kind of data', () => {
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

test('messages never exceed the limit and contain only complete records', () => {
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

test('pointers that loop, point forward or beyond the end are refused', () => {
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

test('chains of pointers are bounded', () => {
  const head = [0, 1, 0x80, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1];
  /** A TXT record whose data is a name and pointers, each to the one before, and the question's name at its end. */
  const chained = (count: number) => {
    const start = head.length + 11;
    const data = [1, 97, 0];
    for (let i = 0, to = start; i < count; i++) {
      data.push(0xc0 | (to >> 8), to & 0xff);
      to = start + data.length - 2;
    }
    const last = start + data.length - 2;
    const record = [0, 0, 16, 0, 1, 0, 0, 0, 0, data.length >> 8, data.length & 0xff, ...data];
    const second = [0xc0 | (last >> 8), last & 0xff, 0, 16, 0, 1, 0, 0, 0, 0, 0, 0];
    const bytes = Uint8Array.from([...head, ...record, ...second]);
    bytes[7] = 2;
    return decodeMessage(bytes);
  };
  assert.equal(chained(126)?.answers[1]?.name, 'a');
  assert.equal(chained(200), null);
});

test('a name to which many pointers lead is read once', () => {
  const name = Array.from({ length: 3 }, () => [60, ...Array.from({ length: 60 }, () => 0xff)]).flat();
  const count = 5000;
  const head = [0, 1, 0x80, 0, 0, 1, count >> 8, count & 0xff, 0, 0, 0, 0, ...name, 0, 0, 1, 0, 1];
  const record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 0];
  let reads = 0;
  const bytes = Buffer.from([...head, ...Array.from({ length: count }, () => record).flat()]);
  const watched = new Proxy(bytes, {
    get(target, key) {
      if (typeof key === 'string' && Number(key) > 12 && Number(key) < 12 + name.length) reads++;
      const value: unknown = Reflect.get(target, key);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
  assert.equal(decodeMessage(watched)?.answers.length, count);
  assert.ok(reads < 1000, `${reads} reads`);
});

test('malformed packets never throw, answers are well-formed, and no memory leaks', () => {
  const registry = new Registry();
  const respond = createResponder({
    resolve: createResolver(shopZone(), null),
    offersRecursion: () => false,
    domain: 'cluster.local',
    metrics: createDnsMetrics(registry),
    logger: { ...silentLogger, error: (_, message) => assert.fail(message) },
  });
  const packets = malformedPackets(20_240_601);
  const usual = process.env['FAIRLEAD_TEST_FULL'] === '1' ? 1_000_000 : 200_000;
  const count = Number(process.env['FAIRLEAD_FUZZ_PACKETS'] ?? usual);
  let before = 0;
  for (let i = 0; i < count; i++) {
    // Warms up caches of the engine.
    if (i === Math.floor(count / 5)) before = usedHeap();
    const packet = packets();
    const decoded = decodeMessage(packet);
    if (decoded) encodeMessage({ ...decoded, header: decoded, question: decoded.questions[0] ?? null }, 1232);
    if (i % 4 === 3 && packet.length > 2) packet[2] = (packet[2] ?? 0) & 0x7f;
    const answer = respond(packet, i % 2 ? 'udp' : 'tcp', 'ipv4', 0);
    assert.ok(!(answer instanceof Promise));
    if (answer) assert.ok(decodeMessage(answer), `answer to ${packet.toString('hex')}`);
  }
  const grown = (usedHeap() - before) / 2 ** 20;
  assert.ok(grown < 4, `${count} packets left ${grown.toFixed(1)} MiB`);
});

/** Returns the bytes in use after a garbage collection. */
function usedHeap(): number {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  return process.memoryUsage().heapUsed;
}
