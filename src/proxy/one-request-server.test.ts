import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { createOneRequestServer, type OneRequestServer } from './one-request-server.ts';

let opened: OneRequestServer;
let port = 0;
let answers = 0;
before(async () => {
  opened = createOneRequestServer(({ path, accept }) => {
    answers++;
    if (path === '/broken') throw new RangeError('no such thing');
    return { code: 200, headers: { server: 'test' }, body: `${path} ${accept}` };
  });
  opened.server.listen(0, '127.0.0.1');
  await once(opened.server, 'listening');
  ({ port } = opened.server.address() as AddressInfo);
});
after(() => opened.close());

/** Sends a text, closes if `ends`, and returns all that the server sends. */
async function exchange(text: string, ends = false): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1' });
  let received = '';
  socket.setEncoding('latin1').on('data', (data) => {
    received += String(data);
  });
  socket.on('error', () => {});
  if (ends) socket.end(text, 'latin1');
  else socket.write(text, 'latin1');
  await new Promise((resolve) => socket.on('close', resolve));
  return received;
}

const ANSWERS: readonly (readonly [what: string, request: string, answer: RegExp])[] = [
  [
    'a path',
    'GET /healthz?x=1 HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\r\n',
    /200 OK.*\r\n\r\n\/healthz text\/html$/s,
  ],
  [
    'an absolute form',
    'GET http://node:1/livez HTTP/1.1\r\nHost: a\r\n\r\n',
    /200 OK.*\r\n\r\n\/livez undefined$/s,
  ],
  ['HEAD', 'HEAD / HTTP/1.0\r\n\r\n', /^HTTP\/1\.1 200 OK\r\n.*content-length: 11\r\n.*\r\n\r\n$/s],
  ['an exception', 'GET /broken HTTP/1.1\r\n\r\n', /^HTTP\/1\.1 500 .*no such thing/s],
  ['no request', 'hello\r\n\r\n', /^HTTP\/1\.1 400 /],
  ['a head without end', `GET / HTTP/1.1\r\n${'x: y\r\n'.repeat(4000)}`, /^HTTP\/1\.1 431 /],
];
describe('a server of one request for each connection answers', () => {
  for (const [what, request, answer] of ANSWERS)
    test(what, async () => assert.match(await exchange(request), answer));
});

test('of many requests that are sent at once, one is answered', async () => {
  answers = 0;
  const text = await exchange('GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(2000));
  assert.equal(text.match(/HTTP\/1\.1/g)?.length, 1);
  assert.equal(answers, 1);
});

test('a client that ends in the middle of a request is not answered', async () =>
  assert.equal(await exchange('GET / HTT', true), ''));
