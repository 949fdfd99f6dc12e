import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { isRunning } from '../src/kernel/process-identity.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { setBridgeNetfilter } from './testing/bridge-netfilter.ts';
import { type Cluster, startCluster } from './testing/cluster.ts';
import { type ForgeryScene, passedWays, wayCount } from './testing/forged-packets.ts';
import { forgeryScene } from './testing/forgery-scene.ts';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';

/** No packet of a pod passes a policy, by whatever frame or socket, in any mode, family and overlay. */

const MODES = ['nftables', 'ebpf', 'iptables', 'userspace'] as const;

/** Every way is tried in each mode without and with tunnels, and with each choice of families. */
const CLUSTERS = [
  { family: 'dual', overlay: 'routes', modes: MODES },
  { family: 'dual', overlay: 'vxlan', modes: TAKES_FULL_PRODUCT ? MODES : (['ebpf', 'iptables'] as const) },
  { family: 'ipv4', overlay: 'vxlan', modes: ['nftables'] },
  { family: 'ipv6', overlay: 'vxlan', modes: TAKES_FULL_PRODUCT ? ['nftables', 'userspace'] : ['userspace'] },
] as const;

/** The pause after a kill: the agents start in the meantime, or not. */
const KILL_MS = 700;

/** Kills the agents that run; returns how many. */
function killAgents(cluster: Cluster): number {
  let killed = 0;
  for (const { agent } of cluster.state().nodes) {
    if (!agent || !isRunning(agent)) continue;
    process.kill(agent.pid, 'SIGKILL');
    killed++;
  }
  return killed;
}

for (const { family, overlay, modes } of CLUSTERS) {
  describe(`${family}, ${overlay}`, () => {
    let cluster: Cluster;
    let scene: ForgeryScene;
    before(async () => {
      cluster = await startCluster(['--nodes', '2', '--ip-family', family, '--overlay', overlay]);
      scene = await forgeryScene(cluster);
    });
    after(() => cluster?.down());

    const assertNonePasses = async () => {
      const passed = await passedWays(scene);
      const lines = passed.map(({ way, at, count }) => `${way}: ${count} of 3 at ${at}`);
      assert.deepEqual(lines, [], `${passed.length} of ${wayCount(scene)} pass`);
    };

    for (const mode of modes) {
      test(`${mode}: forged packets: 0 pass`, async () => {
        const { status, error } = await cluster.fairlead('mode', mode);
        assert.equal(status, 0, error);
        await assertNonePasses();
      });
    }

    const isFirst = family === 'dual' && overlay === 'routes';
    for (const mode of isFirst ? ['nftables', 'iptables'] : []) {
      test(`${mode}, the kernel shows bridged packets to the rules of IP (br_netfilter): 0 pass`, async (t) => {
        await cluster.fairlead('mode', mode);
        const nodes = scene.nodes.map(({ netns }) => netns);
        try {
          if (!setBridgeNetfilter(nodes, true)) t.skip('this kernel has no br_netfilter');
          else await assertNonePasses();
        } finally {
          setBridgeNetfilter(nodes, false);
        }
      });
    }

    const isTunnelled = family === 'dual' && overlay === 'vxlan';
    for (const mode of isTunnelled ? ['nftables', 'ebpf'] : []) {
      test(`${mode}, while the agents are killed and start again: 0 pass`, async () => {
        await cluster.fairlead('mode', mode);
        let isOver = false;
        let kills = 0;
        const killing = (async () => {
          while (!isOver) {
            kills += killAgents(cluster);
            await new Promise((resolve) => setTimeout(resolve, KILL_MS));
          }
        })();
        try {
          // Until an agent has been killed that had started again.
          do await assertNonePasses();
          while (kills <= 2);
        } finally {
          isOver = true;
          await killing;
        }
        await eventually(async () => (await cluster.fairlead('status')).status === 0);
      });
    }
  });
}
