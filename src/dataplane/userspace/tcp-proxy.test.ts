import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { eventually } from '../../lib/testing/eventually.ts';
import { longestDialMs } from './tcp-proxy.ts';
import { proxyLoopback } from './testing/loopback-proxy.ts';

const CLIENTS = 20;
/** Node.js itself uses about 25. */
const DESCRIPTORS = 60;

test('connections that arrived before the listener closes are served, although none was accepted yet', async () => {
  const server = createServer((socket) => socket.end('hello')).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { proxy, at } = proxyLoopback((server.address() as AddressInfo).port);
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

test('a process without free descriptors serves the clients that it has, and others later', async () => {
  const open = new Set<Socket>();
  const server = createServer((socket) => {
    open.add(socket);
    socket.on('error', () => {}).write('hello');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const script = join(import.meta.dirname, 'testing/limited-proxy.ts');
  const command = `ulimit -n ${DESCRIPTORS}; exec "$0" --disable-warning=ExperimentalWarning "$@"`;
  const { port } = server.address() as AddressInfo;
  const proxy = spawn('sh', ['-c', command, process.execPath, script, String(port)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  try {
    const [line] = await once(proxy.stdout, 'data');
    const client = () => {
      const socket = connect(Number(line), '127.0.0.1');
      const end = Promise.race([once(socket, 'data'), once(socket, 'close')]).catch(() => {});
      socket.on('error', () => {});
      return { socket, end };
    };
    const crowd = Array.from({ length: 2 * DESCRIPTORS }, client);
    await eventually(() => open.size >= 4);
    const [first] = crowd;
    await first?.end;
    // Each is served when there is room for it, or reset, and none is forgotten.
    for (const { socket, end } of crowd) {
      await end;
      socket.destroy();
    }
    const last = client();
    assert.equal(String((await once(last.socket, 'data'))[0]), 'hello');
    last.socket.destroy();
  } finally {
    proxy.stdin.end();
    for (const socket of open) socket.destroy();
    server.close();
    await once(proxy, 'exit');
  }
});
