import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { closeSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { bindUdpIn, listenTcpIn, localPort } from './netns.ts';
import { takePassedSockets } from './passed-sockets.ts';

const module = join(import.meta.dirname, 'passed-sockets.ts');
const SCRIPT = `
const { takePassedSockets } = await import(${JSON.stringify(module)});
const sockets = takePassedSockets();
console.log(JSON.stringify({ sockets, left: Object.keys(process.env).filter((name) => name.startsWith('LISTEN_')) }));
`;

test('a process describes the sockets that it was started with, and leaves no variable for its children', () => {
  const fds = [bindUdpIn(null, '127.0.0.1', 0), listenTcpIn(null, '::1', 0)];
  const ports = fds.map(localPort);
  try {
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', SCRIPT], {
      // Descriptors that are not sockets are left out.
      stdio: ['ignore', 'pipe', 'pipe', ...fds, 'ignore'],
      env: { ...process.env, LISTEN_FDS: '3', LISTEN_FDNAMES: 'a:b:c' },
      encoding: 'utf8',
    });
    assert.notEqual(stdout, '', stderr);
    assert.deepEqual(JSON.parse(stdout), {
      sockets: [
        { fd: 3, transport: 'udp', family: 'ipv4', address: '127.0.0.1', port: ports[0] },
        { fd: 4, transport: 'tcp', family: 'ipv6', address: '::1', port: ports[1] },
      ],
      left: [],
    });
  } finally {
    for (const fd of fds) closeSync(fd);
  }
});

for (const environment of [
  {},
  { LISTEN_FDS: '0' },
  { LISTEN_FDS: 'x' },
  { LISTEN_FDS: '2', LISTEN_PID: '1' },
]) {
  test(`no sockets are taken with ${JSON.stringify(environment)}`, () =>
    assert.deepEqual(takePassedSockets({ ...environment }, 4711), []));
}
