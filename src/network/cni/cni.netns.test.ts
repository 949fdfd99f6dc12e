import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { createNetns, NETNS_DIR, removeNetns } from '../../kernel/netns.ts';
import { connectFrom, echoBytes, echoServer, sandbox, testNode } from '../testing/packets.ts';
import { outsideNetns } from '../topology.ts';
import { installCni, uninstallCni } from './installation.ts';
import { pluginProgram } from './plugin-program.ts';
import { CNI_VERSIONS } from './specification.ts';
import { addressesIn, environment, pluginNode } from './testing/plugin-calls.ts';

const node = pluginNode();
const { undo, add, call, config, ours, ports } = node;

describe('invalid calls', () => {
  const good = () => environment('ADD', 'c', 'missing');
  for (const [what, variables, input, code] of [
    ['no command', { CNI_COMMAND: '' }, {}, 4],
    ['an unknown command', { CNI_COMMAND: 'MOVE' }, {}, 4],
    ['no container', { CNI_CONTAINERID: '' }, {}, 4],
    ['a container ID with a path', { CNI_CONTAINERID: '../x' }, {}, 4],
    ['no namespace', { CNI_NETNS: '' }, {}, 4],
    ['an interface name that is too long', { CNI_IFNAME: 'a234567890123456' }, {}, 4],
    ['a missing namespace', {}, {}, 3],
    ['an input that is not JSON', {}, 'name: x', 6],
    ['an unsupported version', {}, { cniVersion: '0.2.0' }, 1],
    ['a future version', {}, { cniVersion: '9.0.0' }, 1],
    ['a network without a name', {}, { name: '' }, 7],
    ['an IPAM plugin', {}, { ipam: { type: 'host-local' } }, 2],
    ['the interface of a previous plugin', {}, { prevResult: { cniVersion: '1.1.0' } }, 7],
  ] as const) {
    test(what, async () => {
      const { status, answer } = await call(
        node.plugin,
        { ...good(), ...variables },
        typeof input === 'string' ? input : config(input),
      );
      assert.equal(status, 1);
      assert.equal(answer.code, code, JSON.stringify(answer));
      assert.ok(answer.msg.length > 0);
      assert.deepEqual(ports(), []);
    });
  }
  test('the namespace of the node', async () => {
    const { answer } = await call(node.plugin, environment('ADD', 'c', node.netns), config());
    assert.equal(answer.code, 4);
    assert.match(answer.msg, /own network namespace/);
  });
});

test('VERSION needs no agent, which only knows the requested version', async () => {
  const version = () => call(node.plugin, { CNI_COMMAND: 'VERSION' }, { cniVersion: '1.0.0' });
  const supportedVersions = [...CNI_VERSIONS];
  assert.deepEqual(await version(), { status: 0, answer: { cniVersion: '1.0.0', supportedVersions } });
  node.stopAgent();
  assert.deepEqual(await version(), { status: 0, answer: { cniVersion: '1.1.0', supportedVersions } });
});

test('STATUS succeeds while the agent runs, and for five minutes after it ended', async () => {
  const ask = () => call(node.plugin, { CNI_COMMAND: 'STATUS' }, config());
  const ready = `${node.socket}.ready`;
  assert.deepEqual(await ask(), { status: 0, answer: null });
  node.stopAgent();
  assert.deepEqual(await ask(), { status: 0, answer: null });
  const earlier = (seconds: number) => utimesSync(ready, Date.now() / 1000, Date.now() / 1000 - seconds);
  earlier(240);
  assert.deepEqual(await ask(), { status: 0, answer: null });
  earlier(320);
  const { status, answer } = await ask();
  assert.deepEqual([status, answer.code], [1, 50]);
  assert.match(answer.msg, /the agent of this node does not answer at .*cni\.sock/);
  // A node whose agent was never ready.
  rmSync(ready);
  const never = await ask();
  assert.deepEqual([never.status, never.answer.code], [1, 50]);
});

describe('without the folder of an agent, which cleanup removes', () => {
  for (const [command, status, code] of [
    ['ADD', 1, 11],
    ['STATUS', 1, 50],
    ['DEL', 0, undefined],
  ] as const) {
    test(`${command} ${status === 0 ? 'succeeds' : 'fails'} without waiting`, async () => {
      const plugin = join(node.folder, 'orphan');
      writeFileSync(plugin, pluginProgram('/nonexistent/cni.sock'), { mode: 0o755 });
      const outcome = await call([plugin], environment(command, sandbox(undo)), config());
      assert.deepEqual([outcome.status, outcome.answer?.code], [status, code]);
    });
  }
});

test('the plugin is one static program below 200 kB for each architecture, for paths that fit', () => {
  for (const arch of ['x64', 'arm64']) {
    const program = pluginProgram('/run/agent/cni.sock', arch);
    assert.ok(program.length < 200_000 && program.includes('=/run/agent/cni.sock\0'));
    const machine = { x64: 62, arm64: 183 }[arch];
    assert.equal(program.readUInt16LE(18), machine, 'e_machine');
    assert.ok(!program.includes('ld-linux'), 'no dynamic linker');
  }
  assert.throws(() => pluginProgram('/run/agent/cni.sock', 'ppc64'), /no CNI plugin for the architecture/);
  assert.throws(() => pluginProgram(`/${'x'.repeat(107)}`), /at most 107 bytes/);
});

for (const cniVersion of CNI_VERSIONS) {
  test(`ADD, CHECK and DEL with version ${cniVersion}`, async () => {
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
    assert.ok(await echoBytes(await connectFrom(undo, node.netns, '10.244.1.2', server.port), 1000));
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

describe('CHECK finds', () => {
  for (const [what, spoil, message] of [
    [
      'a missing address',
      (netns: string) => ['-n', netns, 'addr', 'del', '10.244.1.2/24', 'dev', 'eth0'],
      /address 10\.244\.1\.2/,
    ],
    [
      'an interface that is down',
      (netns: string) => ['-n', netns, 'link', 'set', 'eth0', 'down'],
      /eth0 is down/,
    ],
    [
      'a missing default route',
      (netns: string) => ['-n', netns, 'route', 'del', 'default'],
      /no default route via 10\.244\.1\.1/,
    ],
    ['a missing interface', (netns: string) => ['-n', netns, 'link', 'del', 'eth0'], /no device/],
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
  test('an unknown container, and addresses that it did not allocate', async () => {
    const netns = sandbox(undo);
    const prevResult = await add(netns);
    assert.match((await ours('CHECK', 'unknown', { prevResult }, netns)).answer.msg, /unknown container/);
    const other = structuredClone(prevResult);
    other.ips[0].address = '10.244.1.77/24';
    assert.match(
      (await ours('CHECK', netns, { prevResult: other })).answer.msg,
      /10\.244\.1\.2.*10\.244\.1\.77/,
    );
  });
});

test('DEL may be repeated, without ADD, without a namespace, and after the namespace was removed', async () => {
  const netns = `${sandbox(undo)}x`;
  createNetns(netns);
  undo.add(() => removeNetns(netns));
  await add(netns);
  removeNetns(netns);
  for (const path of [netns, netns, '']) {
    assert.deepEqual(await ours('DEL', netns, {}, path), { status: 0, answer: null });
  }
  assert.deepEqual(await ours('DEL', 'never-added', {}, ''), { status: 0, answer: null });
  assert.deepEqual([ports(), node.pods.uids()], [[], []]);
});

test('an interface name in use is an error that leaves no partial state', async () => {
  const netns = sandbox(undo);
  execFileSync('ip', ['-n', netns, 'link', 'add', 'eth0', 'type', 'bridge']);
  const { status } = await ours('ADD', netns);
  assert.equal(status, 1);
  assert.deepEqual([ports(), node.pods.uids()], [[], []]);
});

test('an unsupported version is refused with a list of the supported ones', async () => {
  const { answer } = await call(node.plugin, environment('ADD', 'c'), config({ cniVersion: '0.2.0' }));
  assert.match(answer.msg, /"0\.2\.0" is not supported; this plugin supports 0\.3\.0, .*1\.1\.0/);
});

test('a file that is not a namespace is refused with an explanation', async () => {
  const path = join(node.folder, 'cni-1234');
  writeFileSync(path, '');
  const { answer } = await call(node.plugin, { ...environment('ADD', 'c'), CNI_NETNS: path }, config());
  assert.deepEqual([answer.code, ports()], [4, []]);
  assert.match(answer.msg, /cni-1234 is not a network namespace/);
  assert.match(answer.details, /propagation/);
});

for (const [who, mapping] of [
  ['libcni', { hostPort: 8080, containerPort: 0, protocol: 'tcp' }],
  ['containerd', { HostPort: 8080, ContainerPort: 0, Protocol: 'TCP', HostIP: '' }],
] as const)
  test(`a host port in the format of ${who} leads to the container`, async () => {
    const netns = sandbox(undo);
    const server = await echoServer(undo, netns, '0.0.0.0');
    const name = Object.keys(mapping).find((key) => /^containerPort$/i.test(key)) ?? '';
    await add(netns, { runtimeConfig: { portMappings: [{ ...mapping, [name]: server.port }] } });
    const address = testNode(1).addresses[0] ?? '';
    const outside = outsideNetns(node.topology.cluster);
    assert.ok(await echoBytes(await connectFrom(undo, outside, address, 8080), 1000));
  });

test('host ports in runtimeConfig.portMappings; a port in use is an error', async () => {
  const netns = sandbox(undo);
  const server = await echoServer(undo, netns, '0.0.0.0');
  const mappings = (...portMappings: object[]) => ({ runtimeConfig: { portMappings } });
  const mapping = { hostPort: 8080, containerPort: server.port, protocol: 'tcp' };
  await add(netns, mappings(mapping, { ...mapping, hostPort: 0 }));
  const address = testNode(1).addresses[0] ?? '';
  assert.ok(
    await echoBytes(await connectFrom(undo, outsideNetns(node.topology.cluster), address, 8080), 1000),
  );
  const { answer } = await ours('ADD', sandbox(undo), mappings(mapping));
  assert.equal(answer.code, 101);
  assert.match(answer.msg, /in use by pod default\//);
});

test('many at once: every container has different addresses, and all of them are removed', async () => {
  const containers = Array.from({ length: 12 }, () => sandbox(undo));
  const results = await Promise.all(containers.map((netns) => add(netns)));
  const addresses = results.flatMap(({ ips }) => ips.map(({ address }: { address: string }) => address));
  assert.equal(new Set(addresses).size, 24);
  assert.equal(ports().length, 12);
  await Promise.all(containers.flatMap((netns) => [ours('DEL', netns), ours('DEL', netns)]));
  assert.deepEqual([ports(), node.pods.uids()], [[], []]);
});

test('concurrent ADD and DEL of one container are serialized', async () => {
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
  assert.ok(
    await echoBytes(await connectFrom(undo, node.netns, address.replace(/\/.*/, ''), server.port), 10),
  );
  assert.equal((await ours('DEL', netns)).status, 0);
  assert.deepEqual([ports(), node.pods.uids()], [[], []]);
});

test('GC removes attachments that are not on the list, of this network only', async () => {
  const [kept, lost, other] = [sandbox(undo), `${sandbox(undo)}y`, sandbox(undo)];
  createNetns(lost);
  undo.add(() => removeNetns(lost));
  for (const netns of [kept, lost]) await add(netns);
  await add(other, { name: 'other' });
  // The pod disappears without a DEL, as when a machine's runtime loses its state.
  removeNetns(lost);
  const valid = { 'cni.dev/valid-attachments': [{ containerID: kept, ifname: 'eth0' }] };
  for (let round = 0; round < 2; round++) {
    assert.deepEqual(await call(node.plugin, { CNI_COMMAND: 'GC' }, config(valid)), {
      status: 0,
      answer: null,
    });
    assert.deepEqual(node.pods.uids().sort(), [`cni/other/${other}/eth0`, `cni/test/${kept}/eth0`].sort());
    assert.equal(ports().length, 2);
  }
  assert.deepEqual(
    await node.pods.collect(new Set()),
    [],
    'a kubelet on the same node leaves its containers alone',
  );
});

test('a second interface with another name', async () => {
  const netns = sandbox(undo);
  const second = { ...environment('ADD', netns), CNI_IFNAME: 'net1' };
  await add(netns);
  const { status, answer } = await call(node.plugin, second, config());
  assert.equal(status, 0, JSON.stringify(answer));
  assert.deepEqual(addressesIn(netns, 'net1'), ['10.244.1.3/24', 'fd00:10:244:1::3/64']);
  await call(node.plugin, { ...second, CNI_COMMAND: 'DEL' }, config());
  assert.equal(ports().length, 1);
});

test('calls wait for a restarting agent, which knows its allocations', async () => {
  const [first, second] = [sandbox(undo), sandbox(undo)];
  const result = await add(first);
  node.stopAgent();
  const waiting = [ours('ADD', second), ours('DEL', 'never'), ours('CHECK', first, { prevResult: result })];
  // A request during an agent's exit gets no answer, and is repeated.
  const brief = createServer((connection) => connection.destroy());
  await new Promise<void>((resolve) => brief.listen(node.socket, resolve));
  await new Promise((resolve) => setTimeout(resolve, 150));
  await new Promise((resolve) => brief.close(resolve));
  node.startAgent();
  const outcomes = await Promise.all(waiting);
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    [0, 0, 0],
  );
  assert.equal(outcomes[0]?.answer.ips[0].address, '10.244.1.3/24');
  assert.equal(existsSync(node.socket), true);
});

test('a loopback plugin of another program stays', () => {
  const folder = (name: string) => join(node.folder, name);
  mkdirSync(folder('bin'));
  writeFileSync(join(folder('bin'), 'loopback'), 'theirs');
  const installation = { binDir: folder('bin'), confDir: folder('conf'), socket: node.socket, chained: [] };
  installCni(installation);
  uninstallCni(installation);
  assert.equal(readFileSync(join(folder('bin'), 'loopback'), 'utf8'), 'theirs');
});

test('the plugin is installed with its configuration, and nothing else is removed with it', async () => {
  const [binDir, confDir] = [join(node.folder, 'bin'), join(node.folder, 'conf')];
  mkdirSync(confDir);
  writeFileSync(join(confDir, '99-other.conf'), '{}');
  const chained = [{ type: 'bandwidth', capabilities: { bandwidth: true } }];
  const installation = { binDir, confDir, socket: node.socket, chained };
  for (let round = 0; round < 2; round++) installCni(installation);
  const list = JSON.parse(readFileSync(join(confDir, '10-fairlead.conflist'), 'utf8'));
  const [plugin, ...others] = list.plugins;
  assert.deepEqual(others, chained);
  const netns = sandbox(undo);
  const input = { ...plugin, cniVersion: list.cniVersion, name: list.name };
  const { status, answer } = await call([join(binDir, plugin.type)], environment('ADD', netns), input);
  assert.equal(status, 0, JSON.stringify(answer));
  assert.equal(answer.ips.length, 2);
  const container = sandbox(undo);
  const loopback = { cniVersion: '1.0.0', name: 'cni-loopback', type: 'loopback' };
  const program = [join(binDir, 'loopback')] as const;
  const variables = { ...environment('ADD', container), CNI_IFNAME: 'lo' };
  const added = await call(program, variables, loopback);
  assert.deepEqual(
    [added.status, added.answer?.ips?.[0]?.address],
    [0, '127.0.0.1/8'],
    JSON.stringify(added),
  );
  assert.match(
    execFileSync('ip', ['-n', container, 'link', 'show', 'lo'], { encoding: 'utf8' }),
    /LOOPBACK,UP/,
  );
  for (const command of ['CHECK', 'DEL']) {
    const outcome = await call(
      program,
      { ...variables, CNI_COMMAND: command },
      { ...loopback, prevResult: added.answer },
    );
    assert.deepEqual(outcome, { status: 0, answer: null }, command);
  }
  uninstallCni(installation);
  assert.deepEqual([readdirSync(binDir), readdirSync(confDir)], [[], ['99-other.conf']]);
});
