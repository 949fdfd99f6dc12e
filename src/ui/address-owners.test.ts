import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAddressOwners } from './address-owners.ts';

const owners = createAddressOwners();
owners.putNode({ name: 'node-1', addresses: ['172.30.0.11'] }, [
  '10.244.1.0/24',
  'fd00:1::/64',
  'no network',
]);
owners.putNode({ name: 'node-2', addresses: ['172.30.0.12'] }, []);
const pod = { node: 'node-1', isHostNetwork: false };
owners.putPod({ ...pod, name: 'default/old', addresses: ['10.244.1.2'] });
owners.putPod({ ...pod, name: 'default/new', addresses: ['10.244.1.2', 'fd00:1::2'] });
owners.putPod({ ...pod, name: 'default/host', addresses: ['172.30.0.11'], isHostNetwork: true });

const ROWS: readonly (readonly [what: string, ip: string, owner: string | null, node: string | null])[] = [
  ['a node, not its pods with its address', '172.30.0.11', 'node/node-1', 'node-1'],
  ['the latest pod with an address', '10.244.1.2', 'default/new', 'node-1'],
  ['an IPv6 address', 'fd00:1::2', 'default/new', 'node-1'],
  ['a pod that was gone before the page began', '10.244.1.9', 'pod 10.244.1.9', 'node-1'],
  ['another of IPv6', 'fd00:1::9', 'pod fd00:1::9', 'node-1'],
  ['an address outside', '192.0.2.1', null, null],
  ['no address', 'x', null, null],
];
for (const [what, ip, owner, node] of ROWS)
  test(`the owner of ${what}`, () =>
    assert.deepEqual([owners.ownerOf(ip), owners.nodeOf(ip)], [owner, node]));
