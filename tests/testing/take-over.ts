import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isRunning } from '../../src/kernel/process-identity.ts';
import { messageOf } from '../../src/lib/errors.ts';
import { eventually } from '../../src/lib/testing/eventually.ts';
import { type Cluster, HELLO, LAUNCHER, type Result, startCluster } from './cluster.ts';

interface AgentFile {
  readonly kubeconfig: string;
  readonly network: unknown;
  readonly dns: unknown;
}

/** A proxy that handles a node before the agent. */
export interface Origin {
  /** As the agent names it. */
  readonly name: string;
  /** Starts it on the first node. `services`: the cluster IPs that it has to serve. */
  start(scene: TakeOverScene, services: readonly string[]): Promise<RunningOrigin>;
}

export interface RunningOrigin {
  /** The place whose connections it translates. */
  readonly client: string;
  /** Whether it serves node ports. */
  readonly hasNodePorts: boolean;
  /** Ends its process; its state stays. */
  stop(): Promise<void>;
  /** Its rules, as far as our modes have no rules of the same kind and name. */
  rules(): readonly string[];
  /** Returns true if its state translates a cluster IP. */
  translates(address: string): boolean;
  /** Returns true as long as state remains that the agent in mode `ours` has to remove at once. */
  isLeft(ours: string): boolean;
  /** Returns true as long as state remains that serves open connections. */
  isDraining(): boolean;
  /** Removes what is still there. */
  dispose(): void;
}

/** A cluster whose first node changes between another proxy and Fairlead's agent. */
export interface TakeOverScene {
  readonly cluster: Cluster;
  /** The network namespace of the first node. */
  readonly namespace: string;
  /** The kubeconfig of its agent. */
  readonly kubeconfig: string;
  /** The cluster IP of the Service "hello". */
  readonly service: string;
  /** A configuration with only the proxy: cleanup keeps the rest of the agent's state. */
  readonly proxyOnly: string;
  /** A configuration with only network policies. */
  readonly policyOnly: string;
  onNode(...words: string[]): string;
  /** The node's rules, devices, virtual servers and ipsets, as far as the machine has their tools. */
  state(): string;
  fairleadOnNode(...words: string[]): Promise<Result>;
  clusterIP(name: string): Promise<string>;
  killAgent(): Promise<void>;
  startAgent(): Promise<void>;
  /** Creates the pod "near" on the first node. */
  createClient(): Promise<void>;
  /** Returns true if a request of that pod to the Service is answered. */
  isAnswered(): Promise<boolean>;
  /**
   * Runs `work` while an agent with another configuration runs on the first node, and then kills that. What the agent
   * printed is in the message of a failure.
   */
  withAgent(configuration: string, work: (printed: () => string) => Promise<void>): Promise<void>;
}

/** Has no container that answers. */
const CLIENT = `
apiVersion: v1
kind: Pod
metadata: {name: near, labels: {app: near}}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: fairlead, command: [sleep, infinity]}]
`;

/** Starts a cluster of two nodes with the Service "hello". */
export async function startTakeOverScene(): Promise<TakeOverScene> {
  const cluster = await startCluster(['--nodes', '2', '-f', HELLO]);
  const clusterIP = (name: string) => cluster.ask('get', 'service', name, '-o', 'jsonpath={.spec.clusterIP}');
  const service = await clusterIP('hello');
  const folder = `${cluster.stateRoot}/${cluster.name}/nodes/node-1`;
  const own = JSON.parse(readFileSync(join(folder, 'agent.json'), 'utf8')) as AgentFile;
  const proxyOnly = join(folder, 'proxy-only.json');
  writeFileSync(proxyOnly, JSON.stringify({ ...own, network: null, dns: null, policy: null }));
  const policyOnly = join(folder, 'policy-only.json');
  const none = { proxy: null, network: null, dns: null, pods: null, loadBalancer: null };
  writeFileSync(policyOnly, JSON.stringify({ ...own, ...none, policy: {} }));
  const namespace = `fl-${cluster.name}-node-1`;
  const onNode = (...words: string[]) =>
    execFileSync('ip', ['netns', 'exec', namespace, ...words], { encoding: 'utf8' });
  const ifThere = (...words: string[]) => {
    try {
      return onNode(...words);
    } catch {
      return '';
    }
  };
  const rules = () => onNode('iptables-save') + onNode('ip6tables-save') + onNode('nft', 'list', 'tables');
  return {
    cluster,
    namespace,
    kubeconfig: own.kubeconfig,
    service,
    proxyOnly,
    policyOnly,
    onNode,
    state: () =>
      rules() +
      onNode('ip', '-brief', 'link') +
      (existsSync('/proc/net/ip_vs') ? ifThere('ipvsadm', '-Sn') + ifThere('ipset', 'list', '-n') : ''),
    fairleadOnNode: (...words) => cluster.fairlead('exec', 'node/node-1', '--', 'fairlead', ...words),
    clusterIP,
    async killAgent() {
      await cluster.stopSupervisor();
      // An agent that has just started is in the record a moment later.
      const running = await eventually(() => {
        const agent = cluster.state().nodes.find(({ name }) => name === 'node-1')?.agent;
        return agent && isRunning(agent) ? agent : null;
      });
      process.kill(running.pid, 'SIGKILL');
      await eventually(() => !isRunning(running));
    },
    async startAgent() {
      assert.equal((await cluster.fairlead('up', '--detach')).status, 0);
      await eventually(
        () => cluster.fairlead('status'),
        ({ status }) => status === 0,
      );
    },
    async createClient() {
      await cluster.apply(CLIENT);
      await cluster.ask('wait', '--for=condition=Ready', 'pod', 'near', '--timeout=120s');
    },
    async isAnswered() {
      const words = ['--count', '1', '--timeout', '1000'];
      const { answers } = await cluster.request('near', `http://${service}`, ...words);
      return Object.keys(answers).length > 0;
    },
    async withAgent(configuration, work) {
      const words = ['netns', 'exec', namespace, LAUNCHER, 'agent', '--config', configuration];
      const agent = spawn('ip', words, { stdio: ['ignore', 'pipe', 'pipe'] });
      let printed = '';
      for (const stream of [agent.stdout, agent.stderr]) {
        stream.setEncoding('utf8').on('data', (text: string) => {
          printed += text;
        });
      }
      try {
        await work(() => printed);
      } catch (error) {
        throw new Error(`${messageOf(error)}; the agent printed:\n${printed}`, { cause: error });
      } finally {
        if (agent.kill('SIGKILL')) await once(agent, 'exit');
      }
    },
  };
}

/** How a row sends its requests: fewer and more patient ones in a slow virtual machine. */
export interface Pace {
  readonly load: readonly string[];
  readonly timeout: string;
}

/**
 * Lets another proxy handle the node, stops it, deletes one Service and empties another, and starts the agent in mode `ours`,
 * under load and with open connections. Asserts that no request fails, no connection breaks, Services have their present
 * endpoints, and nothing remains of the other proxy's rules.
 */
export async function takeOverFrom(
  scene: TakeOverScene,
  origin: Origin,
  ours: string,
  pace: Pace = { load: [], timeout: '1000' },
): Promise<void> {
  let other: RunningOrigin | null = null;
  try {
    other = await takeOver(scene, origin, ours, pace, (started) => {
      other = started;
    });
  } finally {
    other?.dispose();
    const left = ['stale', 'emptied', 'local', 'outer'];
    await scene.cluster.ask('delete', 'service', '--ignore-not-found', ...left);
  }
}

/** Creates the Services of a row. Returns their cluster IPs. */
async function createServices({ cluster, clusterIP }: TakeOverScene): Promise<[string, string, string]> {
  for (const name of ['stale', 'emptied', 'local']) {
    await cluster.ask('create', 'service', 'clusterip', name, '--tcp=80:8080');
    await cluster.ask('set', 'selector', 'service', name, 'app=hello');
  }
  await cluster.ask('patch', 'service', 'local', '-p', '{"spec":{"internalTrafficPolicy":"Local"}}');
  await cluster.ask('create', 'service', 'nodeport', 'outer', '--tcp=80:8080', '--node-port=30555');
  await cluster.ask('set', 'selector', 'service', 'outer', 'app=hello');
  return [await clusterIP('stale'), await clusterIP('emptied'), await clusterIP('local')];
}

/** While the other proxy runs, an agent refuses to start, and `cleanup` leaves the proxy's rules alone. */
async function assertKept(
  { cluster, service, fairleadOnNode, proxyOnly }: TakeOverScene,
  name: string,
  other: RunningOrigin,
): Promise<void> {
  await eventually(
    () => cluster.request(other.client, `http://${service}`, '--count', '10', '--timeout', '3000'),
    ({ failures }) => Object.keys(failures).length === 0,
  );
  const refused = await fairleadOnNode('agent', '--config', proxyOnly);
  assert.equal(refused.status, 1);
  assert.match(
    refused.out + refused.error,
    new RegExp(`${name.replace(/[()]/g, '\\$&')} is running on this node \\(process [0-9]+\\)`),
  );
  const before = other.rules();
  assert.equal((await fairleadOnNode('cleanup', '--config', proxyOnly)).status, 0);
  assert.deepEqual(other.rules(), before);
}

async function takeOver(
  scene: TakeOverScene,
  origin: Origin,
  ours: string,
  pace: Pace,
  onStarted: (other: RunningOrigin) => void,
): Promise<RunningOrigin> {
  const { cluster, service, fairleadOnNode, proxyOnly } = scene;
  assert.equal((await cluster.fairlead('mode', ours, '--node', 'node-1')).status, 0);
  const [stale, emptied, local] = await createServices(scene);
  const nodeAddress = await cluster.ask(
    ...['get', 'node', 'node-1', '-o', 'jsonpath={.status.addresses[?(@.type=="InternalIP")].address}'],
  );
  await scene.killAgent();
  assert.equal((await fairleadOnNode('cleanup', '--config', proxyOnly)).status, 0);
  const other = await origin.start(scene, [service, stale, emptied, local]);
  onStarted(other);
  try {
    await assertKept(scene, origin.name, other);
  } finally {
    await other.stop();
  }
  await cluster.ask('delete', 'service', 'stale');
  await cluster.ask('set', 'selector', 'service', 'emptied', 'app=nothing');
  assert.ok(other.translates(stale), 'the deleted Service is still translated');
  const load = cluster.load(other.client, `http://${service}`, ...pace.load);
  const connections = [
    cluster.connect(other.client, service, 80),
    ...(other.hasNodePorts ? [cluster.connect('client', nodeAddress, 30_555)] : []),
  ];
  await eventually(() => connections.every((one) => one.answered() > 0), Boolean);
  // The emptied Service counts as unhealthy in the cluster's status.
  assert.equal((await cluster.fairlead('up', '--detach')).status, 0);
  await eventually(
    () => other.isLeft(ours),
    (left) => !left,
  );
  const answered = connections.map((one) => one.answered());
  await eventually(() => connections.every((one, i) => one.answered() > (answered[i] ?? 0)), Boolean);
  const ask = (address: string, count: number) =>
    cluster.request(other.client, `http://${address}`, '--count', `${count}`, '--timeout', pace.timeout);
  assert.deepEqual((await ask(stale, 3)).answers, {}, 'a deleted Service is not answered');
  assert.deepEqual((await ask(emptied, 3)).answers, {}, 'a Service without endpoints is not answered');
  const here = (await cluster.pods('app=hello')).filter(({ node }) => node === 'node-1');
  const { answers } = await ask(local, 20);
  assert.deepEqual(Object.keys(answers).sort(), here.map(({ name }) => name).sort());
  const { failures } = await load.stop();
  assert.deepEqual(failures, {});
  for (const connection of connections) assert.equal((await connection.stop()).answers.size, 1);
  await eventually(
    () => other.translates(stale) || other.isDraining(),
    (found) => !found,
  );
  return other;
}
