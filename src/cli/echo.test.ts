import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { join } from 'node:path';
import { test } from 'node:test';
import { freePort } from '../lib/testing/free-ports.ts';

test('a test server says where it listens, answers HTTP and UDP, and ends when it is told to', async () => {
  const port = await freePort();
  const program = join(import.meta.dirname, 'fairlead.ts');
  const child = spawn(process.execPath, [program, 'echo', '--port', String(port)], {
    stdio: ['ignore', 'pipe', 'inherit'],
    timeout: 30_000,
  });
  const [line] = await once(child.stdout, 'data');
  assert.match(String(line), new RegExp(`HTTP on port ${port}, UDP on port ${port}`));
  const answer = await fetch(`http://127.0.0.1:${port}/`);
  assert.match(await answer.text(), /^hello from .* \(you are 127\.0\.0\.1\)\n$/);
  const socket = createSocket('udp4');
  socket.send('?', port, '127.0.0.1');
  const [datagram] = await once(socket, 'message');
  assert.match(String(datagram), / 127\.0\.0\.1:[0-9]+\n$/);
  socket.close();
  child.kill('SIGTERM');
  assert.deepEqual(await once(child, 'close'), [0, null]);
});
