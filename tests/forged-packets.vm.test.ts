import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Cluster, startCluster } from './testing/cluster.ts';
import { type ForgeryScene, passedWays, wayCount } from './testing/forged-packets.ts';
import { forgeryScene } from './testing/forgery-scene.ts';

/** See forged-packets.netns.test.ts; this kernel has IPVS, and neither VXLAN nor nf_tables of the family bridge. */
for (const overlay of ['routes']) {
  describe(`IPVS mode, ${overlay}`, () => {
    let cluster: Cluster;
    let scene: ForgeryScene;
    before(async () => {
      const options = ['--nodes', '2', '--ip-family', 'dual', '--overlay', overlay, '--mode', 'ipvs'];
      cluster = await startCluster(options);
      scene = await forgeryScene(cluster);
    });
    after(() => cluster?.down());

    test('forged packets: 0 pass', async () => {
      const passed = await passedWays(scene);
      const lines = passed.map(({ way, at, count }) => `${way}: ${count} of 3 at ${at}`);
      assert.deepEqual(lines, [], `${passed.length} of ${wayCount(scene)} pass`);
    });
  });
}
