import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type Cluster, HELLO, startCluster } from './testing/cluster.ts';

/**
 * An agent takes over a node from kube-proxy, and refuses to start while kube-proxy runs; `cleanup` leaves
 * a running kube-proxy alone.
 */

const program = join(process.env['KUBEBUILDER_ASSETS'] ?? '', 'kube-proxy');
const skip = existsSync(program) ? false : 'KUBEBUILDER_ASSETS names no folder with kube-proxy';

interface AgentFile {
  readonly kubeconfig: string;
  readonly network: unknown;
  readonly dns: unknown;
}

let cluster: Cluster;
let service: string;
/** A configuration with only the proxy: cleanup keeps the rest of the agent's state. */
let proxyOnly: string;
/** A configuration with only network policies. */
let policyOnly: string;
let kubeconfig: string;

const FAIRLEAD = join(import.meta.dirname, '..', 'fairlead');
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

const onNode = (...words: string[]) =>
  execFileSync('ip', ['netns', 'exec', `fl-${cluster.name}-node-1`, ...words], { encoding: 'utf8' });
const rules = () => onNode('iptables-save') + onNode('ip6tables-save') + onNode('nft', 'list', 'tables');
const fairleadOnNode = (...words: string[]) =>
  cluster.fairlead('exec', 'node/node-1', '--', 'fairlead', ...words);
const clusterIP = (name: string) => cluster.ask('get', 'service', name, '-o', 'jsonpath={.spec.clusterIP}');

async function killAgent(): Promise<void> {
  await cluster.stopSupervisor();
  const pid = cluster.state().nodes.find(({ name }) => name === 'node-1')?.agent?.pid;
  assert.ok(pid);
  process.kill(pid, 'SIGKILL');
}

async function startAgent(): Promise<void> {
  assert.equal((await cluster.fairlead('up', '--detach')).status, 0);
  await eventually(
    () => cluster.fairlead('status'),
    ({ status }) => status === 0,
  );
}

async function startKubeProxy(mode: string): Promise<ChildProcess> {
  const child = spawn(
    'ip',
    [
      ...['netns', 'exec', `fl-${cluster.name}-node-1`, program, '--kubeconfig', kubeconfig],
      ...['--hostname-override', 'node-1', '--proxy-mode', mode, '--cluster-cidr', '10.244.0.0/16'],
      ...['--conntrack-max-per-core', '0'],
    ],
    { stdio: 'ignore' },
  );
  await eventually(rules, (text) =>
    mode === 'iptables' ? text.includes(`-d ${service}/32`) : /table ip kube-proxy/.test(text),
  );
  return child;
}

async function stopKubeProxy(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL');
  await once(child, 'exit');
}

describe('a node with kube-proxy', { skip }, () => {
  before(async () => {
    cluster = await startCluster(['--nodes', '2', '-f', HELLO]);
    service = await clusterIP('hello');
    const folder = `${cluster.stateRoot}/${cluster.name}/nodes/node-1`;
    const own = JSON.parse(readFileSync(join(folder, 'agent.json'), 'utf8')) as AgentFile;
    kubeconfig = own.kubeconfig;
    proxyOnly = join(folder, 'proxy-only.json');
    writeFileSync(proxyOnly, JSON.stringify({ ...own, network: null, dns: null, policy: null }));
    policyOnly = join(folder, 'policy-only.json');
    const none = { proxy: null, network: null, dns: null, pods: null, loadBalancer: null };
    writeFileSync(policyOnly, JSON.stringify({ ...own, ...none, policy: {} }));
  });
  after(() => cluster?.down());

  for (const [theirs, ours] of [
    ['iptables', 'nftables'],
    ['iptables', 'iptables'],
    ['iptables', 'ebpf'],
    ['iptables', 'userspace'],
    ['nftables', 'nftables'],
    ['nftables', 'iptables'],
  ] as const) {
    test(`kube-proxy in ${theirs} mode → ${ours} mode: no request fails, and no state of kube-proxy remains`, async () => {
      assert.equal((await cluster.fairlead('mode', ours, '--node', 'node-1')).status, 0);
      for (const name of ['stale', 'emptied', 'local']) {
        await cluster.ask('create', 'service', 'clusterip', name, '--tcp=80:8080');
        await cluster.ask('set', 'selector', 'service', name, 'app=hello');
      }
      const policy = '{"spec":{"internalTrafficPolicy":"Local"}}';
      await cluster.ask('patch', 'service', 'local', '-p', policy);
      const [stale, emptied, local] = [
        await clusterIP('stale'),
        await clusterIP('emptied'),
        await clusterIP('local'),
      ];
      await killAgent();
      assert.equal((await fairleadOnNode('cleanup', '--config', proxyOnly)).status, 0);
      const kubeProxy = await startKubeProxy(theirs);
      try {
        await eventually(
          () => cluster.request('node/node-1', `http://${service}`, '--count', '10', '--timeout', '3000'),
          ({ failures }) => Object.keys(failures).length === 0,
        );
        const refused = await fairleadOnNode('agent', '--config', proxyOnly);
        assert.equal(refused.status, 1);
        assert.match(refused.out + refused.error, /kube-proxy is running on this node \(process [0-9]+\)/);

        const before = theirs === 'iptables' ? onNode('iptables-save', '-t', 'nat') : '';
        assert.equal((await fairleadOnNode('cleanup', '--config', proxyOnly)).status, 0);
        if (theirs === 'iptables') {
          const chains = (text: string) => text.split('\n').filter((line) => line.startsWith('-A'));
          assert.deepEqual(chains(onNode('iptables-save', '-t', 'nat')), chains(before));
        }
      } finally {
        await stopKubeProxy(kubeProxy);
      }
      await cluster.ask('delete', 'service', 'stale');
      await cluster.ask('set', 'selector', 'service', 'emptied', 'app=nothing');
      assert.match(onNode('nft', 'list', 'ruleset'), new RegExp(stale.replaceAll('.', '\\.')));
      const load = cluster.load('node/node-1', `http://${service}`);
      const connection = cluster.connect('node/node-1', service, 80);
      // The emptied Service counts as unhealthy in the cluster's status.
      assert.equal((await cluster.fairlead('up', '--detach')).status, 0);
      const left =
        ours === 'iptables' ? /KUBE-PROXY-CANARY|kube-proxy/ : /KUBE-(PROXY|SERVICES|SVC)|kube-proxy/;
      await eventually(rules, (text) => !left.test(text));
      assert.doesNotMatch(onNode('nft', 'list', 'ruleset'), new RegExp(stale.replaceAll('.', '\\.')));
      const { failures } = await load.stop();
      assert.deepEqual(failures, {});
      assert.equal((await connection.stop()).answers.size, 1);
      const ask = (address: string, count: number) =>
        cluster.request('node/node-1', `http://${address}`, '--count', `${count}`, '--timeout', '1000');
      assert.deepEqual((await ask(emptied, 3)).answers, {}, 'a Service without endpoints is not answered');
      const here = (await cluster.pods('app=hello')).filter(({ node }) => node === 'node-1');
      const { answers } = await ask(local, 20);
      assert.deepEqual(Object.keys(answers).sort(), here.map(({ name }) => name).sort());
      await cluster.ask('delete', 'service', 'emptied', 'local');
    });
  }

  test('an agent with only policies enforces them alongside kube-proxy, and its cleanup removes only them', async () => {
    await cluster.apply(NEAR);
    await cluster.ask('wait', '--for=condition=Ready', 'pod', 'near', '--timeout=120s');
    await killAgent();
    assert.equal((await fairleadOnNode('cleanup', '--config', proxyOnly)).status, 0);
    const kubeProxy = await startKubeProxy('iptables');
    const answers = async () =>
      (await cluster.request('near', `http://${service}`, '--count', '1', '--timeout', '1000')).answers;
    const isAnswered = async () => Object.keys(await answers()).length > 0;
    let agent: ChildProcess | null = null;
    try {
      await eventually(isAnswered, Boolean);
      await cluster.apply(policy('[]'));
      assert.ok(await isAnswered(), 'nothing enforces policies on the node yet');
      agent = spawn(
        'ip',
        ['netns', 'exec', `fl-${cluster.name}-node-1`, FAIRLEAD, 'agent', '--config', policyOnly],
        { stdio: 'ignore' },
      );
      await eventually(isAnswered, (answered) => !answered);
      await cluster.apply(policy('[{to: [{podSelector: {matchLabels: {app: hello}}}]}]'));
      await eventually(isAnswered, Boolean);
      agent.kill('SIGKILL');
      await once(agent, 'exit');
      agent = null;
      const foreign = onNode('iptables-save', '-t', 'nat');
      assert.match(onNode('nft', 'list', 'tables'), /fairlead-policy/);
      assert.equal((await fairleadOnNode('cleanup', '--config', policyOnly)).status, 0);
      assert.doesNotMatch(onNode('nft', 'list', 'tables'), /fairlead-policy/);
      const chains = (text: string) => text.split('\n').filter((line) => line.startsWith('-A'));
      assert.deepEqual(chains(onNode('iptables-save', '-t', 'nat')), chains(foreign));
    } finally {
      agent?.kill('SIGKILL');
      await stopKubeProxy(kubeProxy);
      await cluster.ask('delete', 'networkpolicy', 'near', '--ignore-not-found');
      await startAgent();
    }
  });
});
