import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { eventually } from '../lib/testing/eventually.ts';
import { createEpoll, READY } from './epoll.ts';
import { loadKoffi } from './koffi.ts';
import { listenTcpIn, localPort, openTcpIn, socketAddress } from './netns.ts';
import { createStreamRelay, type StreamRelay } from './stream-relay.ts';
import { acceptStream, awaitConnection, connectStream, send } from './stream-socket.ts';

const LOOPBACK = '127.0.0.1';
const LARGE = 32 << 20;

let server: Server;
let serve: (socket: Socket) => void;
let listener: number;
const epoll = createEpoll();
const relays: StreamRelay[] = [];
let closed = 0;

before(async () => {
  server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => {});
    serve(socket);
  }).listen(0, LOOPBACK);
  await once(server, 'listening');
  const to = socketAddress(LOOPBACK, (server.address() as AddressInfo).port);
  listener = listenTcpIn(null, LOOPBACK, 0);
  epoll.watch(listener, READY.readable, () => {
    const accepted = acceptStream(listener);
    if (typeof accepted === 'string') return;
    const fd = openTcpIn(null, 'ipv4');
    const relay = createStreamRelay(epoll, accepted.fd, fd, () => closed++);
    relays.push(relay);
    if (connectStream(fd, to) === 'connected') relay.start();
    else awaitConnection(epoll, fd, to, () => relay.start());
  });
});
after(() => {
  for (const relay of relays) relay.reset();
  epoll.forget(listener);
  server.close();
});

function client(): Socket {
  closed = 0;
  const socket = connect({ port: localPort(listener), host: LOOPBACK, allowHalfOpen: true });
  socket.on('error', () => {});
  return socket;
}

/** Reads until the end; an iterator would then destroy the socket, which may have more to send. */
async function readAll(socket: Socket): Promise<Buffer> {
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(chunk));
  await once(socket, 'end');
  return Buffer.concat(chunks);
}

/** Resolves to the code of the socket's error; null: it ended without one. */
const endOf = (socket: Socket): Promise<string | null> =>
  new Promise((resolve) => {
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? ''));
    socket.once('end', () => resolve(null));
  });

test('a large answer to a client that reads late arrives whole, although the server has ended', async () => {
  const sent = randomBytes(LARGE);
  serve = (socket) => void socket.resume().end(sent);
  const one = client();
  await new Promise((resolve) => setTimeout(resolve, 100));
  one.end();
  assert.ok((await readAll(one)).equals(sent));
  await eventually(() => closed === 1);
});

test('both sides send more than fits into buffers, and both receive it unchanged', async () => {
  const [there, back] = [randomBytes(LARGE), randomBytes(LARGE)];
  let heard: Promise<Buffer> | undefined;
  serve = (socket) => {
    heard = readAll(socket);
    socket.end(back);
  };
  const one = client();
  one.end(there);
  assert.ok((await readAll(one)).equals(back));
  assert.ok((await heard)?.equals(there));
  await eventually(() => closed === 1);
});

test('what a server sends before it resets the connection arrives before the reset', async () => {
  serve = (socket) => {
    socket.write('last words', () => setTimeout(() => socket.resetAndDestroy(), 50));
  };
  const one = client();
  let heard = '';
  one.on('data', (data) => {
    heard += String(data);
  });
  assert.equal(await endOf(one), 'ECONNRESET');
  assert.equal(heard, 'last words');
  await eventually(() => closed === 1);
});

test('a reset reaches the other side also while bytes to it wait', async () => {
  let waiting: Socket | undefined;
  serve = (socket) => {
    waiting = socket.pause();
  };
  const one = client();
  one.write(Buffer.alloc(LARGE));
  await eventually(() => waiting !== undefined && one.bytesWritten > 0);
  one.resetAndDestroy();
  await eventually(() => closed === 1);
  waiting?.resume();
  if (waiting) assert.equal(await endOf(waiting), 'ECONNRESET');
});

test('what a client sends right after urgent data arrives', async () => {
  const MSG_OOB = 1;
  const sendFlagged = loadKoffi()
    .load(null)
    .func('long send(int fd, const uint8_t *data, size_t length, int flags)');
  let heard = '';
  serve = (socket) =>
    socket.on('data', (data) => {
      heard += String(data);
    });
  const fd = openTcpIn(null, 'ipv4');
  try {
    connectStream(fd, socketAddress(LOOPBACK, localPort(listener)));
    send(fd, Buffer.from('begin '), 6);
    await eventually(() => heard === 'begin ');
    // The last byte is urgent: it is not part of the stream. All of it is there before the relay reads.
    sendFlagged(fd, Buffer.from('before!'), 7, MSG_OOB);
    send(fd, Buffer.from(' after'), 6);
    await eventually(() => heard === 'begin before after');
  } finally {
    epoll.close(fd);
  }
});

test('a half-closed connection that is reset is closed', async () => {
  let open: Socket | undefined;
  serve = (socket) => {
    open = socket;
    socket.resume();
  };
  const one = client();
  one.end('request');
  await eventually(() => open?.readableEnded ?? false);
  open?.resetAndDestroy();
  assert.equal(await endOf(one.resume()), 'ECONNRESET');
  await eventually(() => closed === 1);
});

test('reset() resets both sides, once', async () => {
  serve = (socket) => void socket.write('hello');
  const one = client();
  await once(one, 'data');
  const relay = relays.at(-1);
  relay?.reset();
  relay?.reset();
  assert.equal(await endOf(one), 'ECONNRESET');
  assert.equal(closed, 1);
});
