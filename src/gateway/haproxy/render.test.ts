import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { backend, forward, httpMap, listener, NO_CHANGES, row, table } from '../testing/maps.ts';
import { hostMaps } from './host-maps.ts';
import { render } from './render.ts';
import { withServers } from './rendering.ts';
import { commandLines, complaint, serverChanges } from './server-changes.ts';

const SETTINGS = { threads: 2, maxConnections: 1000, user: { uid: 101, gid: 102 }, chroot: '/empty' };
const input = (routeMap: ReturnType<typeof httpMap>) => ({
  routeMap,
  settings: SETTINGS,
  binds: () => ['fd@3'],
  certificates: new Map<string, string>(),
  fallbackCertificate: '',
  authorities: new Map<string, string>(),
});

const MAP = httpMap(
  [
    listener('', [
      table('shop.example', [
        row('get', { kind: 'exact', path: '/cart' }, 'shop/cart:80', { method: 'GET' }),
        row(
          'cart',
          '/cart',
          forward([
            ['shop/cart:80', 9],
            ['shop/next:80', 1],
          ]),
        ),
        row('grpc', '/pkg.Api', forward('shop/api:9000', { protocol: 'grpc' })),
        row('old', '/old', {
          kind: 'redirect',
          scheme: 'https',
          host: null,
          port: null,
          path: { kind: 'prefix', path: '/new' },
          status: 301,
          response: NO_CHANGES,
        }),
      ]),
      table('*.shop.example', [row('all', '/', 'shop/all:80')], true),
    ]),
  ],
  [backend('shop/api:9000', { protocol: 'h2c' })],
);

test('the configuration is that of the golden file (UPDATE_GOLDEN=1 writes it)', () => {
  const files = withServers(render(input(MAP)), ({ port }) => [{ address: 'fd00::1', port }]);
  const text = [...files]
    .filter(([name]) => !name.endsWith('.pem'))
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, contents]) => `# ${name}\n${contents}`)
    .join('\n');
  const golden = join(import.meta.dirname, 'golden', 'shop.txt');
  if (process.env['UPDATE_GOLDEN']) writeFileSync(golden, text);
  assert.equal(text, readFileSync(golden, 'utf8'));
});

test('ten thousand hosts are lines of maps, and sections only for different backends', () => {
  const tables = Array.from({ length: 10_000 }, (_, i) =>
    table(`h${i}.example`, [row(`r${i}`, '/', `shop/s${i % 10}:80`)]),
  );
  const rendering = render(input(httpMap([listener('', tables)])));
  assert.equal(rendering.sections.length, 11);
  assert.equal(rendering.files.get('f0-host-exact.map')?.split('\n').length, 10_001);
});

test('a row that cannot be written is answered with 500, and the others go on', () => {
  const bad = forward('a/b:80', { request: { set: [{ name: 'x', value: 'a\nb' }], add: [], remove: [] } });
  const rendering = render(
    input(httpMap([listener('', [table('', [row('bad', '/bad', bad), row('good', '/', 'a/b:80')])])])),
  );
  assert.deepEqual(
    rendering.refused.map(({ id }) => id),
    ['bad'],
  );
  assert.deepEqual(rendering.rowsOf.get('s1'), ['good']);
});

describe('names', () => {
  const find = (name: string, maps: ReturnType<typeof hostMaps<ReturnType<typeof table>>>) =>
    maps.exact.get(name) ??
    maps.oneLabel.get(name.slice(name.indexOf('.') + 1)) ??
    [...maps.suffixes].find(([suffix]) => name.endsWith(suffix))?.[1] ??
    maps.other;

  test('belong to the most specific listener, then to its most specific table', () => {
    const maps = hostMaps([
      { hostname: 'a.b.c', hosts: [] },
      { hostname: '*.c', hosts: [table('*.b.c', [], true), table('*.c', [])] },
      { hostname: '', hosts: [table('', [])] },
    ]);
    assert.deepEqual(find('a.b.c', maps), { listener: 0, table: null });
    assert.equal(find('x.b.c', maps)?.table?.oneLabel, true);
    assert.equal(find('x.y.b.c', maps)?.table?.hostname, '*.c');
    assert.equal(find('c', maps)?.listener, 2);
  });
});

describe('changes of servers', () => {
  const section = { name: 's0', lines: [], backend: null, serverWords: ' proto h2' };

  test('add, park and use again', () => {
    const servers = { used: new Set(['10.0.0.1-80']), parked: new Set<string>() };
    assert.deepEqual(serverChanges(section, servers, [{ address: '10.0.0.2', port: 80 }]), [
      'add server s0/10.0.0.2-80 10.0.0.2:80 proto h2',
      'enable server s0/10.0.0.2-80',
      'set server s0/10.0.0.1-80 state maint',
    ]);
    assert.deepEqual(serverChanges(section, servers, [{ address: '10.0.0.1', port: 80 }]), [
      'set server s0/10.0.0.1-80 state ready',
      'set server s0/10.0.0.2-80 state maint',
    ]);
  });

  test('lines of commands fit into a buffer of HAProxy', () => {
    const lines = commandLines(Array.from({ length: 1000 }, (_, i) => `enable server s0/${i}`));
    assert.ok(lines.length > 1 && lines.every((line) => line.length <= 12_000));
  });

  test('everything but the confirmation of new servers is a complaint', () => {
    assert.equal(complaint('New server registered.\n\n'), null);
    assert.equal(complaint('No such backend.\n'), 'No such backend.');
  });
});
