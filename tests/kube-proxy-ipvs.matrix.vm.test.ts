import { after, before, describe, test } from 'node:test';
import { kubeProxyIn, NO_KUBE_PROXY } from './testing/kube-proxy-origin.ts';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';
import { startTakeOverScene, type TakeOverScene, takeOverFrom } from './testing/take-over.ts';

/** The machine has one slow processor: requests are few, and late ones do not count as lost. */
const PACE = {
  load: ['--timeout', '20000', '--concurrency', '1', '--rate', '10', '--count', '50'],
  timeout: '3000',
};

/**
 * A row takes minutes there. The rules of kube-proxy are removed by the same code in each mode, except where a mode has rules
 * of the same kind: IPVS, which has to tell its virtual servers from kube-proxy's, and drains them as the others do. The full
 * product has all modes.
 */
const MODES = TAKES_FULL_PRODUCT
  ? ['nftables', 'ebpf', 'ipvs', 'iptables', 'userspace']
  : (process.env['FAIRLEAD_TAKE_OVER_MODES'] || 'ipvs').split(' ');

describe('a node with kube-proxy in IPVS mode', { skip: NO_KUBE_PROXY }, () => {
  let scene: TakeOverScene;
  before(async () => {
    scene = await startTakeOverScene();
  });
  after(() => scene?.cluster.down());

  for (const ours of MODES) {
    test(`→ ${ours} mode: no request fails, open connections continue, and nothing of kube-proxy remains`, () =>
      takeOverFrom(scene, kubeProxyIn('ipvs'), ours, PACE));
  }
});
