import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { libc } from '../../kernel/libc.ts';
import { openTcpIn } from '../../kernel/netns.ts';
import { SOL_SOCKET } from '../../kernel/socket-numbers.ts';
import { manualClock } from '../../lib/clock.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import type { ProxyFlowEvent } from './pool-proxy.ts';
import { longestDialMs } from './tcp-dialler.ts';
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

// asm-generic/socket.h, linux/tcp.h
const SO_KEEPALIVE = 9;
const IPPROTO_TCP = 6;
const TCP_NODELAY = 1;
const TCP_KEEPIDLE = 4;

function optionOf(fd: number, level: number, option: number): number {
  const value = new Uint8Array(4);
  assert.equal(libc().getsockopt(fd, level, option, value, Uint8Array.of(4, 0, 0, 0)), 0);
  return new DataView(value.buffer).getUint32(0, true);
}

const optionsOf = (fd: number) => ({
  sendsAtOnce: optionOf(fd, IPPROTO_TCP, TCP_NODELAY) === 1,
  keepaliveSeconds:
    optionOf(fd, SOL_SOCKET, SO_KEEPALIVE) === 0 ? null : optionOf(fd, IPPROTO_TCP, TCP_KEEPIDLE),
});

test('a connection to an endpoint sends small writes at once, and gets keepalive if it lives on', async () => {
  const server = createServer((socket) => void socket.on('error', () => {}).write('hello'));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const clock = manualClock();
  const opened: number[] = [];
  const others: number[] = [];
  const open = () => {
    const fd = openTcpIn(null, 'ipv4');
    opened.push(fd);
    return fd;
  };
  const { proxy, at } = proxyLoopback((server.address() as AddressInfo).port, { clock, open });
  const client = async () => {
    const socket = connect(at, '127.0.0.1').on('error', () => {});
    await once(socket, 'data');
    return socket;
  };
  try {
    const brief = await client();
    await client();
    const [closed = -1, kept = -1] = opened;
    assert.deepEqual(optionsOf(kept), { sendsAtOnce: true, keepaliveSeconds: null });
    brief.resetAndDestroy();
    await eventually(() => proxy.active === 1);
    // The kernel gives the lowest free number.
    while (!others.includes(closed) && others.length < 20) others.push(openTcpIn(null, 'ipv4'));
    for (const [ms, keepaliveSeconds] of [
      [999, null],
      [1, 60],
    ] as const) {
      clock.advance(ms);
      assert.deepEqual(optionsOf(kept), { sendsAtOnce: true, keepaliveSeconds }, `${ms} ms later`);
    }
    assert.deepEqual(optionsOf(closed), { sendsAtOnce: false, keepaliveSeconds: null }, 'in use again');
  } finally {
    for (const fd of others) libc().close(fd);
    proxy.close();
    server.close();
  }
});

test('which events of a connection are reported', async () => {
  /** The ports of the server's peers: the proxy's own ends. */
  const ends: (number | undefined)[] = [];
  const server = createServer((socket) => {
    ends.push(socket.remotePort);
    socket.on('error', () => {}).write('hello');
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const rows = [
    ['watched', { before: true, after: true, admitted: true }, ['established', 'closed']],
    ['watched later', { before: false, after: true, admitted: true }, ['closed']],
    ['not watched', { before: false, after: false, admitted: true }, []],
    ['denied, and not watched', { before: false, after: false, admitted: false }, ['denied']],
  ] as const;
  for (const [name, { before, after, admitted }, kinds] of rows) {
    const events: ProxyFlowEvent[] = [];
    let watched: boolean = before;
    const { proxy, at } = proxyLoopback(port, {
      isWatched: () => watched,
      admits: () => admitted,
      onFlow: (event) => events.push(event),
    });
    const socket = connect(at, '127.0.0.1').on('error', () => {});
    await new Promise((resolve) => socket.once(admitted ? 'data' : 'close', resolve));
    watched = after;
    socket.destroy();
    try {
      await eventually(() => proxy.active === 0);
    } finally {
      proxy.close();
    }
    const end = admitted ? ends.at(-1) : undefined;
    assert.deepEqual(
      events.map((event) => [event.kind, event.proxy?.port]),
      kinds.map((kind) => [kind, end]),
      name,
    );
  }
  server.close();
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
