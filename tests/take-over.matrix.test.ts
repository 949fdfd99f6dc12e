import { after, before, describe, test } from 'node:test';
import { CALICO, CILIUM } from './testing/bpf-origin.ts';
import { kubeProxyIn, NO_KUBE_PROXY } from './testing/kube-proxy-origin.ts';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';
import { type Origin, startTakeOverScene, type TakeOverScene, takeOverFrom } from './testing/take-over.ts';

const MODES = ['nftables', 'iptables', 'ebpf', 'userspace'];

/**
 * Each row has a deleted, an emptied and a Local Service, load and open connections. An origin's state is removed by the same
 * code in each mode, except where the mode has rules or programs of the same kind. Here each mode follows the origin that is
 * most like it, or that no other file has: kube-proxy-takeover.netns.test.ts has both modes of kube-proxy followed by the
 * same mode, and Cilium by nftables mode. All pairs are the full product.
 */
const ORIGINS: readonly [what: string, origin: Origin, modes: readonly string[], skip: string | false][] = [
  ['kube-proxy in iptables mode', kubeProxyIn('iptables'), ['nftables'], NO_KUBE_PROXY],
  ['kube-proxy in nftables mode', kubeProxyIn('nftables'), ['userspace'], NO_KUBE_PROXY],
  ['like Cilium', CILIUM, ['ebpf'], false],
  ['like Calico in eBPF mode', CALICO, ['iptables'], false],
];

// At most four rows on a cluster: the supervisor restarts an agent later and later if it is killed again and again.
const SCENES = TAKES_FULL_PRODUCT ? ORIGINS.map((row) => [row]) : [ORIGINS];

for (const rows of SCENES) {
  const skip = rows.every(([, , , reason]) => reason !== false) && NO_KUBE_PROXY;
  describe(`take-over from ${rows.map(([what]) => what).join(', and ')}`, { skip }, () => {
    let scene: TakeOverScene;
    before(async () => {
      scene = await startTakeOverScene();
    });
    after(() => scene?.cluster.down());

    for (const [what, origin, chosen, reason] of rows)
      for (const ours of TAKES_FULL_PRODUCT ? MODES : chosen)
        test(`${what} → ${ours} mode`, { skip: reason }, () => takeOverFrom(scene, origin, ours));
  });
}
