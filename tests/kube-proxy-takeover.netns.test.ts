import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';
import { messageOf } from '../src/lib/errors.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { CILIUM } from './testing/bpf-origin.ts';
import { LAUNCHER } from './testing/cluster.ts';
import { kubeProxyIn, NO_KUBE_PROXY } from './testing/kube-proxy-origin.ts';
import { startTakeOverScene, type TakeOverScene, takeOverFrom } from './testing/take-over.ts';

/**
 * An agent takes over a node from another proxy, and refuses to start while it runs; `cleanup` leaves a running kube-proxy
 * alone. take-over.matrix.test.ts has all combinations, kube-proxy-ipvs.matrix.vm.test.ts those with kube-proxy in IPVS mode.
 */

const NEAR = `
apiVersion: v1
kind: Pod
metadata: {name: near, labels: {app: near}}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: fairlead, command: [sleep, infinity]}]
`;
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

  test('like Cilium → nftables mode: no request fails, and nothing translates Services any more', () =>
    takeOverFrom(scene, CILIUM, 'nftables'));

  test('an agent with only policies enforces them alongside kube-proxy, and its cleanup removes only them', {
    skip: NO_KUBE_PROXY,
  }, async () => {
    const { cluster, service, onNode, fairleadOnNode } = scene;
    await cluster.apply(NEAR);
    await cluster.ask('wait', '--for=condition=Ready', 'pod', 'near', '--timeout=120s');
    await scene.killAgent();
    assert.equal((await fairleadOnNode('cleanup', '--config', scene.proxyOnly)).status, 0);
    const kubeProxy = await kubeProxyIn('iptables').start(scene, [service]);
    const answers = async () =>
      (await cluster.request('near', `http://${service}`, '--count', '1', '--timeout', '1000')).answers;
    const isAnswered = async () => Object.keys(await answers()).length > 0;
    let agent: ChildProcess | null = null;
    const printed: string[] = [];
    try {
      await eventually(isAnswered, Boolean);
      await cluster.apply(policy('[]'));
      assert.ok(await isAnswered(), 'nothing enforces policies on the node yet');
      agent = spawn(
        'ip',
        ['netns', 'exec', `fl-${cluster.name}-node-1`, LAUNCHER, 'agent', '--config', scene.policyOnly],
        { stdio: ['ignore', 'pipe', 'pipe'] },
      );
      for (const stream of [agent.stdout, agent.stderr]) {
        stream?.setEncoding('utf8').on('data', (text: string) => printed.push(text));
      }
      await eventually(isAnswered, (answered) => !answered);
      await cluster.apply(policy('[{to: [{podSelector: {matchLabels: {app: hello}}}]}]'));
      await eventually(isAnswered, Boolean);
      agent.kill('SIGKILL');
      await once(agent, 'exit');
      agent = null;
      const foreign = onNode('iptables-save', '-t', 'nat');
      assert.match(onNode('nft', 'list', 'tables'), /fairlead-policy/);
      assert.equal((await fairleadOnNode('cleanup', '--config', scene.policyOnly)).status, 0);
      assert.doesNotMatch(onNode('nft', 'list', 'tables'), /fairlead-policy/);
      const chains = (text: string) => text.split('\n').filter((line) => line.startsWith('-A'));
      assert.deepEqual(chains(onNode('iptables-save', '-t', 'nat')), chains(foreign));
    } catch (error) {
      throw new Error(`${messageOf(error)}; the agent printed:\n${printed.join('')}`, { cause: error });
    } finally {
      agent?.kill('SIGKILL');
      await kubeProxy.stop();
      await cluster.ask('delete', 'networkpolicy', 'near', '--ignore-not-found');
      await scene.startAgent();
    }
  });
});
