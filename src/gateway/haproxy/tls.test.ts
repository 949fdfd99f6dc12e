import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { connect } from 'node:tls';
import { createAuthority } from '../../lib/pki.ts';
import type { RouteMap } from '../route-map.ts';
import { backend, listener, row, table } from '../testing/maps.ts';
import { HAPROXY, parseAnswer, type RunningProxy, startMirror, startProxy } from './testing/running-proxy.ts';

const termination = (key: string) => ({ certificates: [key], minVersion: '1.2' as const, clients: null });
const secure = (hostname: string, key: string) => ({
  ...listener(hostname, [table(hostname, [row(`r-${hostname}`, '/', 'b/one:80')])], `https-${hostname}`),
  kind: 'https' as const,
  tls: termination(key),
});

describe('TLS', { skip: HAPROXY === null && 'HAProxy is not installed' }, () => {
  let proxy: RunningProxy;
  let mirror: Awaited<ReturnType<typeof startMirror>>;
  before(async () => {
    proxy = await startProxy();
    mirror = await startMirror();
    const authority = createAuthority('test', new Date());
    const pem = (name: string) => {
      const { cert, key } = authority.issue({ commonName: name, names: [name], usage: 'server' });
      return `${cert.trim()}\n${key.trim()}\n`;
    };
    const map: RouteMap = {
      gateways: [
        {
          key: 'gateway/a/b',
          addresses: [],
          ports: [
            {
              kind: 'tls',
              port: 443,
              listeners: [
                secure('one.example', 'a/one'),
                secure('two.example', 'a/two'),
                secure('*.example', 'a/missing'),
              ],
            },
          ],
        },
      ],
      backends: [backend('b/one:80')],
    };
    const certificates = new Map([
      ['a/one', pem('one.example')],
      ['a/two', pem('two.example')],
    ]);
    const rendering = proxy.render(map, { certificates, fallbackCertificate: pem('fallback') });
    assert.equal(await proxy.replace(rendering, () => [{ address: '127.0.0.1', port: mirror.port }]), null);
  });
  after(async () => {
    await proxy?.stop();
    await mirror?.close();
  });

  const ask = (servername: string, host: string) =>
    new Promise<{ status: number; subject: string }>((resolve, reject) => {
      const socket = connect({ host: '127.0.0.1', port: proxy.port, servername, rejectUnauthorized: false });
      let text = '';
      let subject = '';
      socket.on('secureConnect', () => {
        subject = String(socket.getPeerCertificate().subject.CN);
        socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
      });
      socket.on('data', (chunk) => {
        text += chunk.toString('latin1');
      });
      socket.on('error', reject);
      socket.on('close', () => resolve({ status: parseAnswer(text).status, subject }));
    });

  test('the certificate is chosen by server name', async () => {
    assert.deepEqual(await ask('one.example', 'one.example'), { status: 200, subject: 'one.example' });
    assert.deepEqual(await ask('two.example', 'two.example:443'), { status: 200, subject: 'two.example' });
  });

  test('a missing certificate is replaced by one of our own', async () => {
    assert.deepEqual(await ask('x.example', 'x.example'), { status: 200, subject: 'fallback' });
  });

  test('a host of another listener is answered with 421, one of none with 404', async () => {
    assert.equal((await ask('one.example', 'two.example')).status, 421);
    assert.equal((await ask('x.example', 'one.example')).status, 421);
    assert.equal((await ask('one.example', 'other.test')).status, 404);
  });

  test('a server name without a listener gets no answer', async () => {
    assert.equal((await ask('other.test', 'one.example').catch(() => ({ status: 0 }))).status, 0);
  });
});
