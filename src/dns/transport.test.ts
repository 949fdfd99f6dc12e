import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { describe, test } from 'node:test';
import { bindUdpIn, listenTcpIn, localPort } from '../kernel/netns.ts';
import { silentLogger } from '../lib/log.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { decodeMessage } from './decode.ts';
import type { Forwarder } from './forwarder.ts';
import { CLASS_IN, emptyAnswer, RCODE, TYPE } from './message.ts';
import { type DnsServerOptions, startDnsServer } from './server.ts';
import type { TcpLimits } from './tcp-listener.ts';
import {
  ask,
  exchangeTcp,
  exchangeUdp,
  frame,
  queryBytes,
  type ServerAddress,
  unframe,
} from './testing/client.ts';
import { service, shopZone, slice } from './testing/cluster.ts';
import type { Zone } from './zone.ts';

const WEB = 'web.shop.svc.cluster.local';

async function withServer(
  run: (server: ServerAddress, zone: Zone) => Promise<void>,
  tcp: Partial<TcpLimits> = {},
  options: Partial<DnsServerOptions> = {},
): Promise<void> {
  const zone = shopZone();
  const server = await startDnsServer({
    listeners: [{ address: '127.0.0.1', port: 0 }],
    zone,
    forwarder: null,
    logger: silentLogger,
    tcp,
    ...options,
  });
  const [address] = server.addresses;
  assert.ok(address);
  try {
    await run(address, zone);
  } finally {
    await server.close();
  }
}

function crowd(zone: Zone, count: number): void {
  zone.setService(service('crowd', { clusterIP: 'None' }));
  const endpoints = Array.from({ length: count }, (_, i) => ({ addresses: [`10.244.${i >> 8}.${i & 255}`] }));
  zone.setSlice(slice('crowd', 'a', endpoints));
}

describe('sizes of answers', () => {
  const cases: { what: string; edns: number | null; most: number }[] = [
    { what: 'without EDNS: 512 bytes', edns: null, most: 512 },
    { what: 'EDNS asks for less than 512: 512 bytes', edns: 100, most: 512 },
    { what: 'EDNS 1000', edns: 1000, most: 1000 },
    { what: 'EDNS 65535: bounded to what crosses every path', edns: 65535, most: 1232 },
  ];
  for (const { what, edns, most } of cases) {
    test(what, () =>
      withServer(async (server, zone) => {
        crowd(zone, 200);
        const options = edns === null ? {} : { edns: { udpSize: edns, version: 0, dnssecOk: false } };
        const bytes = await exchangeUdp(server, queryBytes('crowd.shop.svc.cluster.local A', options));
        assert.ok(bytes && bytes.length <= most && bytes.length > most - 16, `${bytes?.length} bytes`);
        const message = decodeMessage(bytes);
        assert.ok(message?.truncated);
        assert.ok(message.answers.length > 10, 'what fits is sent: some resolvers never ask again over TCP');
        assert.equal(message.edns?.udpSize, edns === null ? undefined : 1232);
        const whole = await ask(server, 'tcp', 'crowd.shop.svc.cluster.local A');
        assert.equal(whole.answers.length, 200);
        assert.ok(!whole.truncated);
      }),
    );
  }

  test('additional records that do not fit are left out without TC', () =>
    withServer(async (server, zone) => {
      zone.setService(service('wide', { clusterIP: 'None' }));
      const endpoints = Array.from({ length: 6 }, (_, i) => ({ addresses: [`10.244.9.${i}`] }));
      zone.setSlice(slice('wide', 'a', endpoints));
      const message = await ask(server, 'udp', '_sql._tcp.wide.shop.svc.cluster.local SRV');
      assert.equal(message.answers.length, 6);
      assert.ok(message.additionals.length < 6);
      assert.ok(!message.truncated);
    }));

  test('more addresses than a message holds: as many as fit, with TC', () =>
    withServer(async (server, zone) => {
      crowd(zone, 5000);
      const message = await ask(server, 'tcp', 'crowd.shop.svc.cluster.local A');
      assert.ok(message.truncated);
      assert.ok(message.answers.length > 4000);
    }));
});

describe('EDNS', () => {
  test('the bit DO is copied to the answer', () =>
    withServer(async (server) => {
      const message = await ask(server, 'udp', `${WEB} A`, { udpSize: 4096, version: 0, dnssecOk: true });
      assert.ok(message.edns?.dnssecOk);
    }));
  test('an EDNS version other than 0 is BADVERS', () =>
    withServer(async (server) => {
      const message = await ask(server, 'udp', `${WEB} A`, { udpSize: 4096, version: 1, dnssecOk: false });
      assert.equal(message.rcode, RCODE.BADVERS);
    }));
  test('a query without EDNS gets an answer without EDNS', () =>
    withServer(async (server) => {
      assert.equal((await ask(server, 'udp', `${WEB} A`)).edns, null);
    }));
});

test('concurrent queries for A and AAAA on one socket are both answered', () =>
  withServer(async (server) => {
    const socket = createSocket('udp4');
    const seen = new Map<number, number>();
    try {
      const both = new Promise<void>((resolve) => {
        socket.on('message', (bytes) => {
          const message = decodeMessage(bytes);
          assert.ok(message);
          seen.set(message.id, message.answers[0]?.type ?? 0);
          if (seen.size === 2) resolve();
        });
      });
      socket.send(queryBytes(`${WEB} A`, { id: 1 }), server.port, server.address);
      socket.send(queryBytes(`${WEB} AAAA`, { id: 2 }), server.port, server.address);
      await both;
    } finally {
      socket.close();
    }
    assert.deepEqual([seen.get(1), seen.get(2)], [TYPE.A, TYPE.AAAA]);
  }));

/** Resolves when a socket has been closed, by FIN or reset. */
function closed(socket: Socket): Promise<void> {
  socket.on('error', () => {});
  return new Promise((resolve) => socket.once('close', () => resolve()));
}

/** Sends queries on one connection from an address, and counts their answers. */
function flood(server: ServerAddress, localAddress: string, count: number, question = `${WEB} A`) {
  const socket = connect({ port: server.port, host: server.address, localAddress });
  const chunks: Buffer[] = [];
  socket.on('error', () => {});
  socket.on('data', (chunk) => chunks.push(chunk));
  socket.write(Buffer.concat(Array.from({ length: count }, (_, id) => frame(queryBytes(question, { id })))));
  return { answers: () => unframe(Buffer.concat(chunks)).length, close: () => socket.destroy() };
}

describe('TCP', () => {
  test('many queries on one connection, sent together and in single bytes', () =>
    withServer(async (server) => {
      const queries = Array.from({ length: 500 }, (_, id) => queryBytes(`${WEB} A`, { id }));
      const answers = await exchangeTcp(server, ...queries);
      assert.deepEqual(
        answers.map((bytes) => decodeMessage(bytes)?.id),
        queries.map((_, id) => id),
      );

      const socket = connect(server.port, server.address);
      const chunks: Buffer[] = [];
      socket.on('data', (chunk) => chunks.push(chunk));
      for (const byte of frame(queryBytes(`${WEB} A`))) {
        socket.write(Buffer.of(byte));
        await new Promise(setImmediate);
      }
      await once(socket, 'data');
      socket.destroy();
      assert.equal(unframe(Buffer.concat(chunks)).length, 1);
    }));

  test('an idle connection is closed', () =>
    withServer(
      async (server) => {
        const socket = connect(server.port, server.address);
        await closed(socket);
      },
      { idleMs: 50 },
    ));

  test('a client that sends a query byte by byte is disconnected', () =>
    withServer(
      async (server) => {
        const socket = connect(server.port, server.address);
        socket.on('error', () => {});
        const bytes = frame(queryBytes(`${WEB} A`));
        let at = 0;
        const drip = setInterval(() => socket.write(bytes.subarray(at, ++at)), 30);
        try {
          await closed(socket);
        } finally {
          clearInterval(drip);
        }
        assert.ok(at < bytes.length);
      },
      { messageMs: 150 },
    ));

  test('connections beyond the limit are closed, the others continue', () =>
    withServer(
      async (server) => {
        const kept: Socket[] = [];
        for (let i = 0; i < 3; i++) {
          const socket = connect(server.port, server.address);
          await once(socket, 'connect');
          kept.push(socket);
        }
        await assert.rejects(async () => {
          const extra = connect(server.port, server.address);
          await closed(extra);
          throw new Error('closed');
        });
        const [first] = kept;
        assert.ok(first);
        first.write(frame(queryBytes(`${WEB} A`)));
        await once(first, 'data');
        for (const socket of kept) socket.destroy();
      },
      { maxConnectionsPerClient: 3 },
    ));

  test('the server stops reading from a client that never reads', () =>
    withServer(
      async (server, zone) => {
        crowd(zone, 2000);
        const socket = connect(server.port, server.address);
        socket.on('error', () => {});
        socket.pause();
        const query = frame(queryBytes('crowd.shop.svc.cluster.local A'));
        let blocked = false;
        for (let i = 0; i < 5000 && !blocked; i++) {
          socket.write(query);
          if (i % 100 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
          blocked = socket.writableLength > 100_000;
        }
        assert.equal((await ask(server, 'udp', `${WEB} A`)).answers.length, 1, 'others are served');
        socket.destroy();
      },
      { maxUnsentBytes: 64 << 10 },
    ));

  test('the queries of one client over TCP beyond its share wait, and another client is answered', () =>
    withServer(
      async (server) => {
        const [one, two] = ['127.0.0.5', '127.0.0.5'].map((address) => flood(server, address, 200));
        const other = flood(server, '127.0.0.6', 20);
        await eventually(() => other.answers() === 20 && (one?.answers() ?? 0) + (two?.answers() ?? 0) >= 48);
        // A query over UDP is answered after those before it.
        await ask(server, 'udp', `${WEB} A`);
        // The two connections count, too.
        assert.equal((one?.answers() ?? 0) + (two?.answers() ?? 0), 48);
        for (const client of [one, two, other]) client?.close();
      },
      {},
      { share: { perSecond: 0.001, burst: 50 } },
    ));

  test('one client over TCP does not take all queries that may wait for an upstream', async () => {
    const asked: string[] = [];
    const forwarder: Forwarder = {
      resolve({ question }) {
        asked.push(question.name);
        return new Promise(() => {});
      },
      setUpstreams: () => {},
      offersRecursion: true,
      close: () => {},
    };
    await withServer(
      async (server) => {
        const one = flood(server, '127.0.0.5', 90, 'one.example.com A');
        await eventually(() => asked.length >= 10);
        const other = flood(server, '127.0.0.6', 5, 'other.example.com A');
        await eventually(() => asked.filter((name) => name.startsWith('other')).length === 5);
        assert.equal(asked.filter((name) => name.startsWith('one')).length, 10);
        one.close();
        other.close();
      },
      {},
      { forwarder, share: { maxWaiting: 10 } },
    );
  });

  test('a query of more than 4 KiB ends its connection before it is received', () =>
    withServer(async (server) => {
      const socket = connect(server.port, server.address);
      let received = 0;
      socket.on('data', (chunk) => {
        received += chunk.length;
      });
      const query = frame(queryBytes(`${WEB} A`));
      const long = Buffer.alloc(4098);
      long.writeUInt16BE(4097);
      socket.write(Buffer.concat([query, long.subarray(0, 100)]));
      await closed(socket);
      assert.ok(received <= 512, `${received} bytes`);
    }));

  test('large answers, and those of an upstream with many records, count as many queries', async () => {
    const record = { type: TYPE.A, class: CLASS_IN, ttl: 60, data: Buffer.of(192, 0, 2, 1) };
    const answers = Array.from({ length: 2000 }, () => ({ ...record, name: 'large.example.com' }));
    const answer = { ...emptyAnswer(RCODE.NOERROR), answers };
    let asked = 0;
    const forwarder: Forwarder = {
      resolve({ question }) {
        if (question.name.startsWith('cached')) return answer;
        asked++;
        return Promise.resolve(answer);
      },
      setUpstreams: () => {},
      offersRecursion: true,
      close: () => {},
    };
    await withServer(
      async (server) => {
        // An answer has 32 kB, 26 times what a query over UDP gets.
        const cached = flood(server, '127.0.0.5', 20, 'cached.example.com A');
        const other = flood(server, '127.0.0.6', 5);
        await eventually(() => other.answers() === 5 && cached.answers() === 3);
        await ask(server, 'udp', 'fresh.example.com A');
        await assert.rejects(ask(server, 'udp', 'fresh.example.com A'));
        assert.equal(asked, 1);
        for (const client of [cached, other]) client.close();
      },
      {},
      { forwarder, share: { perSecond: 0.001, burst: 60 } },
    );
  });

  test('a large query counts as many', () =>
    withServer(
      async (server) => {
        // Additional records of 11 bytes, the shortest there are.
        const large = Buffer.concat([queryBytes(`${WEB} A`), Buffer.alloc(11 * 180)]);
        large.writeUInt16BE(180, 10);
        for (let i = 0; i < 4; i++) assert.ok(await exchangeUdp(server, large));
        await assert.rejects(ask(server, 'udp', `${WEB} A`));
      },
      {},
      { share: { perSecond: 0.001, burst: 30 } },
    ));

  test('connections without DNS are closed', () =>
    withServer(async (server) => {
      const socket = connect(server.port, server.address);
      socket.on('error', () => {});
      socket.write(Buffer.of(0, 3, 1, 2, 3));
      await closed(socket);
    }));
});

describe('unusual messages', () => {
  const base = queryBytes(`${WEB} A`);
  const change = (edit: (bytes: Buffer) => Buffer | undefined) => {
    const copy = Buffer.from(base);
    return edit(copy) ?? copy;
  };
  const cases: { what: string; bytes: Buffer; rcode: number | null }[] = [
    { what: 'a response is never answered', bytes: change((b) => void b.set([0x81], 2)), rcode: null },
    { what: 'fewer bytes than a header', bytes: base.subarray(0, 11), rcode: null },
    { what: 'a header alone', bytes: base.subarray(0, 12), rcode: RCODE.FORMERR },
    { what: 'a question cut short', bytes: base.subarray(0, 20), rcode: RCODE.FORMERR },
    { what: 'no question', bytes: change((b) => void b.set([0], 5)), rcode: RCODE.FORMERR },
    { what: 'two questions', bytes: change((b) => void b.set([2], 5)), rcode: RCODE.FORMERR },
    { what: 'an unknown operation', bytes: change((b) => void b.set([0x29], 2)), rcode: RCODE.NOTIMP },
    {
      what: 'a name that points to itself',
      bytes: change((b) => void b.set([0xc0, 12], 12)),
      rcode: RCODE.FORMERR,
    },
    { what: 'a label of unknown kind', bytes: change((b) => void b.set([0x80], 12)), rcode: RCODE.FORMERR },
    {
      what: 'missing additional records',
      bytes: change((b) => void b.set([3], 11)),
      rcode: RCODE.FORMERR,
    },
    { what: 'another class', bytes: queryBytes(`${WEB} A`, { class: 3 }), rcode: RCODE.REFUSED },
    { what: 'bytes after the message', bytes: Buffer.concat([base, Buffer.alloc(9)]), rcode: RCODE.NOERROR },
  ];
  for (const { what, bytes, rcode } of cases) {
    test(what, () =>
      withServer(async (server) => {
        const answer = await exchangeUdp(server, bytes, rcode === null ? 200 : 5000);
        assert.equal(answer && decodeMessage(answer)?.rcode, rcode);
        if (answer) assert.equal(answer.readUInt16BE(0), 0x1234);
      }),
    );
  }
});

test('answers rotate among endpoints', async () => {
  let next = 0;
  const zone = shopZone({ random: () => (next++ % 4) / 4 });
  crowd(zone, 4);
  const firsts = new Set<string>();
  for (let i = 0; i < 4; i++) {
    const [first] = zone.lookup('crowd.shop.svc.cluster.local', TYPE.A)?.answers ?? [];
    firsts.add(String(first?.data));
  }
  assert.equal(firsts.size, 4);
});

test('an address in use, and one that the host does not have, are named in the error', () =>
  withServer(async (server) => {
    await assert.rejects(() => withServer(async () => {}, {}, { listeners: [server] }), {
      code: 'EADDRINUSE',
      message: new RegExp(`127.0.0.1 port ${server.port}`),
    });
    await assert.rejects(
      () => withServer(async () => {}, {}, { listeners: [{ address: '192.0.2.1', port: 0 }] }),
      {
        hint: /add the address/,
      },
    );
  }));

test('IPv6 listeners answer', () =>
  withServer(
    async (server) => {
      for (const transport of ['udp', 'tcp'] as const) {
        assert.equal((await ask(server, transport, `${WEB} AAAA`)).answers.length, 1);
      }
    },
    {},
    { listeners: [{ address: '::1', port: 0 }] },
  ));

test('the server uses sockets opened by the caller, for example in another namespace', async () => {
  const tcpFd = listenTcpIn(null, '127.0.0.1', 0);
  const port = localPort(tcpFd);
  const listener = { udpFd: bindUdpIn(null, '127.0.0.1', port), tcpFd, family: 'ipv4' } as const;
  await withServer(
    async (server) => {
      assert.equal(server.port, port);
      for (const transport of ['udp', 'tcp'] as const) {
        assert.equal((await ask(server, transport, `${WEB} A`)).answers.length, 1);
      }
    },
    {},
    { listeners: [listener] },
  );
});

test('a server that closes first answers the queries that wait for an upstream, over UDP and TCP', async () => {
  const answer = Promise.withResolvers<void>();
  const arrived = Promise.withResolvers<void>();
  let waiting = 0;
  const forwarder: Forwarder = {
    offersRecursion: true,
    async resolve() {
      if (++waiting === 2) arrived.resolve();
      await answer.promise;
      return { ...emptyAnswer(RCODE.NXDOMAIN), authoritative: false };
    },
    setUpstreams() {},
    close() {},
  };
  const server = await startDnsServer({
    listeners: [{ address: '127.0.0.1', port: 0 }],
    zone: shopZone(),
    forwarder,
    logger: silentLogger,
  });
  const [address] = server.addresses;
  assert.ok(address);
  const answers = (['udp', 'tcp'] as const).map((transport) => ask(address, transport, 'www.example.com A'));
  await arrived.promise;
  const closed = server.close();
  answer.resolve();
  for (const { rcode } of await Promise.all(answers)) assert.equal(rcode, RCODE.NXDOMAIN);
  await closed;
});
