import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:https';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { stringify } from 'yaml';
import { readBody } from '../kube/client.ts';
import type { Credentials } from '../kube/credentials.ts';
import { systemClock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import { silentLogger } from '../lib/log.ts';
import { createAuthority } from '../lib/pki.ts';
import { connectToApi, serverAddresses } from './api-connection.ts';

const A = 'https://10.0.0.1:6443';
const B = 'https://10.0.0.2:6443';
const LB = 'https://api.example';
const NAME = 'kubernetes.default.svc';

const LISTS: {
  name: string;
  configured?: string[];
  credentials?: Partial<Credentials>;
  known?: string[];
  wanted: [url: string, serverName: string | null][];
}[] = [
  { name: 'the kubeconfig alone', wanted: [[LB, null]] },
  {
    name: 'learned ones follow it',
    known: [A, B],
    wanted: [
      [LB, null],
      [A, NAME],
      [B, NAME],
    ],
  },
  {
    name: 'configured ones replace it',
    configured: [A, B],
    wanted: [
      [A, null],
      [B, null],
    ],
  },
  {
    name: 'no address is tried twice',
    configured: [A],
    known: [A, B],
    wanted: [
      [A, null],
      [B, NAME],
    ],
  },
  {
    name: 'the same address, with its port',
    known: ['https://api.example:443'],
    wanted: [[LB, null]],
  },
  {
    name: 'the name in the kubeconfig',
    credentials: { serverName: 'api.internal' },
    known: [A],
    wanted: [
      [LB, null],
      [A, 'api.internal'],
    ],
  },
  {
    name: 'certificates are not verified',
    credentials: { insecure: true },
    known: [A],
    wanted: [[LB, null]],
  },
  {
    name: 'no TLS',
    credentials: { server: 'http://10.0.0.9:8080' },
    known: [A],
    wanted: [['http://10.0.0.9:8080', null]],
  },
];

for (const { name, configured = [], credentials, known = [], wanted } of LISTS) {
  test(`the list of API servers: ${name}`, () => {
    const found = serverAddresses(configured, { server: LB, ...credentials }, known);
    assert.deepEqual(
      found.map(({ url, serverName }) => [url, serverName]),
      wanted,
    );
  });
}

describe('the certificates of API servers', () => {
  const authority = createAuthority('cluster', new Date());
  const other = createAuthority('cluster', new Date());
  const servers: Server[] = [];
  const seen: string[] = [];
  const urls: Record<string, string> = {};
  let folder: string;

  const start = async (label: string, issuer: typeof authority, names: string[]) => {
    const { cert, key } = issuer.issue({ commonName: label, names, usage: 'both' });
    const server = createServer({ cert, key }, (request, response) => {
      seen.push(`${label} ${request.headers.authorization}`);
      response.end(label);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    servers.push(server);
    urls[label] = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  };

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'api-connection-'));
    await start('kubeadm', authority, ['kubernetes', NAME, '10.96.0.1', '10.0.0.1']);
    await start('named', authority, ['api.internal']);
    await start('address', authority, ['127.0.0.1', NAME]);
    await start('node', authority, ['node-1', '127.0.0.1']);
    await start('impostor', other, ['127.0.0.1', NAME, 'api.internal']);
    // A port without a server.
    const closed = createTcpServer();
    await new Promise<void>((resolve) => closed.listen(0, '127.0.0.1', resolve));
    urls['closed'] = `https://127.0.0.1:${(closed.address() as AddressInfo).port}`;
    await new Promise((resolve) => closed.close(resolve));
  });
  after(async () => {
    for (const server of servers) {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
    rmSync(folder, { recursive: true });
  });

  const CASES: {
    name: string;
    configured: string;
    cluster?: object;
    known: string[];
    /** The server that answers, or the failure. */
    answer: string | RegExp;
  }[] = [
    { name: 'the configured address in it', configured: 'address', known: [], answer: 'address' },
    { name: 'not the configured address', configured: 'kubeadm', known: [], answer: /altnames/ },
    { name: 'learned: the name of the Service', configured: 'closed', known: ['kubeadm'], answer: 'kubeadm' },
    {
      name: 'learned: the address alone, as a node has it',
      configured: 'closed',
      known: ['node'],
      answer: /altnames/,
    },
    {
      name: 'learned: another authority',
      configured: 'closed',
      known: ['impostor'],
      answer: /self-signed certificate|unable to/,
    },
    {
      name: 'learned: the first of several that verifies',
      configured: 'closed',
      known: ['impostor', 'node', 'kubeadm'],
      answer: 'kubeadm',
    },
    {
      name: "learned: the kubeconfig's name",
      configured: 'closed',
      cluster: { 'tls-server-name': 'api.internal' },
      known: ['kubeadm', 'named'],
      answer: 'named',
    },
  ];

  for (const { name, configured, cluster, known, answer } of CASES) {
    test(`${name}; credentials are sent to no other server`, async () => {
      seen.length = 0;
      const ca = Buffer.from(authority.cert).toString('base64');
      const file = join(folder, 'kubeconfig');
      writeFileSync(
        file,
        stringify({
          'current-context': 'c',
          contexts: [{ name: 'c', context: { cluster: 'c', user: 'u' } }],
          clusters: [
            {
              name: 'c',
              cluster: { server: urls[configured], 'certificate-authority-data': ca, ...cluster },
            },
          ],
          users: [{ name: 'u', user: { token: 'secret' } }],
        }),
      );
      const transport = connectToApi(
        { kubeconfig: file, server: null, servers: [] },
        {
          clock: systemClock,
          random: () => 0,
          logger: silentLogger,
          known: () => known.map((label) => urls[label] ?? ''),
        },
      );
      const found = await transport({ method: 'GET', path: '/x', headers: {} }).then(
        ({ body }) => readBody(body),
        messageOf,
      );
      transport.close();
      if (answer instanceof RegExp) assert.match(found, answer);
      else assert.equal(found, answer);
      const allowed = answer instanceof RegExp ? [] : [`${answer} Bearer secret`];
      assert.deepEqual([...new Set(seen)], allowed);
    });
  }
});
