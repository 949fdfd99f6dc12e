import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { eventually } from '../lib/testing/eventually.ts';
import { connectShell } from './pod-shell.ts';

/** An API server whose shells the test plays, and the server of the page. */
let api: Server;
let pages: Server;
let shells: WebSocketServer;
let asked: URL;
const portOf = (server: Server) => (server.address() as AddressInfo).port;

before(async () => {
  api = createServer();
  shells = new WebSocketServer({ noServer: true, handleProtocols: (offered) => [...offered][0] ?? false });
  api.on('upgrade', (request, socket, head) => {
    asked = new URL(request.url ?? '', 'http://api');
    const [, refusal] = /\/pods\/refused-(\w+)\//.exec(asked.pathname) ?? [];
    if (refusal === undefined) {
      shells.handleUpgrade(request, socket, head, (shell) => shells.emit('connection', shell, request));
      return;
    }
    const body =
      refusal === 'status'
        ? JSON.stringify({ kind: 'Status', message: 'pods "x" not found' })
        : 'upgrade failed';
    socket.end(
      `HTTP/1.1 404 Not Found\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
    );
  });
  pages = createServer();
  const sockets = new WebSocketServer({ server: pages });
  sockets.on('connection', (page, request) => {
    const query = new URL(request.url ?? '', 'http://page').searchParams;
    const server =
      query.get('pod') === 'a/nowhere' ? 'http://127.0.0.1:1' : `http://127.0.0.1:${portOf(api)}`;
    connectShell(page, { server }, { pod: query.get('pod') ?? '', container: query.get('container') });
  });
  for (const server of [api, pages]) {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  }
});
after(() => {
  for (const client of shells.clients) client.terminate();
  for (const server of [api, pages]) {
    server.close();
    server.closeAllConnections();
  }
});

/** Opens a shell as the page does, with the messages that it has received. */
function openPage(query: string) {
  const page = new WebSocket(`ws://127.0.0.1:${portOf(pages)}/?${query}`);
  const messages: Buffer[] = [];
  page.on('message', (data) => messages.push(data as Buffer));
  const closed = once(page, 'close');
  return { page, messages, closed };
}

const accepted = async (): Promise<WebSocket> => (await once(shells, 'connection'))[0] as WebSocket;

test('messages pass in both directions, and the end is that of the shell', async () => {
  const next = accepted();
  const { page, messages, closed } = openPage('pod=shop/web&container=app');
  await once(page, 'open');
  page.send(Buffer.from('\x04{"Width":80,"Height":24}'));
  const shell = await next;
  const [size] = await once(shell, 'message');
  assert.equal(String(size), '\x04{"Width":80,"Height":24}', 'sent before the shell had started');
  assert.equal(shell.protocol, 'v5.channel.k8s.io');
  assert.equal(asked.pathname, '/api/v1/namespaces/shop/pods/web/exec');
  assert.equal(asked.searchParams.get('container'), 'app');
  assert.deepEqual(asked.searchParams.getAll('command').slice(0, 2), ['/bin/sh', '-c']);
  shell.send(Buffer.from('\x01$ '));
  await eventually(() => messages.length === 1);
  page.send(Buffer.from('\x00ls\r'));
  const [input] = await once(shell, 'message');
  assert.equal(String(input), '\x00ls\r');
  shell.send(Buffer.from('\x03{"status":"Success"}'));
  shell.close();
  await closed;
  assert.deepEqual(messages.map(String), ['\x01$ ', '\x03{"status":"Success"}']);
});

const ENDS = [
  { what: 'the message of the API server', query: 'pod=a/refused-status', message: /^pods "x" not found$/ },
  { what: 'its text', query: 'pod=a/refused-text', message: /^upgrade failed$/ },
  {
    what: 'a server that cannot be reached',
    query: 'pod=a/nowhere',
    message: /^the API server cannot be reached: /,
  },
];
for (const { what, query, message } of ENDS) {
  test(`a shell that does not start ends with ${what}`, async () => {
    const { messages, closed } = openPage(query);
    await closed;
    assert.equal(messages.length, 1);
    assert.equal(messages[0]?.[0], 3);
    const status = JSON.parse(String(messages[0]?.subarray(1))) as { status: string; message: string };
    assert.equal(status.status, 'Failure');
    assert.match(status.message, message);
  });
}

test('a connection that breaks without a status is reported', async () => {
  const next = accepted();
  const { messages, closed } = openPage('pod=a/b');
  (await next).terminate();
  await closed;
  assert.match(String(messages[0]), /has closed the connection/);
});

test('when the page closes, the connection to the shell does', async () => {
  const next = accepted();
  const { page } = openPage('pod=a/b');
  const shell = await next;
  const closed = once(shell, 'close');
  page.close();
  await closed;
});

test('output waits until the page has shown what it received', async () => {
  const next = accepted();
  const { page, messages, closed } = openPage('pod=a/b');
  const shell = await next;
  const size = 100_000;
  const count = 200;
  for (let i = 0; i < count; i++) shell.send(Buffer.alloc(size, 1));
  const received = () => messages.length * size;
  await eventually(() => received() > 256 << 10);
  for (let i = 0; i < 20; i++) {
    page.send(Buffer.from('\x00x'));
    await once(shell, 'message');
  }
  assert.ok(messages.length < 10, `${messages.length} messages`);
  page.on('message', () => page.send(String(size)));
  for (let i = messages.length; i > 0; i--) page.send(String(size));
  await eventually(() => messages.length === count);
  page.close();
  await closed;
});
