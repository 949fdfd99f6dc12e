import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { availableModes } from '../src/agent/dataplanes.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type Cluster, HELLO, startCluster } from './testing/cluster.ts';
import { WITH_READ_ONLY_SYSCTLS } from './testing/read-only-sysctls.ts';

/** An agent that starts while the API server is down programs Services and answers DNS from an earlier run's objects. */

/** IPVS is not in every kernel. */
const MODES = availableModes().filter((mode) => mode !== 'ipvs');
const FAIRLEAD = join(import.meta.dirname, '..', 'fairlead');
const LOCAL = `
apiVersion: v1
kind: Service
metadata: {name: local}
spec: {type: LoadBalancer, externalTrafficPolicy: Local, selector: {app: hello}, ports: [{port: 80, targetPort: 8080}]}
`;

let cluster: Cluster;
let folder: string;
let agent: ChildProcess | null = null;
let clusterIP: string;
/** The node's address and the health-check node port of a Service. */
let healthCheck: string;

const onNode = (...words: string[]) =>
  execFileSync('ip', ['netns', 'exec', `fl-${cluster.name}-node-1`, ...words], { encoding: 'utf8' });
/** Waits for an answer of this content from a server on the node. */
const answers = (host: string, path: string, content: RegExp) =>
  eventually(
    () => onNode('sh', '-c', `curl -s -m 5 http://${host}${path} || true`),
    (text) => content.test(text),
  );
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

function startAgent(mode: string, { readOnly = false } = {}): void {
  const own = JSON.parse(
    readFileSync(join(cluster.stateRoot, cluster.name, 'nodes', 'node-1', 'agent.json'), 'utf8'),
  ) as { proxy: object; dns: object; network: object };
  const config = join(folder, 'agent.json');
  const cni = { binDir: join(folder, 'bin'), confDir: join(folder, 'net.d') };
  const network = readOnly ? { ...own.network, cni } : null;
  const parts = { network, policy: null, pods: null, loadBalancer: null };
  writeFileSync(
    config,
    JSON.stringify({ ...own, ...parts, proxy: { ...own.proxy, mode }, stateDir: join(folder, 'state') }),
  );
  // ip-netns(8) would hide the control groups from eBPF mode.
  const netns = `--net=/run/netns/fl-${cluster.name}-node-1`;
  const words = [...(readOnly ? WITH_READ_ONLY_SYSCTLS : []), FAIRLEAD, 'agent', '--config', config];
  agent = spawn('nsenter', [netns, ...words], { stdio: 'ignore' });
}

async function endAgent(signal: NodeJS.Signals): Promise<void> {
  const child = agent;
  agent = null;
  if (!child || child.exitCode !== null || child.signalCode !== null) return;
  child.kill(signal);
  await once(child, 'exit');
}

interface Health {
  readonly healthy: boolean;
  readonly problem?: string;
}

/** Waits until the agent has programmed the node, and a request of it is answered. */
async function works(): Promise<Health> {
  const health = await eventually(
    () => onNode('sh', '-c', 'curl -s -m 5 http://127.0.0.1:10256/healthz || echo {}'),
    (text) => (JSON.parse(text) as Health).healthy,
    60_000,
  );
  await eventually(
    () => cluster.request('node/node-1', `http://${clusterIP}`, '--count', '4', '--timeout', '3000'),
    ({ failures }) => Object.keys(failures).length === 0,
    30_000,
  );
  return JSON.parse(health) as Health;
}

describe('an agent that starts while the API server is down', () => {
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'fairlead-start-'));
    cluster = await startCluster(['--nodes', '2', '-f', HELLO]);
    await cluster.apply(LOCAL);
    clusterIP = await cluster.ask('get', 'service', 'hello', '-o', 'jsonpath={.spec.clusterIP}');
    const port = await cluster.ask('get', 'service', 'local', '-o', 'jsonpath={.spec.healthCheckNodePort}');
    const node = cluster.state().nodes.find(({ name }) => name === 'node-1');
    healthCheck = `${node?.addresses[0]}:${port}`;
    await cluster.stopSupervisor();
    const ours = cluster.state().nodes.find(({ name }) => name === 'node-1')?.agent;
    assert.ok(ours);
    process.kill(ours.pid, 'SIGTERM');
    await eventually(() => !existsSync(`/proc/${ours.pid}`));
  });
  afterEach(() => endAgent('SIGKILL'));
  after(async () => {
    await cluster?.down();
    rmSync(folder, { recursive: true, force: true });
  });

  test('with the API server, an agent that cannot write /proc/sys records an event, and refuses pods with the reason', async (t) => {
    const why =
      /pods cannot be connected: \/proc\/sys is not writable \(EROFS\); run the agent's container privileged/;
    const pod = `fl-${cluster.name}-refused`;
    // Before the agent, whose mount namespace does not get later mounts.
    execFileSync('ip', ['netns', 'add', pod]);
    t.after(() => execFileSync('ip', ['netns', 'delete', pod]));
    startAgent('nftables', { readOnly: true });
    await eventually(
      () =>
        cluster.ask('get', 'events', '-A', '--field-selector', 'reason=SettingsNotWritable', '-o', 'json'),
      (text) => {
        const { items } = JSON.parse(text) as {
          items: { message: string; involvedObject: { name: string } }[];
        };
        return items.some((one) => one.involvedObject.name === 'node-1' && why.test(one.message));
      },
      60_000,
    );
    const state = await eventually(
      () =>
        onNode(
          'sh',
          '-c',
          `curl -s -m 5 --unix-socket ${join(folder, 'state', 'agent.sock')} http://agent/state || true`,
        ),
      (text) => why.test(text),
      60_000,
    );
    assert.equal((JSON.parse(state) as Health).healthy, false);
    const plugin = join(folder, 'bin', 'fairlead');
    await eventually(() => existsSync(plugin), Boolean, 60_000);
    const configuration = readFileSync(join(folder, 'net.d', '10-fairlead.conflist'), 'utf8');
    const { cniVersion, name, plugins } = JSON.parse(configuration) as {
      readonly cniVersion: string;
      readonly name: string;
      readonly plugins: readonly object[];
    };
    const refused = spawnSync('ip', ['netns', 'exec', `fl-${cluster.name}-node-1`, plugin], {
      input: JSON.stringify({ cniVersion, name, ...plugins[0] }),
      encoding: 'utf8',
      env: {
        ...{
          CNI_COMMAND: 'ADD',
          CNI_CONTAINERID: 'refused',
          CNI_IFNAME: 'eth0',
          CNI_PATH: join(folder, 'bin'),
        },
        CNI_NETNS: `/run/netns/${pod}`,
        PATH: process.env['PATH'] ?? '',
      },
    });
    assert.equal(refused.status, 1, refused.stdout);
    assert.match(refused.stdout, /EROFS|not writable|read-only/i);
  });

  test('with the API server, it keeps the objects', async () => {
    startAgent('nftables');
    await works();
    const { out } = await cluster.fairlead('exec', 'node/node-1', '--', 'fairlead', 'preflight');
    assert.match(out, /the agent is running on this node, and uses its ports/);
    assert.doesNotMatch(out, /is in use/);
    await endAgent('SIGTERM');
    assert.match(readFileSync(join(folder, 'state', 'objects', 'services.ndjson'), 'utf8'), /"name":"hello"/);
    const controlPlane = cluster.state().controlPlane;
    assert.ok(controlPlane);
    process.kill(controlPlane.pid, 'SIGKILL');
    await pause(100);
  });

  for (const mode of MODES) {
    test(`without it, ${mode}: Services, DNS, health checks and metrics are served, and say how old they are`, async () => {
      // The rules that are there must not be what carries the traffic.
      for (const [, table = ''] of onNode('nft', 'list', 'tables').matchAll(/^table (ip6? fairlead)$/gm))
        onNode('nft', 'delete', 'table', ...table.split(' '));
      startAgent(mode);
      const { problem } = await works();
      assert.match(String(problem), /^the API server cannot be reached: using the objects of 20[0-9T:.-]+Z$/);
      await answers('127.0.0.1:10249', '/metrics', /^fairlead_cached_objects_age_seconds [1-9]/m);
      await answers(healthCheck, '/', /"localEndpoints": ?[0-9]/);
      const dns = onNode('dig', '+short', '+time=2', '@10.96.0.10', 'hello.default.svc.cluster.local');
      assert.equal(dns.trim(), clusterIP);
    });
  }

  test('an agent that cannot write /proc/sys is not healthy, and names the fix', async () => {
    startAgent('nftables', { readOnly: true });
    const health = await eventually(
      () => onNode('sh', '-c', 'curl -s -m 5 http://127.0.0.1:10256/healthz || echo {}'),
      (text) => /pods cannot be connected/.test(text),
      60_000,
    );
    const { healthy, problem } = JSON.parse(health) as Health;
    assert.equal(healthy, false);
    assert.match(
      String(problem),
      /\/proc\/sys is not writable \(EROFS\); run the agent's container privileged/,
    );
  });
});
