import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addressesInHosts, namesToAsk, readResolverSettings } from './resolver-settings.ts';

const pod = readResolverSettings(
  'search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\nnameserver FD00::A\noptions ndots:5 timeout:1\n',
);

test('a resolv.conf is parsed: servers, search path, ndots', () => {
  assert.deepEqual(pod, {
    servers: ['10.96.0.10', 'fd00::a'],
    search: ['shop.svc.cluster.local', 'svc.cluster.local', 'cluster.local'],
    ndots: 5,
  });
  assert.deepEqual(readResolverSettings('# nothing\n'), { servers: [], search: [], ndots: 1 });
});

const rows: readonly [name: string, ndots: number, first: string, count: number][] = [
  ['web', 5, 'web.shop.svc.cluster.local', 4],
  ['web.lab', 5, 'web.lab.shop.svc.cluster.local', 4],
  ['web.lab', 1, 'web.lab', 4],
  ['web.lab.svc.cluster.local', 5, 'web.lab.svc.cluster.local.shop.svc.cluster.local', 4],
  ['web.lab.svc.cluster.local.', 5, 'web.lab.svc.cluster.local', 1],
];
for (const [name, ndots, first, count] of rows) {
  test(`${name} with ndots ${ndots} is asked as ${first} first`, () => {
    const names = namesToAsk(name, { ...pod, ndots });
    assert.equal(names[0], first);
    assert.equal(names.length, count);
  });
}

test('names in a hosts file are case-insensitive, and comments are ignored', () => {
  const text = '127.0.0.1 localhost\n10.96.0.1\tMy-Web web # the shop\nfd00::1 my-web\n# 1.2.3.4 my-web\n';
  assert.deepEqual(addressesInHosts(text, 'my-web'), ['10.96.0.1', 'fd00::1']);
  assert.deepEqual(addressesInHosts(text, 'shop'), []);
});
