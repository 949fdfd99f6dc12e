import assert from 'node:assert/strict';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { test } from 'node:test';
import { startDatagramServer } from './datagram-server.ts';
import { libc } from './libc.ts';
import { bindUdpIn, localPort, socketAddress } from './netns.ts';

const FAMILIES = [
  { address: '127.0.0.1', type: 'udp4' },
  { address: '::1', type: 'udp6' },
] as const;

/** Runs a server with the given answers, and a client. */
async function withServer(
  { address, type }: (typeof FAMILIES)[number],
  answer: (request: string) => Uint8Array | null | Promise<Uint8Array | null>,
  use: (client: Socket, port: number) => Promise<void>,
): Promise<void> {
  const fd = bindUdpIn(null, address, 0);
  const port = localPort(fd);
  const server = startDatagramServer({
    fd,
    maxRequestBytes: 100,
    maxAnswerBytes: 100,
    receiveBufferBytes: 1 << 20,
    answer: (request) => answer(request.toString()),
    onError: (error) => assert.fail(error),
  });
  const client = createSocket(type);
  try {
    client.bind(0, address);
    await once(client, 'listening');
    client.setRecvBufferSize(1 << 20);
    await use(client, port);
  } finally {
    client.close();
    server.close();
    server.close();
  }
}

const text = (value: string) => Buffer.from(value);

/** Collects the given number of answers. */
function answers(client: Socket, count: number): Promise<string[]> {
  return new Promise((resolve) => {
    const found: string[] = [];
    client.on('message', (bytes) => {
      found.push(bytes.toString());
      if (found.length === count) resolve(found.sort());
    });
  });
}

for (const family of FAMILIES) {
  test(`${family.type}: all requests of a burst are answered`, () =>
    withServer(
      family,
      (request) => text(`${request}!`),
      async (client, port) => {
        const sent = Array.from({ length: 500 }, (_, i) => `question ${i}`);
        const got = answers(client, sent.length);
        for (const one of sent) client.send(one, port, family.address);
        assert.deepEqual(await got, sent.map((one) => `${one}!`).sort());
      },
    ));

  test(`${family.type}: late answers reach the right client, even after requests of other clients`, () =>
    withServer(
      family,
      async (request) => {
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 20));
        return text(request);
      },
      async (client, port) => {
        const second = createSocket(family.type);
        try {
          const got = [answers(client, 50), answers(second, 50)];
          for (let i = 0; i < 50; i++) {
            client.send(`first ${i}`, port, family.address);
            second.send(`second ${i}`, port, family.address);
          }
          const [first, other] = await Promise.all(got);
          assert.ok(first?.every((one) => one.startsWith('first ')));
          assert.ok(other?.every((one) => one.startsWith('second ')));
        } finally {
          second.close();
        }
      },
    ));

  test(`${family.type}: requests that are too long or unanswered do not affect others`, () =>
    withServer(
      family,
      (request) =>
        request === 'long answer' ? Buffer.alloc(101) : request === 'silence' ? null : text(request),
      async (client, port) => {
        const got = answers(client, 2);
        for (const one of ['x'.repeat(101), 'long answer', 'silence', 'x'.repeat(100), ''])
          client.send(one, port, family.address);
        assert.deepEqual(await got, ['', 'x'.repeat(100)]);
      },
    ));

  test(`${family.type}: a server that finishes answers what has arrived, and new requests are rejected`, async () => {
    const fd = bindUdpIn(null, family.address, 0);
    const port = localPort(fd);
    const release = Promise.withResolvers<void>();
    const server = startDatagramServer({
      fd,
      maxRequestBytes: 100,
      maxAnswerBytes: 100,
      receiveBufferBytes: 1 << 20,
      answer: async (request) => {
        const copy = text(request.toString());
        await release.promise;
        return copy;
      },
      onError: (error) => assert.fail(error),
    });
    const asker = bindUdpIn(null, family.address, 0);
    const [client, late] = [createSocket(family.type), createSocket(family.type)];
    try {
      const sent = Array.from({ length: 200 }, (_, i) => `${i}`);
      const place = socketAddress(family.address, port);
      assert.equal(libc().connect(asker, place, place.length), 0);
      for (const one of sent) libc().send(asker, text(one), one.length, 0);
      // The server has not read them: it gets its turn after this one.
      const finished = server.finish(false);
      client.bind({ fd: asker });
      client.setRecvBufferSize(1 << 20);
      const got = answers(client, sent.length);
      late.connect(port, family.address);
      await once(late, 'connect');
      const rejected = once(late, 'message').catch((error: NodeJS.ErrnoException) => error.code);
      late.send('late');
      assert.equal(await rejected, 'ECONNREFUSED');
      release.resolve();
      assert.deepEqual(await got, sent.sort());
      await finished;
    } finally {
      client.close();
      late.close();
      server.close();
    }
  });
}
