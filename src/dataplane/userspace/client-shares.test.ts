import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { createEpoll } from '../../kernel/epoll.ts';
import { bindUdpIn, localPort } from '../../kernel/netns.ts';
import { systemClock } from '../../lib/clock.ts';
import { silentLogger } from '../../lib/log.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import { endpoint } from '../testing/service-map.ts';
import { createBalancer } from './balancer.ts';
import { createClientShares, descriptorLimits } from './client-shares.ts';
import { proxyLoopback } from './testing/loopback-proxy.ts';
import { createUdpProxy } from './udp-proxy.ts';

const GREEDY = '127.0.0.5';
const OTHER = '127.0.0.6';

test('the limits are parts of those of the process', () => {
  const limits = (text: string) =>
    descriptorLimits(`Limit  Soft Limit  Hard Limit  Units\nMax open files   ${text}`);
  assert.deepEqual(limits('20000 20000 files'), { perClient: 10_000, total: 17_500 });
  assert.deepEqual(limits('unlimited unlimited files'), { perClient: 1 << 19, total: 917_504 });
  assert.ok(descriptorLimits().perClient > 100);
});

test('a client takes its share, all clients theirs, and a refusal is reported once', () => {
  const refused: string[] = [];
  const { take, give } = createClientShares({ perClient: 4, total: 6 }, (client) => refused.push(client));
  assert.deepEqual([take('a', 2), take('a', 2), take('a', 2), take('a', 1)], [true, true, false, false]);
  assert.deepEqual([take('b', 2), take('c', 1)], [true, false]);
  give('a', 2);
  assert.deepEqual([take('c', 1), take('a', 1), take('b', 1)], [true, true, false]);
  assert.deepEqual(refused, ['a', 'c', 'b']);
});

test('TCP: a client above its share is reset, another is served, and it is served again later', async () => {
  const server = createServer((socket) => void socket.on('error', () => {}).write('hello'));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const shares = createClientShares({ perClient: 6, total: 100 }, () => {});
  const { proxy, at } = proxyLoopback((server.address() as AddressInfo).port, { shares });
  const open: Socket[] = [];
  const answer = async (localAddress: string): Promise<string> => {
    const socket = connect({ port: at, host: '127.0.0.1', localAddress });
    open.push(socket);
    try {
      return String((await once(socket, 'data'))[0]);
    } catch (error) {
      return (error as NodeJS.ErrnoException).code ?? '';
    }
  };
  try {
    const answers: string[] = [];
    for (let i = 0; i < 5; i++) answers.push(await answer(GREEDY));
    assert.deepEqual(answers, ['hello', 'hello', 'hello', 'ECONNRESET', 'ECONNRESET']);
    assert.equal(await answer(OTHER), 'hello');
    for (const socket of open) socket.destroy();
    await eventually(() => proxy.active === 0);
    assert.equal(await answer(GREEDY), 'hello');
  } finally {
    for (const socket of open) socket.destroy();
    proxy.close();
    server.close();
  }
});

test('UDP: a client above its share loses its own oldest flows, and another is answered', async () => {
  const echo = createSocket('udp4');
  echo.on('message', (bytes, { port, address }) => echo.send(bytes, port, address));
  echo.bind(0, '127.0.0.1');
  await once(echo, 'listening');
  const balancer = createBalancer({ clock: systemClock, random: () => 0 });
  const endpoints = [endpoint('127.0.0.1', echo.address().port)];
  balancer.configure({ endpoints, affinitySeconds: null, failover: false });
  const fd = bindUdpIn(null, '127.0.0.1', 0);
  const at = localPort(fd);
  const proxy = createUdpProxy({
    ...{ fd, family: 'ipv4', balancer, open: () => bindUdpIn(null, '127.0.0.1', 0), epoll: createEpoll() },
    ...{ clock: systemClock, logger: silentLogger },
    shares: createClientShares({ perClient: 20, total: 1000 }, () => {}),
  });
  const sockets = Array.from({ length: 31 }, () => createSocket('udp4'));
  const answers = sockets.map(() => 0);
  try {
    for (const [i, socket] of sockets.entries()) {
      socket.on('message', () => {
        answers[i] = (answers[i] ?? 0) + 1;
      });
      socket.bind(0, i < 30 ? GREEDY : OTHER);
      await once(socket, 'listening');
      socket.send('x', at, '127.0.0.1');
      await eventually(() => answers[i] === 1);
    }
    assert.equal(proxy.active, 21);
  } finally {
    for (const socket of sockets) socket.close();
    proxy.close();
    echo.close();
  }
});
