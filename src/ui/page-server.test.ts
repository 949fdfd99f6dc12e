import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:http';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { WebSocket } from 'ws';
import { FairleadError } from '../lib/errors.ts';
import { sendHostileRequests } from '../lib/testing/hostile-http.ts';
import { createEventHub, type EventHub } from './event-hub.ts';
import { type Operation, type PageServer, servePage } from './page-server.ts';

const TOKEN = 'the-token';
let server: PageServer;
let hub: EventHub;
let port = 0;

before(async () => {
  hub = createEventHub();
  server = await servePage({
    port: 0,
    token: TOKEN,
    files: new Map([['/', { type: 'text/html', content: Buffer.from('<p>page') }]]),
    operations: new Map<string, Operation>([
      ['POST echo', async (body) => body],
      [
        'POST fail',
        async () => {
          throw new FairleadError('no such pod: x', {
            op: 'test',
            code: 'not-found',
            hint: 'did you mean y?',
          });
        },
      ],
      [
        'POST crash',
        async () => {
          throw new TypeError('a bug');
        },
      ],
    ]),
    openStream(response) {
      if (hub.size >= 1) return false;
      hub.add(response, [{ type: 'notices', notices: ['first'] }], () => {});
      return true;
    },
    sockets: new Map([
      ['chat', (socket: WebSocket, query: URLSearchParams) => socket.send(query.get('word') ?? '')],
    ]),
  });
  port = Number(new URL(server.url).port);
});
after(() => server.close());

const ENDLESS_MS = 20_000;

interface Sent {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Record<string, string>;
  readonly body?: string;
}

async function send({ method = 'GET', path = `/${TOKEN}/`, headers = {}, body }: Sent) {
  // An answer that should be an error may be a stream without end.
  const signal = AbortSignal.timeout(ENDLESS_MS);
  const call = request({ host: '127.0.0.1', port, method, path, headers, signal });
  call.end(body);
  const [response] = await once(call, 'response');
  let text = '';
  for await (const chunk of response) text += String(chunk);
  return { status: response.statusCode as number, headers: response.headers, text };
}

describe('the server of the page', () => {
  const api = (name: string) => `/${TOKEN}/api/${name}`;
  const rows: readonly { what: string; sent: Sent; status: number; text: RegExp }[] = [
    { what: 'the page', sent: {}, status: 200, text: /<p>page/ },
    {
      what: 'a file that does not exist',
      sent: { path: `/${TOKEN}/x.js` },
      status: 404,
      text: /no such file/,
    },
    { what: 'the page without the token', sent: { path: '/' }, status: 403, text: /open the address/ },
    {
      what: 'an operation without the token',
      sent: { method: 'POST', path: '/api/echo' },
      status: 403,
      text: /token/,
    },
    { what: 'the events without the token', sent: { path: '/x/api/events' }, status: 403, text: /token/ },
    {
      what: 'another host',
      sent: { headers: { host: 'attacker.example' } },
      status: 421,
      text: /another server/,
    },
    {
      what: 'the page through a tunnel from another port',
      sent: { headers: { host: 'localhost:9000' } },
      status: 200,
      text: /<p>page/,
    },
    {
      what: 'an operation of a page of another port of this machine',
      sent: { method: 'POST', path: api('echo'), headers: { origin: 'http://localhost:9000' } },
      status: 403,
      text: /other sites/,
    },
    {
      what: 'an operation',
      sent: { method: 'POST', path: api('echo'), body: '{"a":1}' },
      status: 200,
      text: /^\{"a":1\}$/,
    },
    {
      what: 'an operation without a body',
      sent: { method: 'POST', path: api('echo') },
      status: 200,
      text: /^null$/,
    },
    {
      what: 'an unknown operation',
      sent: { method: 'POST', path: api('nothing') },
      status: 404,
      text: /no such operation/,
    },
    {
      what: 'an operation by another method',
      sent: { path: api('echo') },
      status: 404,
      text: /no such operation/,
    },
    {
      what: 'a body that is not JSON',
      sent: { method: 'POST', path: api('echo'), body: '{' },
      status: 400,
      text: /not JSON/,
    },
    {
      what: 'a body that is too large',
      sent: { method: 'POST', path: api('echo'), body: JSON.stringify('x'.repeat(100_000)) },
      status: 400,
      text: /larger than/,
    },
    {
      what: 'a failure that the user can fix',
      sent: { method: 'POST', path: api('fail') },
      status: 400,
      text: /"hint":"did you mean y\?"/,
    },
    {
      what: 'a failure of the server',
      sent: { method: 'POST', path: api('crash') },
      status: 500,
      text: /a bug/,
    },
  ];
  for (const { what, sent, status, text } of rows) {
    test(`${what}: ${status}`, async () => {
      const answer = await send(sent);
      assert.equal(answer.status, status);
      assert.match(answer.text, text);
      assert.equal(answer.headers['cache-control'], 'no-store');
      assert.match(answer.headers['content-security-policy'] ?? '', /default-src 'none'; script-src 'self';/);
    });
  }

  test('a stream of events: the first ones, then new ones; a second page is refused, as the test allows one', async () => {
    const call = request({ host: '127.0.0.1', port, path: api('events') });
    call.end();
    const [response] = await once(call, 'response');
    assert.match(response.headers['content-type'], /^text\/event-stream/);
    const closed = new Promise((resolve) => response.on('close', resolve));
    // The test ends it.
    response.on('error', () => {});
    let text = '';
    response.on('data', (chunk: Buffer) => {
      text += String(chunk);
      if (text.includes('first')) hub.send({ type: 'notices', notices: ['second'] });
      if (text.includes('second')) call.destroy();
    });
    const refused = await send({ path: api('events') });
    assert.equal(refused.status, 503);
    await closed;
    assert.match(text, /data: \{"type":"notices","notices":\["second"\]\}\n\n/);
  });

  test('the page, compressed', async () => {
    const call = request({
      host: '127.0.0.1',
      port,
      path: `/${TOKEN}/`,
      headers: { 'accept-encoding': 'gzip' },
    });
    call.end();
    const [response] = await once(call, 'response');
    const content = Buffer.concat(await response.toArray());
    assert.equal(response.headers['content-encoding'], 'gzip');
    assert.equal(Number(response.headers['content-length']), content.length);
    assert.equal(gunzipSync(content).toString(), '<p>page');
  });

  const SOCKETS: readonly { what: string; path: string; origin?: string; status: number }[] = [
    { what: 'of the page', path: api('chat?word=hi'), origin: 'own', status: 101 },
    { what: 'without the token', path: '/x/api/chat', origin: 'own', status: 403 },
    { what: 'without an origin', path: api('chat'), status: 403 },
    { what: 'of another site', path: api('chat'), origin: 'https://attacker.example', status: 403 },
    { what: 'with a path that does not exist', path: api('nothing'), origin: 'own', status: 404 },
    { what: 'with the path of a file', path: `/${TOKEN}/`, origin: 'own', status: 404 },
  ];
  for (const { what, path, origin, status } of SOCKETS) {
    test(`a WebSocket ${what}: ${status}`, async () => {
      const own = `http://127.0.0.1:${port}`;
      const socket = new WebSocket(`ws://127.0.0.1:${port}${path}`, {
        headers: origin === undefined ? {} : { origin: origin === 'own' ? own : origin },
      });
      const signal = AbortSignal.timeout(ENDLESS_MS);
      try {
        if (status === 101) {
          const [data] = await once(socket, 'message', { signal });
          assert.equal(String(data), 'hi');
          return;
        }
        const [call, response] = await once(socket, 'unexpected-response', { signal });
        assert.equal(response.statusCode, status);
        assert.match(response.headers['content-security-policy'] ?? '', /default-src 'none'/);
        call.destroy();
      } finally {
        socket.on('error', () => {});
        socket.terminate();
      }
    });
  }

  const garbage = [
    'GET / HTTP/9.9\r\n\r\n',
    '\x00\x01\x02\x03\r\n\r\n',
    `GET /${'x'.repeat(60_000)} HTTP/1.1\r\n\r\n`,
    `POST /${TOKEN}/api/echo HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -1\r\n\r\n`,
    `POST /${TOKEN}/api/echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n`,
    `GET /${TOKEN}/ HTTP/1.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n`,
    'CONNECT 127.0.0.1:22 HTTP/1.1\r\nhost: 127.0.0.1:22\r\n\r\n',
    `GET /${TOKEN}/%00%ff%zz HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n`,
  ];
  test('bytes that are not a request stop nothing', async () => {
    for (const bytes of garbage) {
      const socket = connect({ host: '127.0.0.1', port });
      socket.on('error', () => {});
      socket.resume();
      socket.end(Buffer.from(bytes, 'latin1'));
      if (!socket.closed) await once(socket, 'close');
    }
    assert.equal((await send({})).status, 200);
  });

  test('a port in use: the error names it', async () => {
    await assert.rejects(
      servePage({
        port,
        token: TOKEN,
        files: new Map(),
        operations: new Map(),
        openStream: () => false,
        sockets: new Map(),
      }),
      { code: 'EADDRINUSE', message: `port ${port} of this machine is in use` },
    );
  });
});

test('random paths, headers and upgrades affect only themselves', async () => {
  await sendHostileRequests(() => connect({ host: '127.0.0.1', port }), {
    words: [TOKEN, 'api', 'echo', 'fail', 'crash'],
  });
  assert.equal((await send({})).status, 200);
});
