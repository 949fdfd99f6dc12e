import { after, before, describe, test } from 'node:test';
import { CALICO, CILIUM } from './testing/bpf-origin.ts';
import { kubeProxyIn, NO_KUBE_PROXY } from './testing/kube-proxy-origin.ts';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';
import { type Origin, startTakeOverScene, type TakeOverScene, takeOverFrom } from './testing/take-over.ts';

const MODES = ['nftables', 'iptables', 'ebpf', 'userspace'];

/**
 * Each row has a deleted, an emptied and a Local Service, load and open connections. An origin's state is removed by the same
 * code in each mode, except where the mode has rules or programs of the same kind: each origin is followed by such a mode and
 * by one other, each mode follows two origins, and all pairs are the full product.
 */
const ORIGINS: readonly [what: string, origin: Origin, modes: readonly string[], skip: string | false][] = [
  ['kube-proxy in iptables mode', kubeProxyIn('iptables'), ['iptables', 'nftables'], NO_KUBE_PROXY],
  ['kube-proxy in nftables mode', kubeProxyIn('nftables'), ['nftables', 'userspace'], NO_KUBE_PROXY],
  ['like Cilium', CILIUM, ['ebpf', 'userspace'], false],
  ['like Calico in eBPF mode', CALICO, ['ebpf', 'iptables'], false],
];

for (const [what, origin, chosen, skip] of ORIGINS) {
  // A cluster for each: the supervisor restarts an agent later and later if it is killed again and again.
  describe(`take-over from ${what}`, { skip }, () => {
    let scene: TakeOverScene;
    before(async () => {
      scene = await startTakeOverScene();
    });
    after(() => scene?.cluster.down());

    for (const ours of TAKES_FULL_PRODUCT ? MODES : chosen)
      test(`→ ${ours} mode`, () => takeOverFrom(scene, origin, ours));
  });
}
