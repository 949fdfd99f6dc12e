import assert from 'node:assert/strict';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import type { TLSSocket } from 'node:tls';
import { createAuthority } from '../lib/pki.ts';
import { httpTransport } from './transport.ts';

const authority = createAuthority('test', new Date());
const identity = authority.issue({ commonName: 'server', names: ['127.0.0.1'], usage: 'server' });
const client = authority.issue({ commonName: 'client', usage: 'client' });

const CASES: readonly {
  readonly name: string;
  /** Whether the server ends the first connection, or never answers on it. */
  readonly first: 'is answered' | 'is ended' | 'waits';
  /** Full handshakes of four requests at once; null: Node.js forgets the session of a connection that failed. */
  readonly handshakes: number | null;
}[] = [
  { name: 'the others continue the TLS session of the first', first: 'is answered', handshakes: 1 },
  { name: 'the first fails after its handshake', first: 'is ended', handshakes: null },
  { name: 'the first waits for its answer', first: 'waits', handshakes: 1 },
];

for (const { name, first, handshakes } of CASES)
  test(`of requests at once, ${name}`, async () => {
    let count = 0;
    const server = createServer(
      { ...identity, ca: authority.cert, requestCert: true },
      ({ url, socket }, response) => {
        if (url === '/0' && first === 'is ended') socket.destroy();
        else if (url !== '/0' || first === 'is answered')
          response.end((socket as TLSSocket).getPeerCertificate().subject.CN);
      },
    );
    server.on('secureConnection', (socket) => {
      if (!socket.isSessionReused()) count++;
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    // On a busy machine a handshake can take longer than requests wait for it otherwise.
    const transport = httpTransport(
      { server: `https://127.0.0.1:${port}`, ca: authority.cert, ...client },
      { sessionMs: 60_000 },
    );
    const get = async (path: string) => {
      const { body } = await transport({ method: 'GET', path, headers: {} });
      let text = '';
      for await (const chunk of body) text += String(chunk);
      return text;
    };
    try {
      const answers = [0, 1, 2, 3].map((i) => get(`/${i}`));
      const settled = await Promise.allSettled(answers.slice(first === 'waits' ? 1 : 0));
      const others = settled.slice(-3).map((one) => (one.status === 'fulfilled' ? one.value : one.reason));
      assert.deepEqual(others, ['client', 'client', 'client']);
      if (first === 'is ended') assert.equal(settled[0]?.status, 'rejected');
      if (handshakes !== null) assert.equal(count, handshakes);
      if (first === 'waits') answers[0]?.catch(() => {});
    } finally {
      transport.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  });

test('requests to a server that accepts no connection all fail', async () => {
  const transport = httpTransport({ server: 'https://127.0.0.1:1', ca: authority.cert, ...client });
  const answers = [0, 1, 2].map(() => transport({ method: 'GET', path: '/', headers: {} }));
  const settled = await Promise.allSettled(answers);
  assert.deepEqual(
    settled.map((one) => (one.status === 'rejected' ? (one.reason as { code?: string }).code : 'answered')),
    ['ECONNREFUSED', 'ECONNREFUSED', 'ECONNREFUSED'],
  );
  transport.close();
});
