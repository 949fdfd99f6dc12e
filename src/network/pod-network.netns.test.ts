import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { appendFileSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { ConntrackConnection } from '../kernel/conntrack/connection.ts';
import { libc } from '../kernel/libc.ts';
import { bindUdpIn, removeNetns, spawnInNewNamespaces } from '../kernel/netns.ts';
import { findLink, listLinks, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { listNeighbours } from '../kernel/rtnetlink/neighbours.ts';
import { writeSysctl } from '../kernel/sysctl.ts';
import { hasCode } from '../lib/errors.ts';
import { NodeNetwork } from './node-network.ts';
import { podPort } from './pod-link.ts';
import { openPodNetwork, type PodNetwork, removePods } from './pod-network.ts';
import {
  answerSource,
  anyAddressServer,
  connectFrom,
  datagram,
  echoBytes,
  echoServer,
  netnsOf,
  sandbox,
  testNode,
  testTopology,
  Undo,
} from './testing/packets.ts';

// asm-generic/socket.h
const SOL_SOCKET = 1;
const SO_DONTROUTE = 5;
const SO_BINDTODEVICE = 25;

const undo = new Undo();
let stateDir = '';
let node = '';

beforeEach(() => {
  stateDir = mkdtempSync(join(tmpdir(), 'flt-'));
  undo.add(() => rmSync(stateDir, { recursive: true, force: true }));
  node = netnsOf(testTopology(undo, 1), 1);
});
afterEach(() => undo.run());

function open(podCidrs = ['10.244.1.0/24', 'fd00:10:244:1::/64']): {
  network: NodeNetwork;
  pods: PodNetwork;
} {
  const network = new NodeNetwork({
    node: 'node-1',
    addresses: testNode(1).addresses,
    podCidrs,
    overlay: 'routes',
    netns: node,
    serviceCidrs: ['10.96.0.0/16', 'fd00:10:96::/112'],
  });
  undo.add(() => network.close());
  const pods = openPodNetwork({ network, stateDir });
  undo.add(() => pods.close());
  return { network, pods };
}

const pod = (uid: string) => ({ uid, namespace: 'default', name: `pod-${uid}` });
const ports = (network: NodeNetwork) =>
  listLinks(network.socket)
    .map((link) => link.name)
    .filter((name) => name.startsWith('flp'))
    .sort();

test('a pod gets eth0 with an address of each network, and is detached without leftovers', async () => {
  const { network, pods } = open();
  const netns = sandbox(undo);
  const { ips } = await pods.attach(pod('a'), netns);
  assert.deepEqual(ips, ['10.244.1.2', 'fd00:10:244:1::2']);
  assert.deepEqual(pods.addresses('a'), ips);
  const [device] = JSON.parse(
    execFileSync('ip', ['-n', netns, '-j', 'addr', 'show', 'eth0'], { encoding: 'utf8' }),
  );
  assert.deepEqual(
    device.addr_info
      .filter((entry: { scope: string }) => entry.scope === 'global')
      .map((entry: { local: string; prefixlen: number }) => `${entry.local}/${entry.prefixlen}`),
    ['10.244.1.2/24', 'fd00:10:244:1::2/64'],
  );
  assert.equal(device.mtu, network.mtu);
  assert.deepEqual(ports(network), [podPort('a')]);
  await pods.detach('a');
  await pods.detach('a');
  await pods.detach('never seen');
  assert.deepEqual(ports(network), []);
  assert.equal(pods.addresses('a'), null);
  assert.deepEqual(
    listNeighbours(network.socket, { device: network.bridge }).filter((entry) => entry.permanent),
    [],
  );
  using inside = openRouteSocket(netns);
  assert.equal(findLink(inside, 'eth0'), null);
});

test('pods of a node, the node and its Services’ network reach each other at their addresses', async () => {
  const { network, pods } = open();
  const [a, b] = [sandbox(undo), sandbox(undo)];
  const { ips } = await pods.attach(pod('a'), a);
  const other = await pods.attach(pod('b'), b);
  for (const [i, address] of other.ips.entries()) {
    const server = await echoServer(undo, b, address);
    for (const from of [a, b, node]) {
      assert.ok(await echoBytes(await connectFrom(undo, from, address, server.port), 100_000));
    }
    assert.deepEqual(server.peers.slice(0, 2), [ips[i], address]);
    const gateway = network.gateways[i]?.address ?? '';
    const onNode = await echoServer(undo, node, gateway);
    assert.ok(await echoBytes(await connectFrom(undo, a, gateway, onNode.port), 1000));
    assert.deepEqual(onNode.peers, [ips[i]]);
  }
});

test('packets of a pod are not lost as soon as it is attached, while other programs change devices', async () => {
  const { network, pods } = open();
  const gateway = network.gateways[0]?.address ?? '';
  const port = await anyAddressServer(undo, node, 'ipv4');
  // The kernel activates a device when no other change of devices is in progress.
  const change = 'while :; do ip link add flx type veth peer name fly; ip link del flx; done';
  const busy = [1, 2, 3].map(() => spawn('ip', ['netns', 'exec', sandbox(undo), 'sh', '-c', change]));
  undo.add(() => {
    for (const child of busy) child.kill('SIGKILL');
  });
  for (let i = 0; i < 30; i++) {
    const netns = sandbox(undo);
    const { ips } = await pods.attach(pod(`n${i}`), netns);
    const answered = answerSource(undo, { netns, address: ips[0] ?? '' }, gateway, port);
    const lost = new Promise<never>((_, reject) =>
      setTimeout(() => reject(new Error(`no answer to the first datagram of pod ${i}`)), 20_000).unref(),
    );
    await Promise.race([answered, lost]);
  }
});

for (const others of [0, 2500])
  test(`beside ${others} flows of others, the next pod of an address does not inherit those of the former one`, async () => {
    const { network, pods } = open(['10.244.1.0/29', 'fd00:10:244:1::/125']);
    const track = 'ct state new accept';
    const hooks = ['forward', 'input', 'output'].map(
      (hook) => `chain ${hook} { type filter hook ${hook} priority 0; ${track}; }`,
    );
    execFileSync('ip', ['netns', 'exec', node, 'nft', `table inet flows {\n${hooks.join('\n')}\n}`]);
    const [a, b] = [sandbox(undo), sandbox(undo)];
    const to = await pods.attach(pod('b'), b);
    const { ips } = await pods.attach(pod('a'), a);
    using conntrack = new ConntrackConnection(node);
    const flows = () =>
      (['ipv4', 'ipv6'] as const).flatMap((family) =>
        conntrack
          .list(family)
          .map(({ original }) => [original.source, original.destination])
          .filter((ends) => [...ips, ...to.ips].some((ip) => ends.includes(ip))),
      );
    for (const [i, address] of to.ips.entries()) {
      const own = ips[i] ?? '';
      await datagram(undo, { netns: a, address: own }, { netns: b, address }, 100);
      const gateway = network.gateways[i]?.address ?? '';
      await datagram(undo, { netns: node, address: gateway }, { netns: a, address: own }, 100);
      await datagram(undo, { netns: node, address: gateway }, { netns: b, address }, 100);
    }
    const flood = createSocket('udp4');
    undo.add(() => flood.close());
    const listening = once(flood, 'listening');
    flood.bind({ fd: bindUdpIn(node, '127.0.0.1', 0) });
    await listening;
    for (let port = 1; port <= others; port++) await sendTo(flood, 20_000 + port, '127.0.0.1');
    assert.equal(flows().length, 6);
    await pods.detach('a');
    // The proxy finds the connections that it resets by them.
    assert.equal(flows().length, 6);
    for (const uid of ['c', 'd', 'e', 'f']) await pods.attach(pod(uid), sandbox(undo));
    // Of five addresses of IPv4, and six of IPv6.
    await pods.detach('f');
    assert.deepEqual((await pods.attach(pod('g'), sandbox(undo))).ips, ips);
    assert.deepEqual(
      flows(),
      to.ips.map((address, i) => [network.gateways[i]?.address, address]),
    );
  });

for (const { family, any, unused } of [
  { family: 'udp4', any: '0.0.0.0', unused: '10.244.1.99' },
  { family: 'udp6', any: '::', unused: 'fd00:10:244:1::99' },
] as const)
  test(`${family}: packets to unused addresses leave no neighbours that a pod asks for`, async () => {
    const { pods } = open();
    const netns = sandbox(undo);
    await pods.attach(pod('a'), netns);
    const send = async (options: readonly number[]) => {
      const fd = bindUdpIn(netns, any, 0);
      const device = new Uint8Array(Buffer.from('eth0\0'));
      libc().setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, device.length);
      for (const option of options) libc().setsockopt(fd, SOL_SOCKET, option, Uint8Array.of(1, 0, 0, 0), 4);
      const socket = createSocket(family);
      undo.add(() => socket.close());
      const listening = once(socket, 'listening');
      socket.bind({ fd });
      await listening;
      // The kernel may know at once that no neighbour has the address.
      await sendTo(socket, 9, unused).catch((error: unknown) => assert.ok(hasCode(error, 'EHOSTUNREACH')));
    };
    await send([]);
    await send([SO_DONTROUTE]);
    const asked = ['-n', netns, 'neigh', 'show', unused, 'nud', 'incomplete'];
    assert.equal(execFileSync('ip', asked, { encoding: 'utf8' }), '');
  });

function sendTo(socket: Socket, port: number, address: string): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.send('x', port, address, (error) => (error ? reject(error) : resolve()));
  });
}

for (const bridgeRules of [0, 1]) {
  test(`a Service’s answer within one node comes from the Service’s address (br_netfilter ${bridgeRules})`, async (t) => {
    const set = ['ip', 'ip6'].every((family) =>
      writeSysctl(`net.bridge.bridge-nf-call-${family}tables`, bridgeRules, node),
    );
    if (!set && bridgeRules === 1) return t.skip('this kernel has no br_netfilter');
    const { pods } = open();
    const [a, b] = [sandbox(undo), sandbox(undo)];
    await pods.attach(pod('a'), a);
    const { ips } = await pods.attach(pod('b'), b);
    for (const [i, vip] of ['10.96.0.10', 'fd00:10:96::10'].entries()) {
      const server = await echoServer(undo, b, ips[i] ?? '');
      const family = i === 0 ? 'ip' : 'ip6';
      const target = i === 0 ? ips[i] : `[${ips[i]}]`;
      execFileSync('ip', ['netns', 'exec', node, 'nft', '-f', '-'], {
        input: `table ${family} service {
        chain pre {
          type nat hook prerouting priority -100
          ${family} daddr ${vip} tcp dport 80 dnat to ${target}:${server.port}
        }
        chain out {
          type nat hook output priority -100
          ${family} daddr ${vip} tcp dport 80 dnat to ${target}:${server.port}
        }
        chain post {
          type nat hook postrouting priority 100
          ${family} saddr ${ips[i]} ${family} daddr ${ips[i]} masquerade
        }
      }`,
      });
      for (const from of [a, b, node]) {
        assert.ok(await echoBytes(await connectFrom(undo, from, vip, 80), 10_000), `${from} through ${vip}`);
      }
    }
  });
}

test('attaching again succeeds and keeps everything; a new sandbox of the pod gets the same address', async () => {
  const { network, pods } = open();
  const first = sandbox(undo);
  const { ips } = await pods.attach(pod('a'), first);
  const index = findLink(network.socket, podPort('a'))?.index;
  assert.deepEqual((await pods.attach(pod('a'), first)).ips, ips);
  assert.equal(findLink(network.socket, podPort('a'))?.index, index);
  const second = sandbox(undo);
  assert.deepEqual((await pods.attach(pod('a'), second)).ips, ips);
  const server = await echoServer(undo, second, ips[0] ?? '');
  assert.ok(await echoBytes(await connectFrom(undo, node, ips[0] ?? '', server.port), 100));
  removeNetns(second);
  const third = sandbox(undo);
  assert.deepEqual((await pods.attach(pod('a'), third)).ips, ips);
  assert.deepEqual(ports(network), [podPort('a')]);
});

test('a sandbox can be identified by its process', async () => {
  const { pods } = open();
  const pause = spawnInNewNamespaces('sleep', ['60'], { stdio: 'ignore' });
  undo.add(() => pause.kill('SIGKILL'));
  assert.ok(pause.pid);
  const { ips } = await pods.attach(pod('a'), { pid: pause.pid });
  const server = await echoServer(undo, { pid: pause.pid }, ips[0] ?? '');
  assert.ok(await echoBytes(await connectFrom(undo, node, ips[0] ?? '', server.port), 100));
});

test('addresses are not reused at once, nor twice, even after a restart', async () => {
  const seen: string[] = [];
  for (let round = 0; round < 3; round++) {
    const { network, pods } = open();
    for (let i = 0; i < 4; i++) {
      const uid = `pod-${round}-${i}`;
      const { ips } = await pods.attach(pod(uid), sandbox(undo));
      seen.push(...ips);
      if (i % 2 === 0) await pods.detach(uid);
    }
    if (round === 1) assert.deepEqual(pods.addresses('pod-0-1'), ['10.244.1.3', 'fd00:10:244:1::3']);
    // Restarted, with the last line truncated by a crash.
    pods.close();
    network.close();
    appendFileSync(join(stateDir, 'pod-addresses.jsonl'), '{"take":{"uid":"cut');
  }
  assert.equal(new Set(seen).size, 24);
});

test('if all addresses are in use, that is reported, and no partial state is left', async () => {
  const { network, pods } = open(['10.244.1.0/29', 'fd00:10:244:1::/64']);
  for (let i = 0; i < 5; i++) await pods.attach(pod(String(i)), sandbox(undo));
  await assert.rejects(pods.attach(pod('one too many'), sandbox(undo)), {
    code: 'addresses-exhausted',
    message: /all 5 addresses of 10\.244\.1\.0\/29 are in use/,
  });
  assert.equal(ports(network).length, 5);
  assert.equal(pods.addresses('one too many'), null);
  await pods.detach('2');
  assert.equal((await pods.attach(pod('again'), sandbox(undo))).ips[0], '10.244.1.4');
});

test('a missing sandbox is reported with the pod’s name, and its address is released', async () => {
  const { network, pods } = open();
  await assert.rejects(pods.attach(pod('a'), 'flt-no-such'), {
    code: 'ENOENT',
    message: /default\/pod-a.*flt-no-such/,
  });
  assert.equal(pods.addresses('a'), null);
  assert.deepEqual(ports(network), []);
});

test('unknown pods and devices without a record are removed; many as fast as one', async () => {
  const { network, pods } = open();
  for (let i = 0; i < 12; i++) await pods.attach(pod(String(i)), sandbox(undo));
  rmSync(join(stateDir, 'pod-addresses.jsonl'));
  pods.close();
  const again = openPodNetwork({ network, stateDir });
  undo.add(() => again.close());
  const kept = await again.attach(pod('kept'), sandbox(undo));
  await again.attach(pod('gone'), sandbox(undo));
  assert.deepEqual(await again.collect(new Set(['kept', '3'])), ['gone']);
  assert.deepEqual(ports(network), [podPort('kept'), podPort('3')].sort());
  assert.deepEqual(again.addresses('kept'), kept.ips);
});

test('removing all pods leaves no device and no record of their addresses', async () => {
  const { network, pods } = open();
  const netns = sandbox(undo);
  await pods.attach(pod('a'), netns);
  await pods.attach(pod('b'), sandbox(undo));
  await removePods(stateDir, node);
  assert.deepEqual(ports(network), []);
  using inside = openRouteSocket(netns);
  assert.equal(findLink(inside, 'eth0'), null);
  assert.deepEqual(readdirSync(stateDir), []);
});

test('pods are attached and detached concurrently', async () => {
  const { network, pods } = open();
  const uids = Array.from({ length: 20 }, (_, i) => `pod-${i}`);
  const all = await Promise.all(uids.map((uid) => pods.attach(pod(uid), sandbox(undo))));
  assert.equal(new Set(all.flatMap((one) => one.ips)).size, 40);
  const sameAgain = sandbox(undo);
  const work = uids.map((uid) => pods.detach(uid));
  const back = await pods.attach(pod('pod-0'), sameAgain);
  await Promise.all(work);
  assert.deepEqual(ports(network), [podPort('pod-0')]);
  assert.deepEqual(pods.addresses('pod-0'), back.ips);
  assert.ok(!all.some((one) => one.ips[0] === back.ips[0]), 'a pod made again has a new address');
});
