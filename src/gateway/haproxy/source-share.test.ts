import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { httpMap, listener, row, table } from '../testing/maps.ts';
import { HAPROXY, type RunningProxy, SETTINGS, startMirror, startProxy } from './testing/running-proxy.ts';

const CLIENT_SHARE = 50;

describe('the share of one client', { skip: HAPROXY === null && 'HAProxy is not installed' }, () => {
  let proxy: RunningProxy;
  let mirror: Awaited<ReturnType<typeof startMirror>>;
  const sockets: Socket[] = [];
  before(async () => {
    proxy = await startProxy();
    mirror = await startMirror();
  });
  after(async () => {
    for (const socket of sockets) socket.destroy();
    await proxy?.stop();
    await mirror?.close();
  });

  function open(localAddress: string): Socket {
    const socket = connect({ port: proxy.port, host: '127.0.0.1', localAddress });
    sockets.push(socket);
    // A connection beyond the share is reset.
    socket.on('error', () => {});
    return socket;
  }
  /** Sends a request. Returns the first line of the answer; null: the connection was ended. */
  async function ask(socket: Socket): Promise<string | null> {
    socket.write('GET /a HTTP/1.1\r\nHost: a\r\n\r\n');
    return await new Promise((resolve) => {
      socket.once('data', (chunk: Buffer) => resolve(chunk.toString('latin1').split('\r\n')[0] ?? ''));
      socket.once('close', () => resolve(null));
    });
  }

  test('a client that keeps its connections open does not keep others out', async () => {
    const rendering = proxy.render(httpMap([listener('', [table('', [row('a', '/a', 'b/web:80')])])]), {
      settings: { ...SETTINGS, maxConnections: 4 * CLIENT_SHARE },
    });
    const endpoints = () => [{ address: '127.0.0.1', port: mirror.port }];
    assert.equal(await proxy.replace(rendering, endpoints), null);
    const held: Socket[] = [];
    for (let i = 0; i < CLIENT_SHARE; i++) held.push(open('127.0.0.2'));
    for (const socket of held) assert.equal(await ask(socket), 'HTTP/1.1 200 OK');
    assert.equal(await ask(open('127.0.0.2')), null, 'one connection more than its share');
    assert.equal(await ask(open('127.0.0.3')), 'HTTP/1.1 200 OK', 'another client');
  });
});
