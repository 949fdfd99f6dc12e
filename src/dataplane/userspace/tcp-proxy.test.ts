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
import { createTcpProxy } from './tcp-proxy.ts';

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
