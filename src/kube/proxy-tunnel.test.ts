import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { WebSocketServer } from 'ws';
import { createAuthority } from '../lib/pki.ts';
import { httpTransport } from './transport.ts';
import { openApiWebSocket } from './web-socket.ts';

/** The API server is only reachable through an HTTP proxy, as a kubeconfig with `proxy-url` says. */

let api: Server;
let proxy: Server;
let ca: string;
/** The targets of CONNECT requests, and their passwords. */
let asked: { readonly target: string; readonly authorization: string | undefined }[] = [];

const portOf = (server: Server) => (server.address() as AddressInfo).port;
const NAME = 'api.example';

before(async () => {
  const authority = createAuthority('test', new Date());
  ca = authority.cert;
  const { cert, key } = authority.issue({ commonName: 'api', names: [NAME], usage: 'server' });
  api = createTlsServer({ cert, key }, (_request, response) => response.end('answer'));
  const sockets = new WebSocketServer({ server: api });
  sockets.on('connection', (socket) => socket.send('hello'));
  proxy = createServer().on('connect', ({ url = '', headers }, socket) => {
    const authorization = headers['proxy-authorization'];
    asked.push({ target: url, authorization });
    if (authorization === undefined || !authorization.endsWith('YTpi'))
      return socket.end('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n');
    // The proxy finds the name, which the client need not.
    const upstream = connect(portOf(api), '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
      upstream.pipe(socket).pipe(upstream);
    });
    upstream.on('error', () => socket.destroy());
    socket.on('error', () => upstream.destroy());
  });
  for (const server of [api, proxy]) await once(server.listen(0, '127.0.0.1'), 'listening');
});
after(() => {
  for (const server of [api, proxy]) {
    server.close();
    server.closeAllConnections();
  }
});

const through = (password: string, server = `https://${NAME}:6443`) => ({
  server,
  ca,
  proxyUrl: `http://${password}127.0.0.1:${portOf(proxy)}`,
});

describe('a server behind a proxy', () => {
  test('requests share one connection, and the certificate is that of the server', async () => {
    asked = [];
    const transport = httpTransport(through('a:b@'));
    for (let i = 0; i < 2; i++) {
      const { status, body } = await transport({ method: 'GET', path: '/version', headers: {} });
      assert.equal(status, 200);
      for await (const chunk of body) assert.equal(String(chunk), 'answer');
    }
    transport.close();
    assert.deepEqual(asked, [{ target: `${NAME}:6443`, authorization: 'Basic YTpi' }]);
  });

  test('a WebSocket', async () => {
    const options = { path: '/exec', protocol: 'v5.channel.k8s.io', maxMessageBytes: 100 };
    const socket = openApiWebSocket(through('a:b@'), options);
    const [message] = await once(socket, 'message');
    assert.equal(String(message), 'hello');
    socket.terminate();
  });

  const refusals: readonly { name: string; credentials: () => object; error: RegExp }[] = [
    {
      name: 'the proxy refuses',
      credentials: () => through(''),
      error: /the proxy 127\.0\.0\.1:\d+ refuses a connection to api\.example:6443: 407 Proxy Auth/,
    },
    {
      name: 'the proxy is not there',
      credentials: () => ({ server: `https://${NAME}:6443`, ca, proxyUrl: 'http://127.0.0.1:1' }),
      error: /ECONNREFUSED/,
    },
    {
      name: 'the certificate is of another server',
      credentials: () => through('a:b@', 'https://other.example:6443'),
      error: /other\.example/,
    },
  ];
  for (const { name, credentials, error } of refusals) {
    test(`a failure: ${name}`, async () => {
      const transport = httpTransport({ server: '', ...credentials() });
      await assert.rejects(transport({ method: 'GET', path: '/version', headers: {} }), error);
      transport.close();
    });
  }
});
