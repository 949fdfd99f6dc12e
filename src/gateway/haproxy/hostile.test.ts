import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createAuthority } from '../../lib/pki.ts';
import type { RouteMap, Termination } from '../route-map.ts';
import { backend, forward, httpMap, listener, row, table } from '../testing/maps.ts';
import { HAPROXY, type RunningProxy, sendRaw, startMirror, startProxy } from './testing/running-proxy.ts';

/** Routes that would make HAProxy refuse its whole configuration, or the agent render one without end. */

const many = <T>(count: number, make: (index: number) => T): readonly T[] =>
  Array.from({ length: count }, (_, i) => make(i));
const mapOf = (rows: Parameters<typeof table>[1]): RouteMap => httpMap([listener('', [table('', rows)])]);
const values = (count: number, last: string) =>
  many(count, (i) => ({ name: `x-${i}`, kind: 'exact' as const, value: i === count - 1 ? last : 'v' }));

describe('routes of enemies', { skip: HAPROXY === null && 'HAProxy is not installed' }, () => {
  let proxy: RunningProxy;
  let mirror: Awaited<ReturnType<typeof startMirror>>;
  before(async () => {
    proxy = await startProxy();
    mirror = await startMirror();
  });
  after(async () => {
    await proxy?.stop();
    await mirror?.close();
  });
  const endpoints = () => [{ address: '127.0.0.1', port: mirror.port }];
  const get = async (target: string, headers: readonly string[] = []) => {
    const lines = [`GET ${target} HTTP/1.1`, 'Host: a.example', 'Connection: close', ...headers];
    return (await sendRaw(proxy.port, `${lines.join('\r\n')}\r\n\r\n`)).status;
  };

  test('as many headers and parameters as the API allows are compared, each by its own row', async () => {
    const both = (last: string) => ({ headers: values(16, last), query: values(16, last) });
    const rendering = proxy.render(
      mapOf([
        row('one', '/a', 'b/one:80', both('one')),
        row('two', '/a', 'b/one:80', both('two')),
        row('three', '/b', { kind: 'error', status: 503, reason: '' }, { headers: values(9, 'x') }),
      ]),
    );
    assert.deepEqual(rendering.refused, []);
    assert.equal(await proxy.replace(rendering, endpoints), null);
    const headers = (last: string) => values(16, last).map(({ name, value }) => `${name}: ${value}`);
    const query = (last: string) =>
      `/a?${values(16, last)
        .map(({ name, value }) => `${name}=${value}`)
        .join('&')}`;
    assert.equal(await get(query('one'), headers('one')), 200);
    assert.equal(await get(query('two'), headers('two')), 200);
    assert.equal(
      await get(query('two'), headers('one')),
      404,
      'the headers of one row, the query of the other',
    );
    assert.equal(await get('/b', headers('v')), 404);
    assert.equal(
      await get(
        '/b',
        values(9, 'x').map(({ name, value }) => `${name}: ${value}`),
      ),
      503,
    );
  });

  test('hundreds of source ranges and the longest times of the API are accepted', async () => {
    const sources = [...many(255, (i) => `10.0.${i}.0/24`), '127.0.0.0/8'];
    const longest = 4 * 99_999 * 3_600_000;
    const timeouts = { request: longest, backend: longest, connect: longest };
    const affinity = { cookie: 'kept', lifetime: longest / 1000 };
    const rendering = proxy.render(
      mapOf([
        row('in', '/in', forward('b/one:80', { sources, timeouts })),
        row('out', '/out', forward('b/one:80', { sources: sources.slice(0, 255) })),
        row('kept', '/kept', forward('b/one:80', { affinity })),
      ]),
    );
    assert.equal(await proxy.replace(rendering, endpoints), null);
    assert.equal(await get('/in'), 200);
    assert.equal(await get('/out'), 403);
    assert.equal(await get('/kept'), 200);
  });

  test('expressions beside paths of a host add up, and are not multiplied', () => {
    const { head } = proxy.render(
      mapOf([
        ...many(300, (i) => row(`r${i}`, { kind: 'regex', regex: `/r${i}.*` }, 'b/one:80')),
        ...many(300, (i) => row(`p${i}`, `/p${i}`, 'b/one:80')),
      ]),
    );
    assert.ok(head.length < 200_000, `${head.length} bytes`);
  });

  test('so do paths in each other with further conditions', () => {
    const headers = values(1, 'x');
    const { head } = proxy.render(
      mapOf(many(300, (i) => row(`p${i}`, '/a'.repeat(300 - i), 'b/one:80', { headers }))),
    );
    assert.ok(head.length < 300_000, `${head.length} bytes`);
  });

  test('names of Secrets as long as the API allows are those of files', async () => {
    const key = `${'n'.repeat(63)}/${'s'.repeat(253)}`;
    const pem = certificate();
    const rendering = proxy.render(tlsMap({ certificates: [key] }), {
      certificates: new Map([[key, pem]]),
      fallbackCertificate: pem,
    });
    assert.equal(await proxy.replace(rendering, endpoints), null);
  });

  test('listeners with authorities for clients have them; a missing one admits no client', async () => {
    const pem = certificate();
    for (const authorities of [new Map(), new Map([['a/ConfigMap/ca', pem]])]) {
      const rendering = proxy.render(
        tlsMap({
          certificates: ['a/tls'],
          clients: { authorities: ['a/ConfigMap/ca'], optional: false },
        }),
        { authorities, fallbackCertificate: pem },
      );
      assert.equal(await proxy.replace(rendering, endpoints), null);
    }
  });

  test('backends whose certificate or authority is missing do not stop the others', async () => {
    const tls = { hostname: 'b.example', names: [], verify: true };
    const missing = { ...tls, authorities: ['a/Secret/gone'], certificate: 'a/gone' };
    const map = httpMap(
      [listener('', [table('', [row('one', '/a', 'b/one:80'), row('two', '/b', 'b/two:80')])])],
      [backend('b/one:80', { tls: missing })],
    );
    const rendering = proxy.render(map, { fallbackCertificate: certificate() });
    assert.equal(await proxy.replace(rendering, endpoints), null);
    assert.equal(await get('/b'), 200);
    assert.equal(await get('/a'), 503);
  });
});

function certificate(): string {
  const { cert, key } = createAuthority('test', new Date()).issue({ commonName: 'test', usage: 'server' });
  return `${cert.trim()}\n${key.trim()}\n`;
}

/** Returns a map with one listener for TLS. */
function tlsMap(tls: Partial<Termination>): RouteMap {
  const map = mapOf([row('one', '/', 'b/one:80')]);
  const https = {
    ...listener('a.example', [table('a.example', [row('one', '/', 'b/one:80')])]),
    kind: 'https' as const,
    tls: { certificates: [], minVersion: '1.2' as const, clients: null, ...tls },
  };
  const [gateway] = map.gateways;
  assert.ok(gateway);
  return { ...map, gateways: [{ ...gateway, ports: [{ kind: 'tls', port: 443, listeners: [https] }] }] };
}
