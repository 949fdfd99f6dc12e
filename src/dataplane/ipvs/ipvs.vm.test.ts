import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { testAffinityToLostEndpoint, testManyClients, testRestart } from '../testing/affinity-suite.ts';
import {
  testChangesInPlace,
  testChangesUnderLoad,
  testRemoval,
  testUnwritable,
} from '../testing/change-suite.ts';
import { testForeignChanges, testListing, testOwnership } from '../testing/nf-table-suite.ts';
import { testNodeSettings } from '../testing/node-suite.ts';
import { testHairpin, testLoopback, testReach } from '../testing/reach-suite.ts';
import { testRefusals } from '../testing/refusal-suite.ts';
import { ALL, createServiceScene, FAMILIES } from '../testing/service-scene.ts';
import { createIpvs } from './ipvs.ts';

const NAMES = {
  table: 'fairlead-ipvs',
  chain: 'input',
  frontends: 'services',
  addresses: 'addresses',
};

describe('IPVS mode', () => {
  const scene = createServiceScene({ open: (netns) => createIpvs({ families: FAMILIES, netns }) });
  before(() => scene.start());
  after(() => scene.close());

  testReach(scene, () => testLoopback(scene));
  testRefusals(scene);
  testHairpin(scene);
  testManyClients(scene);
  testChangesInPlace(scene);
  testNodeSettings(scene);
  testAffinityToLostEndpoint(scene);
  test('affinity is implemented as persistence of virtual servers', async () => {
    await scene.sync(scene.service(84, ALL, 'plain', { affinitySeconds: 1 }));
    await scene.ask('outside', 'TCP', ...scene.destination('NodePort', 'ipv4', 84));
    assert.match(scene.topology.run('node', 'ipvsadm', '-Ln'), /192\.0\.0\.8:\d+ rr persistent 1$/m);
  });
  // A first packet that arrives during a commit may be dropped.
  testChangesUnderLoad(scene, { silent: 2 });
  testRestart(scene);
  testListing(scene, 'refuse');
  testOwnership(scene, NAMES.table);
  testForeignChanges(scene, NAMES, (netns, onForeignChange) =>
    createIpvs({ families: FAMILIES, netns, owned: false, onForeignChange }),
  );
  testUnwritable(scene);
  testRemoval(
    scene,
    () => {},
    () => assert.doesNotMatch(scene.topology.run('node', 'nft', 'list', 'tables'), /fairlead/),
  );
});
