import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { type WebSocket, WebSocketServer } from 'ws';
import { execInPod } from './pod-exec.ts';

/** An API server that the test plays. */
let api: Server;
let sockets: WebSocketServer;
let play: (socket: WebSocket) => void = () => {};
let asked: URL;

before(async () => {
  api = createServer();
  sockets = new WebSocketServer({ noServer: true });
  api.on('upgrade', (request, socket, head) => {
    asked = new URL(request.url ?? '', 'http://api');
    if (asked.pathname.includes('/pods/missing/')) {
      const body = JSON.stringify({ kind: 'Status', message: 'pods "missing" not found' });
      socket.end(
        `HTTP/1.1 404 Not Found\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
      );
    } else sockets.handleUpgrade(request, socket, head, (webSocket) => play(webSocket));
  });
  api.listen(0, '127.0.0.1');
  await once(api, 'listening');
});
after(() => {
  for (const client of sockets.clients) client.terminate();
  api.close();
  api.closeAllConnections();
});

const never = new AbortController().signal;
const run = (options: Partial<Parameters<typeof execInPod>[1]> = {}) =>
  execInPod(
    { server: `http://127.0.0.1:${(api.address() as AddressInfo).port}` },
    {
      namespace: 'ns',
      pod: 'web',
      command: ['sh', '-c', 'a b'],
      maxOutputBytes: 1000,
      signal: never,
      ...options,
    },
  );
const message = (channel: number, text: string) => Buffer.concat([Uint8Array.of(channel), Buffer.from(text)]);
const status = (value: object) => message(3, JSON.stringify(value));

test('outputs and exit status', async () => {
  play = (socket) => {
    socket.send(message(1, 'out '));
    socket.send(message(2, 'err'));
    socket.send(message(1, 'put'));
    const causes = [{ reason: 'ExitCode', message: '7' }];
    socket.send(status({ status: 'Failure', reason: 'NonZeroExitCode', details: { causes } }));
    socket.close();
  };
  assert.deepEqual(await run({ container: 'c' }), { status: 7, stdout: 'out put', stderr: 'err' });
  assert.equal(asked.pathname, '/api/v1/namespaces/ns/pods/web/exec');
  assert.deepEqual(asked.searchParams.getAll('command'), ['sh', '-c', 'a b']);
  assert.equal(asked.searchParams.get('container'), 'c');
  assert.equal(asked.searchParams.has('stdin'), false);
});

test('input is sent, and ended', async () => {
  play = (socket) => {
    let input = '';
    socket.on('message', (data: Buffer) => {
      if (data[0] === 0) input += data.subarray(1);
      else if (data[0] === 255 && data[1] === 0) {
        socket.send(message(1, input));
        socket.send(status({ status: 'Success' }));
        socket.close();
      }
    });
  };
  assert.deepEqual(await run({ input: 'text' }), { status: 0, stdout: 'text', stderr: '' });
});

for (const [what, options, script, wanted] of [
  ['a pod that does not exist', { pod: 'missing' }, () => {}, { message: /pods "missing" not found/ }],
  [
    'a command that did not run',
    {},
    (socket: WebSocket) => socket.send(status({ status: 'Failure', message: 'container not running' })),
    { code: 'not-running', message: /container not running/ },
  ],
  [
    'a connection that is lost before the end',
    {},
    (socket: WebSocket) => socket.terminate(),
    { code: 'EPIPE', message: /has closed the connection/ },
  ],
  [
    'a command that writes without end',
    {},
    (socket: WebSocket) => {
      for (let i = 0; i < 3; i++) socket.send(message(1, 'x'.repeat(400)));
    },
    { code: 'EFBIG', message: /more than 1000 bytes/ },
  ],
  [
    'a status that is not JSON',
    {},
    (socket: WebSocket) => socket.send(message(3, 'no')),
    { name: 'SyntaxError' },
  ],
] as const) {
  test(`rejects ${what}`, async () => {
    play = script;
    await assert.rejects(run(options), wanted);
  });
}

test('the signal ends a command that does not', async () => {
  const ended = new AbortController();
  play = () => ended.abort(new Error('too late'));
  await assert.rejects(run({ signal: ended.signal }), /too late/);
});
