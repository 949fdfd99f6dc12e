import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { test } from 'node:test';
import { eventually } from '../lib/testing/eventually.ts';
import { boundClients } from './client-bounds.ts';

test('a client with many silent connections leaves room for others', async () => {
  const server = createServer((_, response) => response.end('ok'));
  boundClients(server, { connections: 20, perClient: 5 });
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
