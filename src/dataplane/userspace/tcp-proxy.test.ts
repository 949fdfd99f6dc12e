import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { test } from 'node:test';
import { listenTcpIn, localPort, openTcpIn } from '../../kernel/netns.ts';
import { systemClock } from '../../lib/clock.ts';
import { silentLogger } from '../../lib/log.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import { endpoint } from '../testing/service-map.ts';
import { createBalancer } from './balancer.ts';
import { createTcpProxy, longestDialMs } from './tcp-proxy.ts';

const CLIENTS = 20;

test('connections that arrived before the listener closes are served, although none was accepted yet', async () => {
  const server = createServer((socket) => socket.end('hello')).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const balancer = createBalancer({ clock: systemClock, random: () => 0 });
  const { port } = server.address() as AddressInfo;
  balancer.configure({ endpoints: [endpoint('127.0.0.1', port)], affinitySeconds: null, failover: false });
  const fd = listenTcpIn(null, '127.0.0.1', 0);
  const at = localPort(fd);
  const proxy = createTcpProxy({
    fd,
    family: 'ipv4',
    balancer,
    open: () => openTcpIn(null, 'ipv4'),
    clock: systemClock,
    logger: silentLogger,
  });
  try {
    const answers = Array.from({ length: CLIENTS }, async () => {
      const chunks = await connect(at, '127.0.0.1').setEncoding('utf8').toArray();
      return chunks.join('');
    });
    // The sockets connect at the next tick, and the kernel completes connections over loopback at once.
    await new Promise<void>((resolve) => process.nextTick(resolve));
    await proxy.closeListener();
    assert.equal(proxy.listening, false);
    assert.deepEqual(await Promise.all(answers), Array(CLIENTS).fill('hello'));
    await eventually(() => proxy.active === 0);
  } finally {
    proxy.close();
    server.close();
  }
});

test('how long a client waits before it is reset', () => {
  const rows = [
    [0, 0],
    // 250, 500, 1000 and 2000 ms, whichever endpoint is tried.
    [1, 3750],
    [2, 3750],
    // All three, and once more.
    [3, 250 + 500 + 1000 + 3 * 2000],
    [5, 250 + 500 + 1000 + 2 * 2000],
    [100, 250 + 500 + 1000 + 13 * 2000],
  ] as const;
  for (const [endpoints, ms] of rows) assert.equal(longestDialMs(endpoints), ms, `${endpoints} endpoints`);
});
