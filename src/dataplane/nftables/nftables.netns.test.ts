import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import {
  testAffinityTime,
  testAffinityToLostEndpoint,
  testManyClients,
  testRestart,
} from '../testing/affinity-suite.ts';
import {
  testChangesInPlace,
  testChangesUnderLoad,
  testRemoval,
  testUnwritable,
} from '../testing/change-suite.ts';
import { testForeignChanges, testListing, testOwnership } from '../testing/nf-table-suite.ts';
import { testNodeSettings } from '../testing/node-suite.ts';
import { testAddressOfAnotherNode, testHairpin, testLoopback, testReach } from '../testing/reach-suite.ts';
import { testRefusals } from '../testing/refusal-suite.ts';
import { endpoint, frontend } from '../testing/service-map.ts';
import { createServiceScene, FAMILIES } from '../testing/service-scene.ts';
import { createNftables } from './nftables.ts';

const NAMES = {
  table: 'fairlead',
  chain: 'prerouting',
  frontends: 'services',
  addresses: 'cluster-ips',
};

describe('nftables mode', () => {
  const scene = createServiceScene({ open: (netns) => createNftables({ families: FAMILIES, netns }) });
  before(() => scene.start());
  after(() => scene.close());

  testReach(scene, () => testLoopback(scene));
  testRefusals(scene);
  testHairpin(scene);
  testAddressOfAnotherNode(scene);
  testManyClients(scene);
  testChangesInPlace(scene);
  testNodeSettings(scene);
  testAffinityToLostEndpoint(scene);
  testAffinityTime(scene, 'outside', 'NodePort');
  testChangesUnderLoad(scene);
  testRestart(scene);
  testListing(scene, 'reject');
  testOwnership(scene, NAMES.table);
  testForeignChanges(scene, NAMES, (netns, onForeignChange) =>
    createNftables({ families: FAMILIES, netns, owned: false, onForeignChange }),
  );

  test('maps that are too small are replaced, and large pools are spread evenly', async () => {
    const many = Array.from({ length: 400 }, (_, i) => endpoint(`10.244.3.${i % 250}`, 8000 + i));
    const frontends = (count: number) =>
      Array.from({ length: count }, (_, i) =>
        frontend({
          kind: 'ClusterIP',
          service: `m${i}`,
          address: `10.96.1.${i % 250}`,
          port: 80 + i,
          endpoints: many.slice(0, 5 + (i % 300)),
        }),
      );
    await scene.sync(frontends(3));
    for (const count of [40, 300, 10]) {
      await scene.apply(frontends(count));
      await scene.expectVerified();
    }
  });

  testUnwritable(scene);
  testRemoval(
    scene,
    () => {},
    () => assert.doesNotMatch(scene.topology.run('node', 'nft', 'list', 'tables'), /fairlead/),
  );
});
