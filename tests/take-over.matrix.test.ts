import { after, before, describe, test } from 'node:test';
import { CALICO, CILIUM } from './testing/bpf-origin.ts';
import { kubeProxyIn, NO_KUBE_PROXY } from './testing/kube-proxy-origin.ts';
import { type Origin, startTakeOverScene, type TakeOverScene, takeOverFrom } from './testing/take-over.ts';

/** Each origin with each of our modes; each row has a deleted, an emptied and a Local Service, load and open connections. */
const ORIGINS: readonly [what: string, origin: Origin, skip: string | false][] = [
  ['kube-proxy in iptables mode', kubeProxyIn('iptables'), NO_KUBE_PROXY],
  ['kube-proxy in nftables mode', kubeProxyIn('nftables'), NO_KUBE_PROXY],
  ['like Cilium', CILIUM, false],
  ['like Calico in eBPF mode', CALICO, false],
];
const MODES = ['nftables', 'iptables', 'ebpf', 'userspace'];

for (const [what, origin, skip] of ORIGINS) {
  // A cluster for each: the supervisor restarts an agent later and later if it is killed again and again.
  describe(`take-over from ${what}`, { skip }, () => {
    let scene: TakeOverScene;
    before(async () => {
      scene = await startTakeOverScene();
    });
    after(() => scene?.cluster.down());

    for (const ours of MODES) test(`→ ${ours} mode`, () => takeOverFrom(scene, origin, ours));
  });
}
