import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../src/lib/testing/eventually.ts';
import { CILIUM } from './testing/bpf-origin.ts';
import { LAUNCHER } from './testing/cluster.ts';
import { startHeldKubeProxy } from './testing/held-kube-proxy.ts';
import { kubeProxyIn, NO_KUBE_PROXY } from './testing/kube-proxy-origin.ts';
import { compareWithKubeProxy } from './testing/kube-proxy-rules.ts';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';
import { startTakeOverScene, type TakeOverScene, takeOverFrom } from './testing/take-over.ts';

/**
 * An agent takes over a node from another proxy, and refuses to start while it runs; `cleanup` leaves a running kube-proxy
 * alone. take-over.matrix.test.ts has all combinations, kube-proxy-ipvs.matrix.vm.test.ts those with kube-proxy in IPVS mode.
 */

const policy = (egress: string) => `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: near}
spec: {podSelector: {matchLabels: {app: near}}, policyTypes: [Egress], egress: ${egress}}
`;

describe('a node with another proxy', () => {
  let scene: TakeOverScene;
  before(async () => {
    scene = await startTakeOverScene();
  });
  after(() => scene?.cluster.down());

  for (const [theirs, ours] of [
    ['iptables', 'iptables'],
    ['nftables', 'nftables'],
  ] as const) {
    test(
      `kube-proxy in ${theirs} mode → ${ours} mode: no request fails, and no state of kube-proxy remains`,
      {
        skip: NO_KUBE_PROXY,
      },
      () => takeOverFrom(scene, kubeProxyIn(theirs), ours),
    );
  }

  test('kube-proxy writes the rules that "explain --modes" says it would', { skip: NO_KUBE_PROXY }, () =>
    compareWithKubeProxy(scene, 'hello'),
  );

  test('like Cilium → nftables mode: no request fails, and nothing else translates Services', () =>
    takeOverFrom(scene, CILIUM, 'nftables'));

  // The same modes, whose rules have like names and places, and a mode that has programs instead of rules: what waits is one.
  for (const [ours, theirs] of [
    ['iptables', 'iptables'],
    ['ebpf', 'nftables'],
    ...(TAKES_FULL_PRODUCT
      ? ([
          ['nftables', 'iptables'],
          ['nftables', 'nftables'],
        ] as const)
      : []),
  ] as const) {
    test(`back from ${ours} mode to kube-proxy in ${theirs} mode: cleanup waits for its rules, no request fails`, {
      skip: NO_KUBE_PROXY,
    }, async () => {
      const { cluster, service, namespace, onNode } = scene;
      assert.equal((await cluster.fairlead('mode', ours, '--node', 'node-1')).status, 0);
      await scene.killAgent();
      const kubeProxy = await startHeldKubeProxy(scene, theirs);
      const load = cluster.load('node/node-1', `http://${service}`);
      try {
        const words = ['netns', 'exec', namespace, LAUNCHER, 'cleanup', '--config', scene.proxyOnly];
        const cleanup = spawn('ip', words, { stdio: ['ignore', 'ignore', 'pipe'] });
        const ended = once(cleanup, 'exit');
        let printed = '';
        cleanup.stderr.setEncoding('utf8').on('data', (text: string) => {
          printed += text;
        });
        await eventually(() => printed.includes('waiting for kube-proxy') || cleanup.exitCode !== null);
        assert.match(printed, /waiting for kube-proxy \(process [0-9]+\)/);
        kubeProxy.release();
        assert.deepEqual(await ended, [0, null], printed);
        assert.doesNotMatch(onNode('nft', 'list', 'ruleset'), /table ip6? fairlead(-fallback)? |KUBE-IP-ALL/);
      } finally {
        const { failures } = await load.stop();
        await kubeProxy.stop();
        await scene.startAgent();
        assert.deepEqual(failures, {});
      }
    });
  }

  test('an agent with only policies enforces them alongside kube-proxy, and its cleanup removes only them', {
    skip: NO_KUBE_PROXY,
  }, async () => {
    const { cluster, service, onNode, fairleadOnNode, isAnswered } = scene;
    await scene.createClient();
    await scene.killAgent();
    assert.equal((await fairleadOnNode('cleanup', '--config', scene.proxyOnly)).status, 0);
    const kubeProxy = await kubeProxyIn('iptables').start(scene, [service]);
    try {
      await eventually(isAnswered, Boolean);
      await cluster.apply(policy('[]'));
      assert.ok(await isAnswered(), 'nothing enforces policies on the node yet');
      await scene.withAgent(scene.policyOnly, async () => {
        await eventually(isAnswered, (answered) => !answered);
        await cluster.apply(policy('[{to: [{podSelector: {matchLabels: {app: hello}}}]}]'));
        await eventually(isAnswered, Boolean);
      });
      const foreign = onNode('iptables-save', '-t', 'nat');
      assert.match(onNode('nft', 'list', 'tables'), /fairlead-policy/);
      assert.equal((await fairleadOnNode('cleanup', '--config', scene.policyOnly)).status, 0);
      assert.doesNotMatch(onNode('nft', 'list', 'tables'), /fairlead-policy/);
      const chains = (text: string) => text.split('\n').filter((line) => line.startsWith('-A'));
      assert.deepEqual(chains(onNode('iptables-save', '-t', 'nat')), chains(foreign));
    } finally {
      await kubeProxy.stop();
      await cluster.ask('delete', 'networkpolicy', 'near', '--ignore-not-found');
      await scene.startAgent();
    }
  });
});
