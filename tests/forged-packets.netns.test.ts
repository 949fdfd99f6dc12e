import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Cluster, startCluster } from './testing/cluster.ts';
import { type ForgeryScene, passedWays, wayCount } from './testing/forged-packets.ts';
import { forgeryScene } from './testing/forgery-scene.ts';

/** No packet of a pod passes a policy, by whatever frame or socket, in any mode, family and overlay. */

const CLUSTERS = [
  { family: 'dual', overlay: 'routes', modes: ['nftables', 'ebpf', 'iptables', 'userspace'] },
  { family: 'dual', overlay: 'vxlan', modes: ['nftables', 'ebpf', 'iptables', 'userspace'] },
  { family: 'ipv4', overlay: 'vxlan', modes: ['nftables'] },
  { family: 'ipv6', overlay: 'vxlan', modes: ['nftables'] },
] as const;

for (const { family, overlay, modes } of CLUSTERS) {
  describe(`${family}, ${overlay}`, () => {
    let cluster: Cluster;
    let scene: ForgeryScene;
    before(async () => {
      cluster = await startCluster(['--nodes', '2', '--ip-family', family, '--overlay', overlay]);
      scene = await forgeryScene(cluster);
    });
    after(() => cluster?.down());

    for (const mode of modes) {
      test(`${mode}: forged packets: 0 pass`, async () => {
        const { status, error } = await cluster.fairlead('mode', mode);
        assert.equal(status, 0, error);
        const passed = await passedWays(scene);
        const lines = passed.map(({ way, at, count }) => `${way}: ${count} of 3 at ${at}`);
        assert.deepEqual(lines, [], `${passed.length} of ${wayCount(scene)} pass`);
      });
    }
  });
}
