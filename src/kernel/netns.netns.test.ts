import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readlinkSync } from 'node:fs';
import { connect, createServer, Socket } from 'node:net';
import { afterEach, test } from 'node:test';
import {
  createNetns,
  inNetns,
  inNewNamespaces,
  listenTcpIn,
  listNetns,
  localPort,
  netnsExists,
  openTcpIn,
  removeNetns,
  spawnInNetns,
  spawnInNewNamespaces,
} from './netns.ts';

const made: string[] = [];

function namespace(): string {
  const name = `flt-${randomBytes(3).toString('hex')}`;
  createNetns(name);
  made.push(name);
  execFileSync('ip', ['-n', name, 'link', 'set', 'lo', 'up']);
  return name;
}

afterEach(() => {
  for (const name of made.splice(0)) removeNetns(name);
});

const here = () => readlinkSync('/proc/thread-self/ns/net');

test('a namespace can be created, is visible to ip, and can be removed', () => {
  const name = namespace();
  assert.match(execFileSync('ip', ['netns', 'list'], { encoding: 'utf8' }), new RegExp(name));
  assert.ok(netnsExists(name));
  assert.throws(() => createNetns(name), { code: 'EEXIST' });
  assert.equal(removeNetns(name), true);
  assert.equal(removeNetns(name), false);
  assert.ok(!listNetns().includes(name));
});

test('work runs inside the namespace, and the thread returns afterwards, even after an error', () => {
  const name = namespace();
  const before = here();
  const inside = inNetns(name, here);
  assert.notEqual(inside, before);
  assert.equal(here(), before);
  assert.throws(() =>
    inNetns(name, () => {
      throw new Error('inside');
    }),
  );
  assert.equal(here(), before);
  assert.throws(() => inNewNamespaces(['net', 'ipc', 'uts'], () => Promise.resolve()), TypeError);
  assert.equal(here(), before);
  assert.throws(() => inNetns('flt-none', here), { code: 'ENOENT' });
});

test('a child process starts inside the namespace', async () => {
  const name = namespace();
  const child = spawnInNetns(name, 'readlink', ['/proc/self/ns/net'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [data] = child.stdout ? await once(child.stdout, 'data') : [];
  assert.equal(String(data).trim(), inNetns(name, here));
});

test('a pause process has separate namespaces', async () => {
  const child = spawnInNewNamespaces('sleep', ['30'], { stdio: 'ignore' });
  try {
    assert.ok(child.pid);
    for (const kind of ['net', 'ipc', 'uts']) {
      assert.notEqual(
        readlinkSync(`/proc/${child.pid}/ns/${kind}`),
        readlinkSync(`/proc/self/ns/${kind}`),
        kind,
      );
    }
  } finally {
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
});

test('a server listens inside a namespace and a socket connects from there', async () => {
  const name = namespace();
  const fd = listenTcpIn(name, '127.0.0.1', 0);
  const port = localPort(fd);
  const server = createServer((socket) => socket.end('inside'));
  server.listen({ fd });
  await once(server, 'listening');
  try {
    const outside = connect(port, '127.0.0.1');
    const [error] = await once(outside, 'error');
    assert.equal(error.code, 'ECONNREFUSED');
    const inside = new Socket({ fd: openTcpIn(name, 'ipv4') });
    inside.connect(port, '127.0.0.1');
    const [data] = await once(inside, 'data');
    assert.equal(String(data), 'inside');
    inside.destroy();
  } finally {
    server.close();
  }
});

test('an address in use is refused, naming the address', () => {
  const name = namespace();
  const fd = listenTcpIn(name, '127.0.0.1', 0);
  assert.throws(() => listenTcpIn(name, '127.0.0.1', localPort(fd)), {
    code: 'EADDRINUSE',
    message: /listen on 127\.0\.0\.1 port \d+: EADDRINUSE/,
  });
});
