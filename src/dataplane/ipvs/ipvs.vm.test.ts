import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { silentLogger } from '../../lib/log.ts';
import { eventually } from '../../lib/testing/eventually.ts';
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
import { resumeDrain } from './drain.ts';
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

  for (const [how, found] of [
    ['by default', { conntrack: 0, expire_nodest_conn: 0, expire_quiescent_template: 0, arp_ignore: 0 }],
    ['changed', { conntrack: 0, expire_nodest_conn: 1, expire_quiescent_template: 1, arp_ignore: 1 }],
  ] as const)
    test(`settings that were ${how} are given back as found, also by another process`, async () => {
      const { topology } = scene;
      const names = Object.keys(found).map((name) =>
        name === 'arp_ignore' ? 'net.ipv4.conf.all.arp_ignore' : `net.ipv4.vs.${name}`,
      );
      const shown = () =>
        topology
          .run('node', 'sysctl', '-n', ...names)
          .trim()
          .split(/\s+/)
          .map(Number);
      const values = Object.values(found);
      for (const [i, name] of names.entries()) topology.run('node', 'sysctl', '-qw', `${name}=${values[i]}`);
      let node = '';
      scene.reopen((netns) => {
        node = netns;
        return createIpvs({ families: FAMILIES, netns });
      });
      await scene.sync(scene.service(85, ALL));
      assert.deepEqual(shown(), [1, 1, 1, found.arp_ignore === 0 ? 3 : 1]);
      // The state stays for the next process.
      await scene.dataplane.close();
      scene.reopen();
      await scene.sync(scene.service(85, ALL));
      await scene.dataplane.remove();
      assert.deepEqual(shown(), values);
      assert.doesNotMatch(topology.run('node', 'ip', '-o', 'link'), /fairlead-ipvs/);
      scene.reopen();
      await scene.sync(scene.service(85, ALL));
      // Switched away from: another process ends the rest of the mode.
      await scene.dataplane.remove({ succeeded: true });
      await resumeDrain({
        families: FAMILIES,
        clock: systemClock,
        logger: silentLogger,
        netns: node,
      });
      await eventually(shown, (now) => now.join() === values.join());
    });
});
