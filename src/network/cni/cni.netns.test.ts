import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { build } from 'esbuild';
import { createNetns, NETNS_DIR, removeNetns, spawnInNetns } from '../../kernel/netns.ts';
import { listLinks } from '../../kernel/rtnetlink/links.ts';
import { silentLogger } from '../../lib/log.ts';
import { NodeNetwork } from '../node-network.ts';
import {
  connectFrom,
  echoBytes,
  echoServer,
  netnsOf,
  sandbox,
  testNode,
  testPodCidrs,
  testTopology,
  Undo,
} from '../packets.testing.ts';
import { openPodNetwork, type PodNetwork } from '../pod-network.ts';
import { outsideNetns, type Topology } from '../topology.ts';
import { serveCni } from './cni-server.ts';
import { installCni, uninstallCni } from './installation.ts';
import { CNI_VERSIONS } from './specification.ts';

// The plugin is called as container runtimes call it: a process, with variables and standard input.

const PLUGIN = join(import.meta.dirname, 'plugin.ts');
const DEBIAN = '/usr/lib/cni';

const undo = new Undo();
let topology: Topology;
let node: string;
let folder: string;
let socket: string;
let network: NodeNetwork;
let pods: PodNetwork;
let stopAgent: () => void;

beforeEach(() => {
  topology = testTopology(undo, 1);
  node = netnsOf(topology, 1);
  folder = mkdtempSync(join(tmpdir(), 'flt-cni-'));
  undo.add(() => rmSync(folder, { recursive: true, force: true }));
  socket = join(folder, 'cni.sock');
  startAgent();
});
afterEach(() => undo.run());

/** What an agent does for the plugin; again after `stopAgent`. */
function startAgent(): void {
  network = new NodeNetwork({
    ...testNode(1),
    node: 'node-1',
    podCidrs: testPodCidrs(1),
    overlay: 'routes',
    netns: node,
  });
  pods = openPodNetwork({ network, stateDir: folder });
  const server = serveCni({ path: socket, network, pods, logger: silentLogger });
  let stopped = false;
  stopAgent = () => {
    if (stopped) return;
    stopped = true;
    server.close();
    pods.close();
    network.close();
  };
  undo.add(stopAgent);
}

interface Outcome {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: tests read into the fields that they expect
  readonly answer: any;
}

/** Runs a plugin inside the node's namespace, as the runtime there does. */
function call(
  program: readonly [string, ...string[]],
  environment: Record<string, string>,
  config: object | string,
): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const [file, ...args] = program;
    const child = spawnInNetns(node, file, args, {
      env: { PATH: process.env['PATH'] ?? '', CNI_PATH: DEBIAN, ...environment },
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    let text = '';
    child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
    });
    child.on('error', reject);
    child.on('close', (status) => {
      resolve({ status: status ?? -1, answer: text === '' ? null : JSON.parse(text) });
    });
    child.stdin?.on('error', () => {});
    child.stdin?.end(typeof config === 'string' ? config : JSON.stringify(config));
  });
}

// Bundled as it is shipped: it starts in a third of the time.
const bundled = mkdtempSync(join(tmpdir(), 'flt-cni-'));
const BUNDLE = join(bundled, 'cni.mjs');
const OURS: [string, ...string[]] = [process.execPath, BUNDLE];
before(() =>
  build({
    entryPoints: [PLUGIN],
    outfile: BUNDLE,
    bundle: true,
    minify: true,
    platform: 'node',
    format: 'esm',
  }),
);
after(() => rmSync(bundled, { recursive: true, force: true }));

const config = (more: object = {}) => ({
  cniVersion: '1.1.0',
  name: 'test',
  type: 'fairlead',
  socket,
  ...more,
});
const environment = (command: string, container: string, netns = container) => ({
  CNI_COMMAND: command,
  CNI_CONTAINERID: container,
  CNI_NETNS: netns === '' ? '' : join(NETNS_DIR, netns),
  CNI_IFNAME: 'eth0',
  CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=${container}`,
});
const ours = (command: string, container: string, more: object = {}, netns = container) =>
  call(OURS, environment(command, container, netns), config(more));
async function add(container: string, more: object = {}) {
  const outcome = await ours('ADD', container, more);
  assert.equal(outcome.status, 0, JSON.stringify(outcome.answer));
  return outcome.answer;
}
const ports = () =>
  listLinks(network.socket)
    .map(({ name }) => name)
    .filter((name) => name.startsWith('flp'));
const addressesIn = (netns: string, device = 'eth0') =>
  (
    JSON.parse(execFileSync('ip', ['-n', netns, '-j', 'addr', 'show', device], { encoding: 'utf8' }))[0]
      .addr_info as { local: string; prefixlen: number; scope: string }[]
  )
    .filter(({ scope }) => scope === 'global')
    .map(({ local, prefixlen }) => `${local}/${prefixlen}`);

describe('calls that cannot be carried out', () => {
  const good = () => environment('ADD', 'c', 'missing');
  for (const [what, variables, input, code] of [
    ['no command', { CNI_COMMAND: '' }, {}, 4],
    ['an unknown command', { CNI_COMMAND: 'MOVE' }, {}, 4],
    ['no container', { CNI_CONTAINERID: '' }, {}, 4],
    ['a container’s name that leads elsewhere', { CNI_CONTAINERID: '../x' }, {}, 4],
    ['no namespace', { CNI_NETNS: '' }, {}, 4],
    ['an interface’s name that is too long', { CNI_IFNAME: 'a234567890123456' }, {}, 4],
    ['a namespace that is not there', {}, {}, 3],
    ['an input that is no JSON', {}, 'name: x', 6],
    ['a version that is not spoken', {}, { cniVersion: '0.2.0' }, 1],
    ['a version of the future', {}, { cniVersion: '9.0.0' }, 1],
    ['a network without a name', {}, { name: '' }, 7],
    ['an IPAM plugin', {}, { ipam: { type: 'host-local' } }, 2],
    ['another plugin’s interface before', {}, { prevResult: { cniVersion: '1.1.0' } }, 7],
  ] as const) {
    test(what, async () => {
      const { status, answer } = await call(
        OURS,
        { ...good(), ...variables },
        typeof input === 'string' ? input : config(input),
      );
      assert.equal(status, 1);
      assert.equal(answer.code, code, JSON.stringify(answer));
      assert.ok(answer.msg.length > 0);
      assert.deepEqual(ports(), []);
    });
  }
  test('the node’s own namespace', async () => {
    const { answer } = await call(OURS, environment('ADD', 'c', node), config());
    assert.equal(answer.code, 4);
    assert.match(answer.msg, /own network namespace/);
  });
});

test('VERSION needs no agent', async () => {
  stopAgent();
  const { status, answer } = await call(OURS, { CNI_COMMAND: 'VERSION' }, { cniVersion: '1.0.0' });
  assert.deepEqual([status, answer], [0, { cniVersion: '1.0.0', supportedVersions: [...CNI_VERSIONS] }]);
});

test('STATUS says whether the agent is there', async () => {
  assert.deepEqual(await call(OURS, { CNI_COMMAND: 'STATUS' }, config()), { status: 0, answer: null });
  stopAgent();
  const { status, answer } = await call(OURS, { CNI_COMMAND: 'STATUS' }, config());
  assert.deepEqual([status, answer.code], [1, 50]);
});

for (const cniVersion of CNI_VERSIONS) {
  test(`ADD, CHECK and DEL by version ${cniVersion}`, async () => {
    const netns = sandbox(undo);
    const result = await add(netns, { cniVersion });
    assert.equal(result.cniVersion, cniVersion);
    assert.deepEqual(
      result.ips.map(({ address }: { address: string }) => address),
      addressesIn(netns),
    );
    assert.equal('version' in result.ips[0], !cniVersion.startsWith('1.'));
    assert.deepEqual(result.ips[0].gateway, '10.244.1.1');
    const [bridge, host, inside] = result.interfaces;
    assert.deepEqual([bridge.name, inside.name, inside.sandbox], ['fl0', 'eth0', join(NETNS_DIR, netns)]);
    assert.deepEqual([host.name], ports());
    assert.equal(inside.mtu, cniVersion === '1.1.0' ? 1500 : undefined);
    assert.deepEqual(
      result.routes.map(({ dst }: { dst: string }) => dst),
      ['0.0.0.0/0', '::/0'],
    );
    const server = await echoServer(undo, netns, '10.244.1.2');
    assert.ok(await echoBytes(await connectFrom(undo, node, '10.244.1.2', server.port), 1000));
    if (cniVersion.startsWith('0.3')) return;
    assert.deepEqual(await ours('CHECK', netns, { cniVersion, prevResult: result }), {
      status: 0,
      answer: null,
    });
    assert.deepEqual(await ours('DEL', netns, { cniVersion, prevResult: result }), {
      status: 0,
      answer: null,
    });
    assert.deepEqual(ports(), []);
  });
}

test('results look like those of the reference plugins', async () => {
  const [one, two] = [sandbox(undo), sandbox(undo)];
  const mine = await add(one, { cniVersion: '1.0.0' });
  const { status, answer: theirs } = await call([join(DEBIAN, 'bridge')], environment('ADD', two), {
    cniVersion: '1.0.0',
    name: 'reference',
    type: 'bridge',
    bridge: 'ref0',
    isGateway: true,
    ipam: {
      type: 'host-local',
      dataDir: join(folder, 'reference'),
      ranges: [[{ subnet: '10.99.0.0/24' }]],
      routes: [{ dst: '0.0.0.0/0' }],
    },
  });
  assert.equal(status, 0, JSON.stringify(theirs));
  const shape = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.length > 0 ? [shape(value[0])] : [];
    if (typeof value !== 'object' || value === null) return typeof value;
    return Object.fromEntries(
      Object.entries(value)
        .sort()
        .map(([key, item]) => [key, shape(item)]),
    );
  };
  const {
    routes: [route],
    ...rest
  } = mine;
  const {
    routes: [reference],
    ...others
  } = theirs;
  assert.deepEqual(shape(rest), shape(others));
  assert.equal(route.dst, reference.dst);
  assert.equal(mine.interfaces.length, theirs.interfaces.length);
  assert.equal(mine.ips[0].interface, theirs.ips[0].interface);
});

describe('CHECK finds', () => {
  for (const [what, spoil, message] of [
    [
      'an address that is lost',
      (netns: string) => ['-n', netns, 'addr', 'del', '10.244.1.2/24', 'dev', 'eth0'],
      /address 10\.244\.1\.2/,
    ],
    [
      'an interface that is down',
      (netns: string) => ['-n', netns, 'link', 'set', 'eth0', 'down'],
      /eth0 is down/,
    ],
    [
      'a default route that is lost',
      (netns: string) => ['-n', netns, 'route', 'del', 'default'],
      /no default route by 10\.244\.1\.1/,
    ],
    ['an interface that is gone', (netns: string) => ['-n', netns, 'link', 'del', 'eth0'], /no device/],
  ] as const) {
    test(what, async () => {
      const netns = sandbox(undo);
      const prevResult = await add(netns);
      execFileSync('ip', spoil(netns));
      const { status, answer } = await ours('CHECK', netns, { prevResult });
      assert.deepEqual([status, answer.code], [1, 100]);
      assert.match(answer.msg, message);
    });
  }
  test('a container that it does not know, and other addresses than it gave', async () => {
    const netns = sandbox(undo);
    const prevResult = await add(netns);
    assert.match((await ours('CHECK', 'stranger', { prevResult }, netns)).answer.msg, /nothing is known/);
    const other = structuredClone(prevResult);
    other.ips[0].address = '10.244.1.77/24';
    assert.match(
      (await ours('CHECK', netns, { prevResult: other })).answer.msg,
      /10\.244\.1\.2.*10\.244\.1\.77/,
    );
  });
});

test('DEL may be repeated, come without ADD, without a namespace, and after the namespace has gone', async () => {
  const netns = `${sandbox(undo)}x`;
  createNetns(netns);
  undo.add(() => removeNetns(netns));
  await add(netns);
  removeNetns(netns);
  for (const path of [netns, netns, '']) {
    assert.deepEqual(await ours('DEL', netns, {}, path), { status: 0, answer: null });
  }
  assert.deepEqual(await ours('DEL', 'never-added', {}, ''), { status: 0, answer: null });
  assert.deepEqual([ports(), pods.uids()], [[], []]);
});

test('an interface’s name that is taken is an error that leaves nothing', async () => {
  const netns = sandbox(undo);
  execFileSync('ip', ['-n', netns, 'link', 'add', 'eth0', 'type', 'bridge']);
  const { status } = await ours('ADD', netns);
  assert.equal(status, 1);
  assert.deepEqual([ports(), pods.uids()], [[], []]);
});

test('ports of the node by runtimeConfig.portMappings; one that is taken is an error', async () => {
  const netns = sandbox(undo);
  const server = await echoServer(undo, netns, '0.0.0.0');
  const mappings = (...portMappings: object[]) => ({ runtimeConfig: { portMappings } });
  const mapping = { hostPort: 8080, containerPort: server.port, protocol: 'tcp' };
  await add(netns, mappings(mapping, { ...mapping, hostPort: 0 }));
  const address = testNode(1).addresses[0] ?? '';
  assert.ok(await echoBytes(await connectFrom(undo, outsideNetns(topology.cluster), address, 8080), 1000));
  const { answer } = await ours('ADD', sandbox(undo), mappings(mapping));
  assert.equal(answer.code, 101);
  assert.match(answer.msg, /belongs to pod default\//);
});

/** What a runtime does with a list of plugins (SPEC.md, section 3): ADD in order, DEL in reverse. */
async function runChain(
  command: 'ADD' | 'CHECK' | 'DEL',
  netns: string,
  plugins: readonly object[],
  before?: object,
) {
  const runtimeConfig = {
    portMappings: [{ hostPort: 9090, containerPort: 7000, protocol: 'tcp' }],
    bandwidth: { ingressRate: 8_000_000, ingressBurst: 8_000_000 },
  };
  let prevResult = before;
  for (const plugin of command === 'DEL' ? plugins.toReversed() : plugins) {
    const { type, capabilities = {} } = plugin as { type: string; capabilities?: Record<string, boolean> };
    const granted = Object.entries(runtimeConfig).filter(([name]) => capabilities[name]);
    const input = {
      ...plugin,
      cniVersion: '1.0.0',
      name: 'chain',
      ...(prevResult ? { prevResult } : {}),
      ...(granted.length > 0 ? { runtimeConfig: Object.fromEntries(granted) } : {}),
    };
    const program: [string, ...string[]] = type === 'fairlead' ? OURS : [join(DEBIAN, type)];
    const { status, answer } = await call(program, environment(command, netns), input);
    assert.equal(status, 0, `${command} ${type}: ${JSON.stringify(answer)}`);
    if (command === 'ADD') prevResult = answer;
  }
  return prevResult as object;
}

test('a chain with the reference plugins portmap, bandwidth and tuning', async () => {
  const netns = sandbox(undo);
  const plugins = [
    { type: 'fairlead', socket },
    { type: 'tuning', sysctl: { 'net.ipv4.ip_default_ttl': '77' }, dataDir: join(folder, 'tuning') },
    { type: 'bandwidth', capabilities: { bandwidth: true } },
    { type: 'portmap', capabilities: { portMappings: true }, snat: true },
  ];
  const result = await runChain('ADD', netns, plugins);
  const inNode = (...command: string[]) =>
    execFileSync('ip', ['netns', 'exec', node, ...command], { encoding: 'utf8' });
  const ttl = execFileSync('ip', ['netns', 'exec', netns, 'cat', '/proc/sys/net/ipv4/ip_default_ttl']);
  assert.equal(String(ttl), '77\n');
  assert.match(inNode('tc', 'qdisc', 'show', 'dev', ports()[0] ?? ''), /tbf .* rate 8Mbit/);
  // By portmap the node's port leads to the pod.
  const child = spawn('ip', ['netns', 'exec', netns, process.execPath, '-e', ECHO], { stdio: 'ignore' });
  undo.add(() => child.kill('SIGKILL'));
  const outside = outsideNetns(topology.cluster);
  const address = testNode(1).addresses[0] ?? '';
  for (const end = Date.now() + 20_000; ; await new Promise((resolve) => setTimeout(resolve, 20))) {
    try {
      assert.ok(await echoBytes(await connectFrom(undo, outside, address, 9090), 1000));
      break;
    } catch (error) {
      if (Date.now() > end) throw error;
    }
  }
  // The reference portmap's own CHECK (1.1.1) wants a container's IPv4 rules in ip6tables, too.
  await runChain('CHECK', netns, plugins.slice(0, 3), result);
  await runChain('DEL', netns, plugins, result);
  await runChain('DEL', netns, plugins, result);
  assert.deepEqual([ports(), pods.uids()], [[], []]);
  assert.doesNotMatch(inNode('iptables-save', '-t', 'nat'), /9090/);
});
const ECHO = `require('net').createServer((s) => s.pipe(s).on('error', () => {})).listen(7000, '0.0.0.0')`;

test('many at once: every container has addresses of its own, and all of them go again', async () => {
  const containers = Array.from({ length: 12 }, () => sandbox(undo));
  const results = await Promise.all(containers.map((netns) => add(netns)));
  const addresses = results.flatMap(({ ips }) => ips.map(({ address }: { address: string }) => address));
  assert.equal(new Set(addresses).size, 24);
  assert.equal(ports().length, 12);
  await Promise.all(containers.flatMap((netns) => [ours('DEL', netns), ours('DEL', netns)]));
  assert.deepEqual([ports(), pods.uids()], [[], []]);
});

test('ADD and DEL of one container at once come one after the other', async () => {
  const netns = sandbox(undo);
  const outcomes = await Promise.all(
    ['ADD', 'DEL', 'ADD', 'DEL', 'ADD'].map((command) => ours(command, netns)),
  );
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    [0, 0, 0, 0, 0],
  );
  await add(netns);
  const [address = ''] = addressesIn(netns);
  const server = await echoServer(undo, netns, address.replace(/\/.*/, ''));
  assert.ok(await echoBytes(await connectFrom(undo, node, address.replace(/\/.*/, ''), server.port), 10));
  assert.equal((await ours('DEL', netns)).status, 0);
  assert.deepEqual([ports(), pods.uids()], [[], []]);
});

test('GC takes what is not on the list, of this network alone', async () => {
  const [kept, lost, other] = [sandbox(undo), `${sandbox(undo)}y`, sandbox(undo)];
  createNetns(lost);
  undo.add(() => removeNetns(lost));
  for (const netns of [kept, lost]) await add(netns);
  await add(other, { name: 'other' });
  // The pod is lost without a DEL, as when a machine's runtime loses its state.
  removeNetns(lost);
  const valid = { 'cni.dev/valid-attachments': [{ containerID: kept, ifname: 'eth0' }] };
  for (let round = 0; round < 2; round++) {
    assert.deepEqual(await call(OURS, { CNI_COMMAND: 'GC' }, config(valid)), { status: 0, answer: null });
    assert.deepEqual(pods.uids().sort(), [`cni/other/${other}/eth0`, `cni/test/${kept}/eth0`].sort());
    assert.equal(ports().length, 2);
  }
  assert.deepEqual(await pods.collect(new Set()), [], 'a kubelet beside it leaves its containers alone');
});

test('a second interface, by another name', async () => {
  const netns = sandbox(undo);
  const second = { ...environment('ADD', netns), CNI_IFNAME: 'net1' };
  await add(netns);
  const { status, answer } = await call(OURS, second, config());
  assert.equal(status, 0, JSON.stringify(answer));
  assert.deepEqual(addressesIn(netns, 'net1'), ['10.244.1.3/24', 'fd00:10:244:1::3/64']);
  await call(OURS, { ...second, CNI_COMMAND: 'DEL' }, config());
  assert.equal(ports().length, 1);
});

test('an agent that is started again is waited for, and knows what it gave', async () => {
  const [first, second] = [sandbox(undo), sandbox(undo)];
  const result = await add(first);
  stopAgent();
  const waiting = [ours('ADD', second), ours('DEL', 'never'), ours('CHECK', first, { prevResult: result })];
  // Whoever is asked while an agent ends gets no answer, and asks again.
  const brief = createServer((connection) => connection.destroy());
  await new Promise<void>((resolve) => brief.listen(socket, resolve));
  await new Promise((resolve) => setTimeout(resolve, 150));
  await new Promise((resolve) => brief.close(resolve));
  startAgent();
  const outcomes = await Promise.all(waiting);
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    [0, 0, 0],
  );
  assert.equal(outcomes[0]?.answer.ips[0].address, '10.244.1.3/24');
  assert.equal(existsSync(socket), true);
});

test('the plugin is installed with its configuration, and taken away with nothing else', async () => {
  const [binDir, confDir, libDir] = ['bin', 'conf', 'lib'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  mkdirSync(confDir);
  writeFileSync(join(confDir, '99-other.conf'), '{}');
  const installation = { binDir, confDir, libDir, socket };
  for (let round = 0; round < 2; round++)
    installCni(installation, { node: process.execPath, bundle: BUNDLE });
  const list = JSON.parse(readFileSync(join(confDir, '10-fairlead.conflist'), 'utf8'));
  const [plugin] = list.plugins;
  const netns = sandbox(undo);
  const input = { ...plugin, cniVersion: list.cniVersion, name: list.name };
  const { status, answer } = await call([join(binDir, plugin.type)], environment('ADD', netns), input);
  assert.equal(status, 0, JSON.stringify(answer));
  assert.equal(answer.ips.length, 2);
  uninstallCni(installation);
  assert.deepEqual(
    [readdirSync(binDir), readdirSync(confDir), existsSync(libDir)],
    [[], ['99-other.conf'], false],
  );
});
