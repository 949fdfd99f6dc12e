import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Node } from '../kube/types.ts';
import { nameServerOfNode } from '../network/dns-fallback.ts';
import { chosenNameServers, fallbackNameServers, nextNameServer, otherNameServers } from './name-servers.ts';

const node = (
  number: number,
  ready = 'True',
  podCIDRs = [`10.244.${number}.0/24`, `fd00:${number}::/64`],
): Node => ({
  metadata: { name: `node-${number}` },
  spec: { podCIDRs },
  status: { conditions: [{ type: 'Ready', status: ready }] },
});
const NODES = [node(1), node(2), node(3), node(4, 'False'), node(5, 'Unknown'), node(6, 'True', [])];
const OWN = ['10.96.0.10', 'fd00:96::a'];

test('other name servers are those of ready nodes with pod networks, of both families', () => {
  assert.deepEqual(otherNameServers('node-1', NODES, 8).sort(), [
    '10.244.2.1',
    '10.244.3.1',
    'fd00:2::1',
    'fd00:3::1',
  ]);
});

test('the number of other nodes is bounded', () => {
  assert.equal(otherNameServers('node-1', NODES, 1).length, 2);
});

test('pods get the first of the other name servers, in the primary family', () => {
  const others = otherNameServers('node-1', NODES, 8).filter((address) => !address.includes(':'));
  assert.deepEqual(fallbackNameServers(OWN, 'node-1', NODES), others);
});

for (const [here, next] of [
  ['node-1', '10.244.2.1'],
  ['node-2', '10.244.3.1'],
  ['node-3', '10.244.1.1'],
  ['node-9', '10.244.1.1'],
] as const) {
  test(`the next node after ${here} has ${next}`, () => assert.equal(nextNameServer(here, NODES)[0], next));
}

test('if no other node is ready, those that are not are asked', () => {
  const away = [node(1), node(2, 'False'), node(3, 'Unknown')];
  assert.equal(nextNameServer('node-1', away)[0], '10.244.2.1');
  assert.equal(otherNameServers('node-1', away, 8).length, 4);
});

test('a single node has no next one', () => {
  assert.deepEqual(nextNameServer('node-1', [node(1)]), []);
  assert.deepEqual(otherNameServers('node-1', [node(1)], 8), []);
});

test('of many name servers in pods, each node chooses some, and not all nodes the same', () => {
  const all = Array.from({ length: 20 }, (_, i) => nameServerOfNode(`10.244.1.${i}`));
  const chosen = (here: string) => chosenNameServers(here, all, 8).map(({ address }) => address);
  assert.deepEqual(chosen('node-1'), chosen('node-1'));
  assert.equal(new Set(chosen('node-1')).size, 8);
  assert.notDeepEqual(chosen('node-1').sort(), chosen('node-2').sort());
});
