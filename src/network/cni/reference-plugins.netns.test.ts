import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { connectFrom, echoBytes, sandbox, testNode } from '../testing/packets.ts';
import { outsideNetns } from '../topology.ts';
import { DEBIAN, environment, type Program, pluginNode } from './testing/plugin-calls.ts';

const node = pluginNode();
const { undo, add, call, ports } = node;

test('results have the format of the reference plugins', async () => {
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
      dataDir: join(node.folder, 'reference'),
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

/** Runs a list of plugins as a runtime does (SPEC.md, section 3): ADD in order, DEL in reverse. */
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
    const program: Program = type === 'fairlead' ? node.plugin : [join(DEBIAN, type)];
    const { status, answer } = await call(program, environment(command, netns), input);
    assert.equal(status, 0, `${command} ${type}: ${JSON.stringify(answer)}`);
    if (command === 'ADD') prevResult = answer;
  }
  return prevResult as object;
}

test('a chain with the reference plugins portmap, bandwidth and tuning', async () => {
  const netns = sandbox(undo);
  const plugins = [
    { type: 'fairlead', socket: node.socket },
    { type: 'tuning', sysctl: { 'net.ipv4.ip_default_ttl': '77' }, dataDir: join(node.folder, 'tuning') },
    { type: 'bandwidth', capabilities: { bandwidth: true } },
    { type: 'portmap', capabilities: { portMappings: true }, snat: true },
  ];
  const result = await runChain('ADD', netns, plugins);
  const inNode = (...command: string[]) =>
    execFileSync('ip', ['netns', 'exec', node.netns, ...command], { encoding: 'utf8' });
  const ttl = execFileSync('ip', ['netns', 'exec', netns, 'cat', '/proc/sys/net/ipv4/ip_default_ttl']);
  assert.equal(String(ttl), '77\n');
  assert.match(inNode('tc', 'qdisc', 'show', 'dev', ports()[0] ?? ''), /tbf .* rate 8Mbit/);
  // Through portmap the node's port leads to the pod.
  const child = spawn('ip', ['netns', 'exec', netns, process.execPath, '-e', ECHO], { stdio: 'ignore' });
  undo.add(() => child.kill('SIGKILL'));
  const outside = outsideNetns(node.topology.cluster);
  const address = testNode(1).addresses[0] ?? '';
  for (const end = Date.now() + 20_000; ; await new Promise((resolve) => setTimeout(resolve, 20))) {
    try {
      assert.ok(await echoBytes(await connectFrom(undo, outside, address, 9090), 1000));
      break;
    } catch (error) {
      if (Date.now() > end) throw error;
    }
  }
  // CHECK of the reference portmap (1.1.1) expects a container's IPv4 rules in ip6tables, too.
  await runChain('CHECK', netns, plugins.slice(0, 3), result);
  await runChain('DEL', netns, plugins, result);
  await runChain('DEL', netns, plugins, result);
  assert.deepEqual([ports(), node.pods.uids()], [[], []]);
  assert.doesNotMatch(inNode('iptables-save', '-t', 'nat'), /9090/);
});
const ECHO = `require('net').createServer((s) => s.pipe(s).on('error', () => {})).listen(7000, '0.0.0.0')`;
