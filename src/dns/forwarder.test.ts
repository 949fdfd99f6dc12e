import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { connect, createServer } from 'node:net';
import { test } from 'node:test';
import { type ManualClock, manualClock, systemClock } from '../lib/clock.ts';
import { createForwarder, type Forwarder, type ForwarderOptions } from './forwarder.ts';
import {
  type Answer,
  CLASS_IN,
  emptyAnswer,
  type Query,
  RCODE,
  type ResourceRecord,
  TYPE,
} from './message.ts';
import { parseUpstream, upstreamsFromResolvConf } from './resolv-conf.ts';
import { type FakeUpstream, startUpstream } from './testing/upstream.ts';

const address = (name: string, ttl: number, last = 1): ResourceRecord => ({
  name,
  type: TYPE.A,
  class: CLASS_IN,
  ttl,
  data: Uint8Array.of(192, 0, 2, last),
});
const yes =
  (last = 1, ttl = 60) =>
  ({ question }: Query): Answer => ({ ...emptyAnswer(0), answers: [address(question.name, ttl, last)] });
const soa = (ttl: number, minimum: number): ResourceRecord => ({
  name: 'example.com',
  type: TYPE.SOA,
  class: CLASS_IN,
  ttl,
  data: { primary: 'ns', mailbox: 'm', serial: 1, refresh: 1, retry: 1, expire: 1, minimum },
});

async function using(
  upstreams: readonly FakeUpstream[],
  options: Partial<ForwarderOptions>,
  run: (forwarder: Forwarder) => Promise<void>,
): Promise<void> {
  const forwarder = createForwarder({
    upstreams: upstreams.map((u) => u.address),
    random: () => 0,
    ...options,
  });
  try {
    await run(forwarder);
  } finally {
    forwarder.close();
    for (const upstream of upstreams) await upstream.close();
  }
}

const resolve = (forwarder: Forwarder, name: string, type: number = TYPE.A) =>
  Promise.resolve(
    forwarder.resolve({
      question: { name, type, class: CLASS_IN },
      dnssecOk: false,
      checkingDisabled: false,
    }),
  );
const lastByte = (answer: Answer) => (answer.answers[0]?.data as Uint8Array | undefined)?.[3];

/**
 * A clock whose time is set by the test while its timers run in real time, for tests that also wait for
 * sockets.
 */
const movable = (manual: ManualClock) => ({ now: manual.now, after: systemClock.after });

test('answers are cached for their TTL, which decreases', async () => {
  const clock = manualClock();
  const upstream = await startUpstream(yes(1, 60));
  await using([upstream], { clock: movable(clock) }, async (forwarder) => {
    assert.equal((await resolve(forwarder, 'a.example.com')).answers[0]?.ttl, 60);
    clock.advance(20_000);
    const second = await resolve(forwarder, 'A.example.com');
    assert.equal(second.answers[0]?.ttl, 40);
    assert.equal(second.answers[0]?.name, 'A.example.com');
    assert.equal(upstream.asked.length, 1);
    clock.advance(40_000);
    await resolve(forwarder, 'a.example.com');
    assert.equal(upstream.asked.length, 2);
  });
});

const negative: { what: string; answer: Answer; seconds: number }[] = [
  {
    what: 'a denial for the time in the SOA',
    answer: { ...emptyAnswer(RCODE.NXDOMAIN), authorities: [soa(300, 30)] },
    seconds: 30,
  },
  { what: 'no data likewise', answer: { ...emptyAnswer(0), authorities: [soa(20, 30)] }, seconds: 20 },
  { what: 'a denial without SOA for 5 s', answer: emptyAnswer(RCODE.NXDOMAIN), seconds: 5 },
  { what: 'an upstream failure for 5 s', answer: emptyAnswer(RCODE.SERVFAIL), seconds: 5 },
  { what: 'a refusal not at all', answer: emptyAnswer(RCODE.REFUSED), seconds: 0 },
  { what: 'a TTL of 0 not at all', answer: { ...emptyAnswer(0), answers: [address('x', 0)] }, seconds: 0 },
];
for (const { what, answer, seconds } of negative) {
  test(`cached: ${what}`, async () => {
    const clock = manualClock();
    const upstream = await startUpstream(() => answer);
    await using([upstream], { clock: movable(clock) }, async (forwarder) => {
      assert.equal((await resolve(forwarder, 'x')).rcode, answer.rcode);
      if (seconds > 0) {
        clock.advance(seconds * 1000 - 1);
        await resolve(forwarder, 'x');
        assert.equal(upstream.asked.length, 1);
      }
      clock.advance(1);
      await resolve(forwarder, 'x');
      assert.equal(upstream.asked.length, 2);
    });
  });
}

test('the cache is bounded; the least recently used entries are evicted', async () => {
  const upstream = await startUpstream(yes());
  await using([upstream], { cache: { maxEntries: 3 } }, async (forwarder) => {
    for (const name of ['a', 'b', 'c', 'a', 'd']) await resolve(forwarder, name);
    upstream.asked.length = 0;
    for (const name of ['a', 'c', 'd', 'b']) await resolve(forwarder, name);
    assert.deepEqual(upstream.asked, ['b A/udp']);
  });
});

test('concurrent equal questions are sent once', async () => {
  const upstream = await startUpstream(yes());
  await using([upstream], {}, async (forwarder) => {
    await Promise.all(Array.from({ length: 20 }, () => resolve(forwarder, 'same')));
    assert.equal(upstream.asked.length, 1);
  });
});

test('a question in several spellings is sent once', async () => {
  const upstream = await startUpstream(yes());
  await using([upstream], {}, async (forwarder) => {
    await Promise.all(['example.com', 'Example.com', 'EXAMPLE.COM'].map((name) => resolve(forwarder, name)));
    assert.equal(upstream.asked.length, 1);
  });
});

test('after forged answers, which have other ids, the upstream is asked over TCP', async () => {
  const upstream = await startUpstream(yes());
  const forger = createSocket('udp4');
  forger.on('message', (query, { port, address: to }) => {
    for (let i = 1; i <= 20; i++) {
      const answer = Buffer.from(query);
      answer.writeUInt16BE((query.readUInt16BE(0) + i) & 0xffff, 0);
      answer[2] = (answer[2] ?? 0) | 0x80;
      forger.send(answer, port, to);
    }
  });
  // The port of the upstream's answers over TCP: what it would answer over UDP comes too late.
  const [, port = ''] = upstream.address.split(':');
  await new Promise<void>((bound) => forger.bind(Number(port), '127.0.0.2', bound));
  const relay = createServer((client) => {
    const server = connect(Number(port), '127.0.0.1');
    client.pipe(server).pipe(client);
  });
  await new Promise<void>((bound) => relay.listen(Number(port), '127.0.0.2', bound));
  try {
    await using([upstream], { upstreams: [`127.0.0.2:${port}`] }, async (forwarder) => {
      assert.equal(lastByte(await resolve(forwarder, 'example.com')), 1);
      assert.deepEqual(upstream.asked, ['example.com A/tcp']);
    });
  } finally {
    forger.close();
    relay.close();
  }
});

test('a truncated answer is fetched over TCP', async () => {
  const upstream = await startUpstream((query, transport) =>
    transport === 'udp' ? 'truncated' : yes(7)(query),
  );
  await using([upstream], {}, async (forwarder) => {
    assert.equal(lastByte(await resolve(forwarder, 'big')), 7);
    assert.deepEqual(upstream.asked, ['big A/udp', 'big A/tcp']);
  });
});

test('an upstream without EDNS is queried without it', async () => {
  const old = await startUpstream((query) => (query.edns ? emptyAnswer(RCODE.FORMERR) : yes(3)(query)));
  await using([old], {}, async (forwarder) => {
    assert.equal(lastByte(await resolve(forwarder, 'x')), 3);
  });
});

test('if one upstream refuses, is dead or fails, the next one answers', async () => {
  const dead = await startUpstream(() => null);
  await dead.close();
  const failing = await startUpstream(() => emptyAnswer(RCODE.SERVFAIL));
  const good = await startUpstream(yes(9));
  await using(
    [good, failing],
    { upstreams: [dead.address, failing.address, good.address] },
    async (forwarder) => {
      assert.equal(lastByte(await resolve(forwarder, 'x')), 9);
    },
  );
});

test('a silent upstream delays one query; after two it is skipped until it answers a probe', async () => {
  let silent = true;
  const flaky = await startUpstream((query) => (silent ? null : yes(1)(query)));
  const good = await startUpstream(yes(2));
  await using([flaky, good], {}, async (forwarder) => {
    for (const name of ['a', 'b']) assert.equal(lastByte(await resolve(forwarder, name)), 2);
    flaky.asked.length = 0;
    assert.equal(lastByte(await resolve(forwarder, 'c')), 2);
    assert.ok(!flaky.asked.includes('c A/udp'));
    silent = false;
    for (let i = 0, last: number | undefined; last !== 1; i++) {
      assert.ok(i < 200, 'never used again');
      await new Promise((done) => setTimeout(done, 25));
      last = lastByte(await resolve(forwarder, `d${i}`));
    }
  });
});

test('no server answers: SERVFAIL, not an exception', async () => {
  await using([], { upstreams: [] }, async (forwarder) => {
    assert.equal((await resolve(forwarder, 'x')).rcode, RCODE.SERVFAIL);
  });
});

test('an unreachable upstream (the kernel refuses to send): SERVFAIL, and others are queried', async () => {
  const good = await startUpstream(yes(1));
  // No packet is sent: only a socket that requested it may send to the broadcast address.
  await using([], { upstreams: ['255.255.255.255'] }, async (forwarder) => {
    assert.equal((await resolve(forwarder, 'x')).rcode, RCODE.SERVFAIL);
  });
  await using([good], { upstreams: ['255.255.255.255', good.address] }, async (forwarder) => {
    for (const name of ['a', 'b', 'c', 'd']) assert.equal(lastByte(await resolve(forwarder, name)), 1);
  });
});

test('stub domains have their own upstreams; the longest wins', async () => {
  const [general, corp, lab] = await Promise.all([
    startUpstream(yes(1)),
    startUpstream(yes(2)),
    startUpstream(yes(3)),
  ]);
  const stubDomains = { 'corp.example': [corp.address], 'Lab.corp.example.': [lab.address] };
  await using([general, corp, lab], { upstreams: [general.address], stubDomains }, async (forwarder) => {
    const seen = [];
    for (const name of ['example', 'x.corp.example', 'corp.example', 'y.LAB.corp.example', 'xcorp.example']) {
      seen.push(lastByte(await resolve(forwarder, name)));
    }
    assert.deepEqual(seen, [1, 2, 2, 3, 1]);
  });
});

test('upstreams can be replaced', async () => {
  const [first, second] = await Promise.all([startUpstream(yes(1)), startUpstream(yes(2))]);
  await using([first, second], { upstreams: [first.address] }, async (forwarder) => {
    assert.equal(lastByte(await resolve(forwarder, 'a')), 1);
    forwarder.setUpstreams([second.address]);
    assert.equal(lastByte(await resolve(forwarder, 'b')), 2);
  });
});

test('resolv.conf: servers in order, without the server’s own addresses and invalid ones', () => {
  const text =
    'search x\nnameserver 10.96.0.10\n nameserver 1.1.1.1 # one\nnameserver FD00::1\nnameserver\nnameserver x\n#nameserver 2.2.2.2\nnameserver fe80::1%eth0\nnameserver 1.1.1.1\n';
  assert.deepEqual(upstreamsFromResolvConf(text, ['10.96.0.10']), ['1.1.1.1', 'fd00::1', 'fe80::1%eth0']);
});

test('upstream addresses', () => {
  assert.deepEqual(parseUpstream('10.0.0.1'), { address: '10.0.0.1', port: 53 });
  assert.deepEqual(parseUpstream('10.0.0.1:5353'), { address: '10.0.0.1', port: 5353 });
  assert.deepEqual(parseUpstream('fd00::1'), { address: 'fd00::1', port: 53 });
  assert.deepEqual(parseUpstream('[fd00::1]:54'), { address: 'fd00::1', port: 54 });
  for (const bad of ['', 'dns.example', '10.0.0.1:0', '10.0.0.1:70000', '10.0.0']) {
    assert.throws(() => parseUpstream(bad), { code: 'bad-config' }, bad);
  }
});

test('recursion is offered while there is an upstream', () => {
  const forwarder = createForwarder({ upstreams: [] });
  assert.equal(forwarder.offersRecursion, false);
  forwarder.setUpstreams(['192.0.2.1']);
  assert.equal(forwarder.offersRecursion, true);
  forwarder.setUpstreams([]);
  assert.equal(forwarder.offersRecursion, false);
  forwarder.close();
  const stubbed = createForwarder({ upstreams: [], stubDomains: { 'example.com': ['192.0.2.1'] } });
  assert.equal(stubbed.offersRecursion, true);
  stubbed.close();
});
