import assert from 'node:assert/strict';
import { connect as connectTcp, type Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls';
import type { Client } from '../../kube/client.ts';
import { systemClock } from '../../lib/clock.ts';
import { silentLogger } from '../../lib/log.ts';
import { createAuthority } from '../../lib/pki.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import { freePort } from '../../lib/testing/free-ports.ts';
import type { ServerTls } from '../options.ts';
import { serveKubelet } from './kubelet-server.ts';

const authority = createAuthority('ca', new Date());
const foreign = createAuthority('other', new Date());
const serving = (name: string) =>
  authority.issue({ commonName: name, names: ['127.0.0.1'], usage: 'server' });
const master = { commonName: 'api', organizations: ['system:masters'], usage: 'client' } as const;
const ending = new AbortController();
let port = 0;
let renew: (changed: Partial<ServerTls>) => void = () => {};
let kubelet: { close(): Promise<void> };

/** Requests /healthz: the status, the name of the server, and the session for another connection. */
function request(
  options: ConnectionOptions,
): Promise<{ status: string; server: string; session: Buffer | null }> {
  return new Promise((resolve, reject) => {
    let session: Buffer | null = null;
    let text = '';
    const socket: TLSSocket = connect({ host: '127.0.0.1', port, ca: authority.cert, ...options }, () => {
      const server = String(socket.getPeerCertificate().subject?.CN);
      socket.on('end', () => resolve({ status: text.slice(9, 12), server, session }));
      socket.write('GET /healthz HTTP/1.1\r\nhost: n\r\nconnection: close\r\n\r\n');
    });
    socket.on('session', (made) => {
      session = made;
    });
    socket.on('data', (chunk) => {
      text += String(chunk);
    });
    socket.on('error', reject);
  });
}

before(async () => {
  port = await freePort();
  kubelet = await serveKubelet(
    {
      client: { request: async () => ({ status: {} }) } as unknown as Client,
      ...{ nodeName: 'n1', nodeAddresses: ['127.0.0.1'], stateDir: '/none', cgroupParent: '/none' },
      ...{ clusterDns: [], clusterDomain: 'cluster.local', logger: silentLogger, clock: systemClock },
      signal: ending.signal,
      ...{ version: 'v1.36.0', flags: {}, startedAt: 0 },
      server: {
        ...{ port, cert: '', key: '', clientCa: authority.cert },
        onChange(listener) {
          renew = listener;
        },
      },
    },
    { list: () => [], find: () => undefined },
    null,
  );
});
after(async () => {
  ending.abort();
  await kubelet?.close();
});

test('connections fail while there is no certificate', async () => {
  await assert.rejects(request(authority.issue(master)), /handshake failure|ECONNRESET/);
});

test('each certificate is used for the connections after it', async () => {
  for (const name of ['first', 'second']) {
    renew(serving(name));
    const { status, server } = await request(authority.issue(master));
    assert.deepEqual([status, server], ['200', name]);
  }
});

for (const [name, credentials] of [
  ['without a certificate', {}],
  ['with a certificate of another authority', foreign.issue(master)],
] as const) {
  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    test(`a client ${name} is refused, and when it resumes its session too (${version})`, async () => {
      renew(serving('n1'));
      const versions = { minVersion: version, maxVersion: version };
      const first = await request({ ...credentials, ...versions });
      assert.equal(first.status, '401');
      const session = first.session ? { session: first.session } : {};
      assert.equal((await request({ ...credentials, ...versions, ...session })).status, '401');
    });
  }
}

test('clients of a new authority are accepted, and those of the former one are not', async () => {
  renew({ ...serving('n1'), clientCa: foreign.cert });
  const ask = async (credentials: ConnectionOptions) => (await request(credentials)).status;
  assert.deepEqual([await ask(foreign.issue(master)), await ask(authority.issue(master))], ['200', '401']);
});

test('silent connections of one client end the oldest of them, and none that has shown credentials', async () => {
  renew({ ...serving('n1'), clientCa: authority.cert });
  const silent = new Set<Socket>();
  const dial = () => {
    const socket = connectTcp({ host: '127.0.0.1', port, localAddress: '127.0.0.9' });
    silent.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => silent.delete(socket));
  };
  const known = connect({
    socket: connectTcp({ host: '127.0.0.1', port, localAddress: '127.0.0.9' }),
    ca: authority.cert,
    host: '127.0.0.1',
    ...authority.issue(master),
  });
  let answers = '';
  known.on('data', (text) => {
    answers += String(text);
  });
  const ask = () => known.write('GET /healthz HTTP/1.1\r\nhost: n\r\n\r\n');
  try {
    ask();
    await eventually(() => answers.includes('ok'));
    for (let i = 0; i < 200; i++) dial();
    await eventually(() => silent.size === 50);
    answers = '';
    ask();
    await eventually(() => answers.includes('ok'));
  } finally {
    known.destroy();
    for (const socket of silent) socket.destroy();
  }
});
