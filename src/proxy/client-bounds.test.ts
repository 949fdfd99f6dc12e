import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { test } from 'node:test';
import { eventually } from '../lib/testing/eventually.ts';
import { boundClients } from './client-bounds.ts';

test('a client with many silent connections leaves room for others', async () => {
  const server = createServer((_, response) => response.end('ok'));
  boundClients(server, { connections: 20, perClient: 5, perSecond: 1000, burst: 1000 });
  server.listen(0, '0.0.0.0');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const open = new Set<Socket>();
  const dial = (localAddress: string) => {
    const socket = connect({ host: '127.0.0.1', port, localAddress });
    open.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => open.delete(socket));
    return socket;
  };
  try {
    for (let i = 0; i < 100; i++) dial('127.0.0.2');
    await eventually(() => open.size === 5);
    const other = dial('127.0.0.3');
    other.write('GET / HTTP/1.0\r\n\r\n');
    const [answer] = (await once(other, 'data')) as [Buffer];
    assert.match(answer.toString(), /^HTTP\/1.1 200/);
    await eventually(() => open.size === 5);
    for (let client = 10; client < 20; client++) for (let i = 0; i < 5; i++) dial(`127.0.0.${client}`);
    await eventually(() => open.size === 20);
    for (const socket of open) socket.destroy();
    await eventually(() => open.size === 0);
    const again = dial('127.0.0.2');
    again.write('GET / HTTP/1.0\r\n\r\n');
    await once(again, 'data');
  } finally {
    for (const socket of open) socket.destroy();
    server.close();
  }
});

test('a client that connects without end is refused, until its share has grown again', async () => {
  let time = 0;
  const server = createServer((_, response) => response.end('ok'));
  boundClients(server, { connections: 20, perClient: 20, perSecond: 10, burst: 5 }, () => time);
  server.listen(0, '0.0.0.0');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const served = async (localAddress: string): Promise<number> => {
    let answers = 0;
    for (let i = 0; i < 20; i++) {
      const socket = connect({ host: '127.0.0.1', port, localAddress });
      socket.on('error', () => {});
      socket.once('data', () => answers++);
      socket.end('GET / HTTP/1.0\r\n\r\n');
      // A reset is an error, which `once` would throw.
      await new Promise((resolve) => socket.once('close', resolve));
    }
    return answers;
  };
  try {
    assert.deepEqual([await served('127.0.0.2'), await served('127.0.0.3')], [5, 5]);
    time += 300;
    assert.equal(await served('127.0.0.2'), 3);
  } finally {
    server.close();
  }
});
