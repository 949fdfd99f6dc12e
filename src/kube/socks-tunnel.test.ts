import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createPlainServer, type Server } from 'node:http';
import { createServer } from 'node:https';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { WebSocketServer } from 'ws';
import { createAuthority } from '../lib/pki.ts';
import type { Credentials } from './credentials.ts';
import { singleKubeconfig } from './kubeconfig-text.ts';
import { type SocksProxy, type SocksProxyOptions, startSocksProxy } from './testing/socks-proxy.ts';
import { httpTransport } from './transport.ts';
import { openApiWebSocket } from './web-socket.ts';

/** The API server is only reachable through a SOCKS proxy. */

const NAME = 'api.example';
let api: Server;
let plain: Server;
let ca: string;

const portOf = (server: Server) => (server.address() as AddressInfo).port;

before(async () => {
  const authority = createAuthority('test', new Date());
  ca = authority.cert;
  const { cert, key } = authority.issue({ commonName: 'api', names: [NAME, '192.0.2.1'], usage: 'server' });
  const answer = '{"major":"1","minor":"36"}';
  api = createServer({ cert, key }, (_request, response) => response.end(answer));
  plain = createPlainServer((_request, response) => response.end(answer));
  new WebSocketServer({ server: api }).on('connection', (socket) => socket.send('hello'));
  for (const server of [api, plain]) await once(server.listen(0, '127.0.0.1'), 'listening');
});
after(() => {
  for (const server of [api, plain]) {
    server.close();
    server.closeAllConnections();
  }
});

async function withProxy(
  options: Partial<SocksProxyOptions>,
  use: (proxy: SocksProxy) => Promise<void>,
): Promise<void> {
  const proxy = await startSocksProxy({ target: portOf(api), ...options });
  try {
    await use(proxy);
  } finally {
    proxy.close();
  }
}

/** Sends requests one after another and returns their status. */
async function request(credentials: Credentials, times = 1): Promise<number[]> {
  const transport = httpTransport(credentials);
  const codes: number[] = [];
  try {
    for (let i = 0; i < times; i++) {
      const { status, body } = await transport({ method: 'GET', path: '/version', headers: {} });
      codes.push(status);
      for await (const chunk of body) assert.match(String(chunk), /major/);
    }
  } finally {
    transport.close();
  }
  return codes;
}

const REACHED: readonly {
  name: string;
  server?: string;
  scheme?: string;
  login?: string;
  options?: Partial<SocksProxyOptions>;
  asked: string;
}[] = [
  { name: 'the proxy looks up the name', asked: 'api.example:6443' },
  { name: 'socks5h', scheme: 'socks5h', asked: 'api.example:6443' },
  { name: 'an IPv4 address', server: 'https://192.0.2.1', asked: '192.0.2.1:443' },
  { name: 'replies in pieces', options: { isSlow: true }, asked: 'api.example:6443' },
  {
    name: 'name and password',
    login: 'jane:s%3At@',
    options: { password: 'jane:s:t' },
    asked: 'api.example:6443',
  },
  { name: 'a password that the proxy does not ask for', login: 'jane:x@', asked: 'api.example:6443' },
];

describe('a server behind a SOCKS proxy', () => {
  for (const {
    name,
    server = `https://${NAME}:6443`,
    scheme = 'socks5',
    login = '',
    options,
    asked,
  } of REACHED) {
    test(`${name}: requests share one connection`, () =>
      withProxy(options ?? {}, async (proxy) => {
        const proxyUrl = `${scheme}://${login}127.0.0.1:${proxy.port}`;
        assert.deepEqual(await request({ server, ca, proxyUrl }, 2), [200, 200]);
        assert.deepEqual(proxy.asked, [asked]);
      }));
  }

  test('a server without TLS', () =>
    withProxy({ target: portOf(plain) }, async (proxy) => {
      const proxyUrl = `socks5://127.0.0.1:${proxy.port}`;
      assert.deepEqual(await request({ server: `http://${NAME}:8080`, proxyUrl }, 2), [200, 200]);
      assert.deepEqual(proxy.asked, ['api.example:8080']);
    }));

  test('a WebSocket', () =>
    withProxy({}, async (proxy) => {
      const credentials = {
        server: `https://${NAME}:6443`,
        ca,
        proxyUrl: `socks5://127.0.0.1:${proxy.port}`,
      };
      const options = { path: '/exec', protocol: 'v5.channel.k8s.io', maxMessageBytes: 100 };
      const socket = openApiWebSocket(credentials, options);
      const [message] = await once(socket, 'message');
      assert.equal(String(message), 'hello');
      socket.terminate();
    }));

  const refusals: readonly {
    name: string;
    login?: string;
    options: Partial<SocksProxyOptions>;
    error: RegExp;
  }[] = [
    {
      name: 'by its rules',
      options: { reply: 2 },
      error: /refuses a connection to api\.example:6443: not allowed/,
    },
    { name: 'the server refuses', options: { reply: 5 }, error: /connection refused/ },
    { name: 'an unknown reply', options: { reply: 99 }, error: /reply 99/ },
    { name: 'no password', options: { password: 'a:b' }, error: /requires another authentication/ },
    { name: 'a wrong password', login: 'a:c@', options: { password: 'a:b' }, error: /password is wrong/ },
    {
      name: 'a long password',
      login: `a:${'x'.repeat(256)}@`,
      options: { password: 'a:b' },
      error: /longer than 255/,
    },
  ];
  for (const { name, login = '', options, error } of refusals) {
    test(`a refusal: ${name}`, () =>
      withProxy(options, async (proxy) => {
        const proxyUrl = `socks5://${login}127.0.0.1:${proxy.port}`;
        await assert.rejects(request({ server: `https://${NAME}:6443`, ca, proxyUrl }), error);
      }));
  }

  for (const [name, bytes, error] of [
    ['an HTTP server', 'HTTP/1.1 400 Bad Request\r\n\r\n', /not a SOCKS 5 proxy/],
    ['a server that ends the connection', '', /ended the connection/],
    ['a server that ends it in a reply', '\x05', /ended the connection/],
  ] as const) {
    test(`${name} instead of a proxy`, async () => {
      const server = createTcpServer((socket) => socket.end(bytes));
      await once(server.listen(0, '127.0.0.1'), 'listening');
      try {
        const proxyUrl = `socks5://127.0.0.1:${(server.address() as AddressInfo).port}`;
        await assert.rejects(request({ server: `https://${NAME}:6443`, ca, proxyUrl }), error);
      } finally {
        server.close();
      }
    });
  }
});

const kubectl = join(process.env['KUBEBUILDER_ASSETS'] ?? '', 'kubectl');

describe('kubectl, which has client-go, asks the proxy for the same', {
  skip:
    process.env['KUBEBUILDER_ASSETS'] && existsSync(kubectl) ? false : 'KUBEBUILDER_ASSETS has no kubectl',
}, () => {
  const folder = mkdtempSync(join(tmpdir(), 'socks-kubectl-'));
  after(() => rmSync(folder, { recursive: true, force: true }));
  /** PORT stands for its port. */
  const PROXY = 'socks5://a:b@127.0.0.1:PORT';
  /** Where the proxy is named: HTTPS_PROXY without `url`. */
  const settings: readonly { name: string; url?: string; none?: string; isReached: boolean }[] = [
    { name: 'proxy-url', url: PROXY, isReached: true },
    { name: 'proxy-url, regardless of NO_PROXY', url: PROXY, none: '*', isReached: true },
    { name: 'HTTPS_PROXY', isReached: true },
    { name: 'HTTPS_PROXY and a NO_PROXY for others', none: 'other.example,.io', isReached: true },
    { name: 'HTTPS_PROXY and NO_PROXY', none: 'a,example', isReached: false },
  ];
  for (const { name, url, none = '', isReached } of settings) {
    test(name, () =>
      withProxy({ password: 'a:b' }, async (proxy) => {
        const server = `https://${NAME}:6443`;
        const at = (text: string) => text.replace('PORT', String(proxy.port));
        const https = url === undefined ? at(PROXY) : '';
        const file = join(folder, 'config');
        const cluster = {
          server,
          'certificate-authority-data': Buffer.from(ca).toString('base64'),
          ...(url === undefined ? {} : { 'proxy-url': at(url) }),
        };
        writeFileSync(file, singleKubeconfig('c', cluster, { token: 't' }));
        const env = { PATH: process.env['PATH'], HTTPS_PROXY: https, NO_PROXY: none };
        const theirs = await promisify(execFile)(
          kubectl,
          ['--kubeconfig', file, 'get', '--raw', '/version'],
          {
            env,
          },
        ).then(
          () => true,
          () => false,
        );
        const askedByThem = [...new Set(proxy.asked.splice(0))];
        const credentials = {
          server,
          ca,
          ...(url === undefined ? {} : { proxyUrl: at(url) }),
          proxyVariables: { https: https, http: '', none },
        };
        const ours = await request(credentials).then(
          () => true,
          () => false,
        );
        assert.deepEqual([ours, proxy.asked], [theirs, askedByThem]);
        assert.equal(theirs, isReached);
      }),
    );
  }
});
