import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, before, beforeEach, describe, test } from 'node:test';
import { forward, httpMap, listener, row, table } from '../testing/maps.ts';
import { HAPROXY, type RunningProxy, sendRaw, startMirror, startProxy } from './testing/running-proxy.ts';

/**
 * Requests that servers read in different ways. The backend must see at most the request that was decided: none with a second
 * request in its body, and none for /admin, which no route has.
 */
const REQUESTS: Readonly<Record<string, string>> = {
  'CL.TE':
    'POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 37\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n',
  'TE.CL':
    'POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n20\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n\r\n0\r\n\r\n',
  'TE.TE':
    'POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n',
  'a space before the colon':
    'POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n',
  'a tab in Transfer-Encoding':
    'POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\x0bchunked\r\nContent-Length: 37\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n',
  'two Content-Lengths':
    'POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 31\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n',
  'a list of Content-Lengths':
    'POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0, 31\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n',
  'a signed Content-Length':
    'POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: +31\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n',
  'a folded header': 'GET /a HTTP/1.1\r\nHost: a\r\nX: y\r\n Transfer-Encoding: chunked\r\n\r\n',
  'NUL in a header': 'GET /a HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n',
  'a bare CR in a header': 'GET /a HTTP/1.1\r\nHost: a\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n',
  'two Hosts': 'GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n',
  'another host in the target': 'GET http://b/a HTTP/1.1\r\nHost: a\r\n\r\n',
  'no Host': 'GET /a HTTP/1.1\r\n\r\n',
  'a user in Host': 'GET /a HTTP/1.1\r\nHost: a@b\r\n\r\n',
  'a slash in Host': 'GET /a HTTP/1.1\r\nHost: a/admin\r\n\r\n',
  'dot segments': 'GET /a/../admin HTTP/1.1\r\nHost: a\r\n\r\n',
  'encoded dot segments': 'GET /a/%2e%2e/admin HTTP/1.1\r\nHost: a\r\n\r\n',
  'an encoded slash': 'GET /a%2fadmin HTTP/1.1\r\nHost: a\r\n\r\n',
  'a backslash': 'GET /a/..\\admin HTTP/1.1\r\nHost: a\r\n\r\n',
  'a path parameter of Java servers': 'GET /a/..;/admin HTTP/1.1\r\nHost: a\r\n\r\n',
  'a fragment': 'GET /a#/admin HTTP/1.1\r\nHost: a\r\n\r\n',
  'a wrong chunk size':
    'POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\nG\r\n0\r\n\r\n',
  'a huge chunk size':
    'POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\nG\r\n0\r\n\r\n',
  'chunked in HTTP/1.0':
    'POST /a HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n',
  'a long header': `GET /a HTTP/1.1\r\nHost: a\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`,
  'many headers': `GET /a HTTP/1.1\r\nHost: a\r\n${'X: y\r\n'.repeat(200)}\r\n`,
  'a long path': `GET /${'a'.repeat(9000)} HTTP/1.1\r\nHost: a\r\n\r\n`,
};

describe('hostile requests', { skip: HAPROXY === null && 'HAProxy is not installed' }, () => {
  let proxy: RunningProxy;
  let mirror: Awaited<ReturnType<typeof startMirror>>;
  before(async () => {
    proxy = await startProxy();
    mirror = await startMirror();
    const rows = [row('a', '/a', forward('b/one:80'))];
    const rendering = proxy.render(httpMap([listener('', [table('', rows)])]));
    assert.equal(await proxy.replace(rendering, () => [{ address: '127.0.0.1', port: mirror.port }]), null);
  });
  beforeEach(() => {
    mirror.requests.length = 0;
  });
  after(async () => {
    await proxy?.stop();
    await mirror?.close();
  });

  for (const [name, bytes] of Object.entries(REQUESTS)) {
    test(`reach no backend as another request: ${name}`, async () => {
      // Then what follows would be the answer to a request that was smuggled.
      const end = 'GET /none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n';
      await sendRaw(proxy.port, bytes + end).catch(() => {});
      assert.ok(mirror.requests.length <= 1, JSON.stringify(mirror.requests));
      for (const { target, method } of mirror.requests) {
        assert.equal(target, '/a');
        assert.ok(bytes.startsWith(`${method} /a `));
      }
    });
  }

  test('what clients say about their own address is dropped', async () => {
    const names = [
      'X-Forwarded-For',
      'X_Forwarded_For',
      'x-forwarded-host',
      'X.Real.IP',
      'Forwarded',
      'X-Request-Id',
      'X-Original-URL',
    ];
    const lines = names.map((name) => `${name}: forged\r\n`).join('');
    const { body } = await sendRaw(
      proxy.port,
      `GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n${lines}\r\n`,
    );
    assert.doesNotMatch(body, /forged/);
    assert.match(body, /"X-Forwarded-For","value":"127\.0\.0\.1"/i);
  });

  test('WebSockets pass', async () => {
    const answer = await new Promise<string>((resolve, reject) => {
      const socket = connect(proxy.port, '127.0.0.1');
      socket.on('error', reject);
      socket.once('data', (chunk) => {
        resolve(chunk.toString());
        socket.destroy();
      });
      socket.write(
        'GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
      );
    });
    // The mirror does not upgrade; it has seen the request to do so.
    assert.match(answer, /^HTTP\/1\.1 200/);
    assert.ok(
      mirror.requests[0]?.headers.some(
        ({ name, value }) => name.toLowerCase() === 'upgrade' && value === 'websocket',
      ),
    );
  });
});
