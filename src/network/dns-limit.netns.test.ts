import assert from 'node:assert/strict';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket as TcpSocket } from 'node:net';
import { afterEach, beforeEach, test } from 'node:test';
import { pause, systemClock } from '../lib/clock.ts';
import { type DnsLimit, openDnsLimit, readLimitedClients, removeDnsLimit } from './dns-limit.ts';

const QUERIES = 100;
/** So low that no token is added while the test runs. */
const BURST = 10;
const SLOW = { perSecond: 1, burst: BURST };

let limit: DnsLimit;
const opened: Socket[] = [];

beforeEach(() => {
  limit = openDnsLimit({});
});
afterEach(() => {
  for (const socket of opened.splice(0)) socket.close();
  limit.close();
  removeDnsLimit();
});

async function open(address: string): Promise<Socket> {
  const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
  opened.push(socket);
  socket.bind(0, address);
  await once(socket, 'listening');
  return socket;
}

/** Opens a server; `count` returns the datagrams of a client that have arrived. */
async function serve(address: string) {
  const arrived = new Map<string, number>();
  const socket = await open(address);
  socket.on('message', (_, { address: from }) => arrived.set(from, (arrived.get(from) ?? 0) + 1));
  return { port: socket.address().port, count: (from: string) => arrived.get(from) ?? 0 };
}

async function send(from: string, to: string, port: number): Promise<void> {
  const socket = await open(from);
  for (let i = 0; i < QUERIES; i++)
    await new Promise<void>((resolve) => socket.send('query', port, to, () => resolve()));
}

async function eventually(isTrue: () => boolean): Promise<void> {
  for (let i = 0; i < 200 && !isTrue(); i++) await pause(systemClock, 25);
}

for (const [family, server, client] of [
  ['IPv4', '127.0.0.1', '127.0.0.5'],
  ['IPv6', '::1', '::1'],
] as const) {
  test(`${family}: a client's queries above its rate do not reach the socket, and are counted`, async () => {
    const { port, count } = await serve(server);
    limit.write({ servers: [server], port, perClient: SLOW, connectionsPerClient: SLOW, maxClients: 16 });
    await send(client, server, port);
    await eventually(() => count(client) + limit.dropped() >= QUERIES);
    assert.equal(count(client) + limit.dropped(), QUERIES);
    assert.ok(count(client) >= BURST && limit.dropped() > 0, `${count(client)} arrived`);
    const { packets, servers } = readLimitedClients();
    assert.deepEqual([...packets], [[client, limit.dropped()]]);
    assert.deepEqual([...servers], [server]);
    assert.deepEqual(await limit.check(), [], 'the kernel shows the rules as they were written');
  });
}

test('each client has a rate of its own; other ports and addresses have none', async () => {
  const { port, count } = await serve('127.0.0.1');
  const other = await serve('127.0.0.1');
  limit.write({
    servers: ['127.0.0.1'],
    port,
    perClient: { perSecond: 1, burst: QUERIES },
    connectionsPerClient: SLOW,
    maxClients: 16,
  });
  await send('127.0.0.5', '127.0.0.1', port);
  await send('127.0.0.5', '127.0.0.1', port);
  await send('127.0.0.6', '127.0.0.1', port);
  await send('127.0.0.5', '127.0.0.1', other.port);
  await eventually(() => count('127.0.0.6') >= QUERIES && other.count('127.0.0.5') >= QUERIES);
  assert.equal(count('127.0.0.6'), QUERIES);
  assert.equal(other.count('127.0.0.5'), QUERIES);
  assert.ok(limit.dropped() > 0);
});

test('when as many clients are remembered as may be, the kernel drops nothing of further ones', async () => {
  const { port, count } = await serve('127.0.0.1');
  limit.write({ servers: ['127.0.0.1'], port, perClient: SLOW, connectionsPerClient: SLOW, maxClients: 2 });
  for (const client of ['127.0.0.5', '127.0.0.6', '127.0.0.7']) await send(client, '127.0.0.1', port);
  await eventually(() => count('127.0.0.7') >= QUERIES);
  assert.equal(count('127.0.0.7'), QUERIES);
  assert.ok(limit.dropped() > 0);
});

test('the count goes on when the addresses change', async () => {
  const { port, count } = await serve('127.0.0.1');
  const limits = { port, perClient: SLOW, connectionsPerClient: SLOW, maxClients: 16 };
  limit.write({ ...limits, servers: ['127.0.0.1'] });
  await send('127.0.0.5', '127.0.0.1', port);
  await eventually(() => count('127.0.0.5') + limit.dropped() >= QUERIES);
  const before = limit.dropped();
  assert.ok(before > 0);
  limit.write({ ...limits, servers: ['127.0.0.1', '127.0.0.2'] });
  assert.equal(limit.dropped(), before);
});

test('a client that connects without end is not accepted beyond its rate, and others are', async () => {
  const accepted = new Map<string, number>();
  const server = createServer((socket) => {
    const from = socket.remoteAddress ?? '';
    accepted.set(from, (accepted.get(from) ?? 0) + 1);
    socket.on('error', () => {}).resume();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  limit.write({
    servers: ['127.0.0.1'],
    port,
    perClient: SLOW,
    connectionsPerClient: SLOW,
    maxClients: 16,
  });
  const sockets: TcpSocket[] = [];
  const dial = (localAddress: string) => {
    const socket = connect({ host: '127.0.0.1', port, localAddress }).on('error', () => {});
    sockets.push(socket);
    return socket;
  };
  try {
    for (let i = 0; i < QUERIES; i++) dial('127.0.0.5');
    await eventually(() => (accepted.get('127.0.0.5') ?? 0) + limit.dropped() >= QUERIES);
    await once(dial('127.0.0.6'), 'connect');
    const count = accepted.get('127.0.0.5') ?? 0;
    assert.ok(count >= BURST && count < QUERIES / 2, `${count} accepted`);
    assert.ok(limit.dropped() > 0);
  } finally {
    for (const socket of sockets) socket.destroy();
    server.close();
  }
});
