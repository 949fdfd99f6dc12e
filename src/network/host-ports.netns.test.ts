import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { bindUdpIn, localPort, type NetnsRef } from '../kernel/netns.ts';
import { HOST_PORT_TABLE, type HostPort, portsClash } from './host-ports.ts';
import { NodeNetwork } from './node-network.ts';
import { openPodNetwork, type PodNetwork } from './pod-network.ts';
import {
  connectFrom,
  echoBytes,
  echoServer,
  netnsOf,
  sandbox,
  testNode,
  testPeer,
  testPodCidrs,
  testTopology,
  Undo,
} from './testing/packets.ts';
import { outsideNetns, type Topology } from './topology.ts';

/** Datagrams without an answer for this time are lost. */
const LOST_MS = 20_000;

const undo = new Undo();
let topology: Topology;
let node: string;
let pods: PodNetwork;
let stateDir: string;

beforeEach(() => {
  topology = testTopology(undo, 2);
  node = netnsOf(topology, 1);
  stateDir = mkdtempSync(join(tmpdir(), 'flt-'));
  undo.add(() => rmSync(stateDir, { recursive: true, force: true }));
  pods = open(1, stateDir);
});
afterEach(() => undo.run());

function open(number: number, folder: string): PodNetwork {
  const network = new NodeNetwork({
    ...testNode(number),
    node: `node-${number}`,
    podCidrs: testPodCidrs(number),
    overlay: 'routes',
    netns: netnsOf(topology, number),
  });
  undo.add(() => network.close());
  network.syncRoutes([1, 2].map(testPeer));
  const opened = openPodNetwork({ network, stateDir: folder });
  undo.add(() => opened.close());
  // As an agent that ends: the next one could not change the tables of one that runs.
  const close = () => {
    opened.close();
    network.close();
  };
  return { ...opened, close };
}

const port = (hostPort: number, containerPort: number, more: Partial<HostPort> = {}): HostPort => ({
  hostIP: '',
  protocol: 'TCP',
  hostPort,
  containerPort,
  ...more,
});
async function startPod(uid: string, hostPorts: HostPort[], network = pods) {
  const netns = sandbox(undo);
  const { ips } = await network.attach({ uid, namespace: 'default', name: uid, hostPorts }, netns);
  return { netns, ips };
}
const tables = () =>
  execFileSync('ip', ['netns', 'exec', node, 'nft', 'list', 'tables'], { encoding: 'utf8' })
    .split('\n')
    .filter((line) => line.includes(HOST_PORT_TABLE));

/** Sends a datagram from a constant port, repeated until it is answered, and resolves to the answer. */
async function askUdp(netns: NetnsRef, address: string, to: number) {
  const v6 = address.includes(':');
  const fd = bindUdpIn(netns, v6 ? '::' : '0.0.0.0', 0);
  const socket = createSocket(v6 ? 'udp6' : 'udp4');
  undo.add(() => socket.close());
  const listening = once(socket, 'listening');
  socket.bind({ fd });
  await listening;
  socket.on('error', () => {});
  return async (): Promise<string> => {
    const answer = once(socket, 'message', { signal: AbortSignal.timeout(LOST_MS) });
    const timer = setInterval(() => socket.send('who', to, address), 20);
    try {
      const [data] = (await answer) as [Buffer];
      return data.toString();
    } finally {
      clearInterval(timer);
    }
  };
}
async function udpServer(netns: NetnsRef, address: string, name: string): Promise<number> {
  const fd = bindUdpIn(netns, address, 0);
  const number = localPort(fd);
  const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
  undo.add(() => socket.close());
  const listening = once(socket, 'listening');
  socket.bind({ fd });
  await listening;
  socket.on('message', (_, peer) => socket.send(name, peer.port, peer.address));
  return number;
}

for (const [i, family] of (['ipv4', 'ipv6'] as const).entries()) {
  test(`a host port leads to its pod (${family}): from outside, nodes, pods, the pod itself`, async () => {
    const netns = sandbox(undo);
    const [a = '', b = ''] = testNode(1).addresses;
    const nodeAddress = i === 0 ? a : b;
    // The server listens on all addresses of its namespace before the pod is attached.
    const server = await echoServer(undo, netns, i === 0 ? '0.0.0.0' : '::');
    const { ips } = await pods.attach(
      { uid: 'a', namespace: 'default', name: 'a', hostPorts: [port(8080, server.port)] },
      netns,
    );
    const neighbour = await startPod('b', []);
    const far = await startPod('c', [], open(2, join(stateDir, 'second')));
    const outside = topology.outsideAddresses[i] ?? '';
    const sources: [string, NetnsRef, string | null][] = [
      ['outside', outsideNetns(topology.cluster), outside],
      ['the other node', netnsOf(topology, 2), testNode(2).addresses[i] ?? ''],
      ['a pod of the node', neighbour.netns, neighbour.ips[i] ?? ''],
      ['a pod of the other node', far.netns, far.ips[i] ?? ''],
      ['the pod itself', netns, null],
      ['the node', node, null],
    ];
    for (const [who, from, source] of sources) {
      server.peers.length = 0;
      assert.ok(await echoBytes(await connectFrom(undo, from, nodeAddress, 8080), 50_000), who);
      if (source !== null)
        assert.deepEqual(
          server.peers.map((peer) => peer.replace('::ffff:', '')),
          [source],
          who,
        );
    }
    const loopback = i === 0 ? '127.0.0.1' : '::1';
    assert.ok(await echoBytes(await connectFrom(undo, node, loopback, 8080), 1000), loopback);
    // Other ports of the node are closed, and so is the port on other addresses.
    const refused = async (address: string, at: number) =>
      await assert.rejects(connectFrom(undo, outsideNetns(topology.cluster), address, at), {
        code: 'ECONNREFUSED',
      });
    await refused(nodeAddress, 8081);
    await refused(testNode(2).addresses[i] ?? '', 8080);
    assert.ok(ips[i]);
    await pods.detach('a');
    await refused(nodeAddress, 8080);
    assert.deepEqual(tables(), []);
  });
}

test('a port with hostIP answers only on that address; two pods share its number on two addresses', async () => {
  const [address = ''] = testNode(1).addresses;
  const one = sandbox(undo);
  const two = sandbox(undo);
  const first = await echoServer(undo, one, '0.0.0.0');
  const second = await echoServer(undo, two, '0.0.0.0');
  await pods.attach(
    { uid: 'a', namespace: 'default', name: 'a', hostPorts: [port(8080, first.port, { hostIP: address })] },
    one,
  );
  await pods.attach(
    {
      uid: 'b',
      namespace: 'default',
      name: 'b',
      hostPorts: [port(8080, second.port, { hostIP: '127.0.0.1' })],
    },
    two,
  );
  await echoBytes(await connectFrom(undo, outsideNetns(topology.cluster), address, 8080), 10);
  await echoBytes(await connectFrom(undo, node, '127.0.0.1', 8080), 10);
  assert.deepEqual([first.peers.length, second.peers.length], [1, 1]);
});

test('pods do not reach listeners on the node’s loopback, which route_localnet would allow', async () => {
  const { netns, ips } = await startPod('a', [port(8080, 80)]);
  const hidden = await echoServer(undo, node, '127.0.0.1');
  execFileSync('ip', ['-n', netns, 'route', 'add', 'local', '192.0.2.0/24', 'dev', 'lo']);
  execFileSync('ip', ['-n', netns, 'rule', 'del', 'pref', '0']);
  execFileSync('ip', ['-n', netns, 'rule', 'add', 'pref', '100', 'lookup', 'local']);
  execFileSync('ip', [
    '-n',
    netns,
    'route',
    'add',
    '127.0.0.0/8',
    'via',
    '10.244.1.1',
    'src',
    ips[0] ?? '',
    'table',
    '50',
  ]);
  execFileSync('ip', ['-n', netns, 'rule', 'add', 'pref', '50', 'to', '127.0.0.0/8', 'lookup', '50']);
  execFileSync('ip', ['netns', 'exec', netns, 'sysctl', '-qw', 'net.ipv4.conf.all.route_localnet=1']);
  const connection = connectFrom(undo, netns, '127.0.0.1', hidden.port).catch(() => null);
  await Promise.race([connection, new Promise((resolve) => setTimeout(resolve, 500))]);
  assert.deepEqual(hidden.peers, []);
});

test('a UDP client that keeps its port follows a host port from pod to pod', async () => {
  const [address = ''] = testNode(1).addresses;
  const [one, two] = [sandbox(undo), sandbox(undo)];
  const first = await udpServer(one, '0.0.0.0', 'first');
  const second = await udpServer(two, '0.0.0.0', 'second');
  const udp = (containerPort: number) => [port(5353, containerPort, { protocol: 'UDP' })];
  const ask = await askUdp(outsideNetns(topology.cluster), address, 5353);
  const before = ask();
  await pods.attach({ uid: 'a', namespace: 'default', name: 'a', hostPorts: udp(first) }, one);
  assert.equal(await before, 'first');
  await pods.detach('a');
  await pods.attach({ uid: 'b', namespace: 'default', name: 'b', hostPorts: udp(second) }, two);
  for (;;) if ((await ask()) === 'second') break;
});

test('a port in use is refused by name; a restart keeps the ports', async () => {
  const [address = ''] = testNode(1).addresses;
  const netns = sandbox(undo);
  const server = await echoServer(undo, netns, '0.0.0.0');
  const hostPorts = [port(8080, server.port)];
  await pods.attach({ uid: 'a', namespace: 'default', name: 'a', hostPorts }, netns);
  await assert.rejects(startPod('b', [port(8080, 1)]), {
    code: 'NodePorts',
    message: 'host port 8080/TCP is already in use by pod default/a',
  });
  assert.equal(pods.addresses('b'), null);
  pods.close();
  pods = open(1, stateDir);
  await pods.attach({ uid: 'a', namespace: 'default', name: 'a', hostPorts }, netns);
  assert.ok(await echoBytes(await connectFrom(undo, outsideNetns(topology.cluster), address, 8080), 10));
  assert.deepEqual(await pods.collect(new Set()), ['a']);
  assert.deepEqual(tables(), []);
});

for (const [one, other, clash] of [
  [port(80, 1), port(80, 2), true],
  [port(80, 1), port(81, 1), false],
  [port(80, 1), port(80, 1, { protocol: 'UDP' }), false],
  [port(80, 1), port(80, 1, { hostIP: '192.0.2.1' }), true],
  [port(80, 1, { hostIP: '0.0.0.0' }), port(80, 1, { hostIP: '192.0.2.1' }), true],
  [port(80, 1, { hostIP: '192.0.2.2' }), port(80, 1, { hostIP: '192.0.2.1' }), false],
  [port(80, 1, { hostIP: '::1' }), port(80, 1, { hostIP: '127.0.0.1' }), false],
] as const) {
  test(`${one.hostIP}:${one.hostPort}/${one.protocol} and ${other.hostIP}:${other.hostPort}/${other.protocol} ${clash ? 'conflict' : 'do not conflict'}`, () => {
    assert.equal(portsClash(one, other), clash);
    assert.equal(portsClash(other, one), clash);
  });
}
