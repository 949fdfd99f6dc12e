import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { systemClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { keepNetwork } from './network-keeper.ts';
import { NodeNetwork } from './node-network.ts';
import { podMac, podPort } from './pod-link.ts';
import { openPodNetwork } from './pod-network.ts';
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

const undo = new Undo();
afterEach(() => undo.run());

const UID = 'kept';
const port = podPort(UID);

/** Changes by another program on the node, as commands. */
const faults: readonly [what: string, command: string][] = [
  ['all nf_tables tables are flushed', 'nft flush ruleset'],
  ['a firewall is reloaded', 'nft -f - <<< "flush ruleset; table inet filter {}"'],
  ['forwarding is disabled', 'sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0'],
  ['the bridge is set down', 'ip link set fl0 down'],
  ['the bridge is removed', 'ip link delete fl0'],
  ['the addresses of the bridge are flushed', 'ip address flush dev fl0'],
  ['the tunnel is set down', 'ip link set fl.vxlan down'],
  ['the tunnel is removed', 'ip link delete fl.vxlan'],
  ['the uplink is set down', 'ip link set eth0 down'],
  ['the uplink flaps', 'ip link set eth0 down; ip link set eth0 up'],
  ['the addresses of the uplink are flushed', 'ip address flush dev eth0 scope global'],
  ['the routes of the node are removed', 'ip route flush proto 70; ip -6 route flush proto 70'],
  ['all redirects are allowed', 'sysctl -qw net.ipv4.conf.all.send_redirects=1'],
  ['a route is replaced', 'ip route replace 10.244.2.0/24 dev lo'],
  ['the neighbours of the tunnel are flushed', 'ip neigh flush dev fl.vxlan nud all'],
  [
    'a neighbour of the tunnel gets another MAC',
    'ip neigh replace 10.244.2.0 lladdr 02:00:00:00:00:09 dev fl.vxlan',
  ],
  ['the forwarding entries of the tunnel are removed', 'bridge fdb flush dev fl.vxlan'],
  ['the neighbour entry of a pod is removed', 'ip neigh flush dev fl0 nud all'],
  ['the forwarding entry of a pod is removed', `bridge fdb del ${podMac(UID)} dev ${port} master`],
  ['the port of a pod is set down', `ip link set ${port} down`],
  ['the port of a pod is removed from the bridge', `ip link set ${port} nomaster`],
];

test('changes by other programs are reverted, and packets flow again', async () => {
  const topology = testTopology(undo, 2);
  const [first, second] = [1, 2].map((number) => {
    const network = new NodeNetwork({
      node: `node-${number}`,
      addresses: testNode(number).addresses,
      podCidrs: testPodCidrs(number),
      overlay: 'vxlan',
      masquerade: true,
      ownsUplink: true,
      serviceCidrs: ['10.96.0.0/16', 'fd00:10:96::/112'],
      netns: netnsOf(topology, number),
    });
    undo.add(() => network.close());
    assert.deepEqual(network.syncRoutes([1, 2].map(testPeer)), []);
    return network;
  });
  assert.ok(first && second);
  const start = async (network: NodeNetwork, uid: string) => {
    const stateDir = mkdtempSync(join(tmpdir(), 'flt-'));
    undo.add(() => rmSync(stateDir, { recursive: true }));
    const pods = openPodNetwork({ network, stateDir });
    undo.add(() => pods.close());
    const netns = sandbox(undo);
    const hostPorts = [{ hostIP: '', protocol: 'TCP', hostPort: 8080, containerPort: 80 }] as const;
    return {
      netns,
      pods,
      ...(await pods.attach({ uid, namespace: 'default', name: uid, hostPorts }, netns)),
    };
  };
  const a = await start(first, UID);
  const b = await start(second, 'other');
  const node = netnsOf(topology, 1);
  const logger = silentLogger;
  const peers = () => [testPeer(2)];
  const problems: (string | null)[] = [];
  const onProblem = (problem: string | null) => problems.push(problem);
  const keeper = keepNetwork({ network: first, pods: a.pods, peers, onProblem, clock: systemClock, logger });
  undo.add(() => keeper.close());
  const servers = await Promise.all(b.ips.map((ip) => echoServer(undo, b.netns, ip)));
  const before = nodeState(node);
  for (const [what, command] of faults) {
    inNode(node, command);
    const end = performance.now() + 20_000;
    const after = await eventually(
      () => nodeState(node),
      (state) => isDeepStrictEqual(state, before) || performance.now() > end,
    );
    assert.deepEqual({ what, ...after }, { what, ...before });
    for (const [i, server] of servers.entries())
      assert.ok(await echoBytes(await connectFrom(undo, a.netns, b.ips[i] ?? '', server.port), 10_000), what);
  }
});

for (const overlay of ['routes', 'vxlan'] as const) {
  test(`${overlay}: the node’s devices and new pods get the MTU of the uplink when it changes`, async () => {
    const topology = testTopology(undo, 1);
    const node = netnsOf(topology, 1);
    const open = () =>
      new NodeNetwork({
        ...{ node: 'node-1', overlay, masquerade: false, netns: node },
        addresses: testNode(1).addresses,
        podCidrs: testPodCidrs(1),
      });
    const network = open();
    undo.add(() => network.close());
    const stateDir = mkdtempSync(join(tmpdir(), 'flt-'));
    undo.add(() => rmSync(stateDir, { recursive: true }));
    const pods = openPodNetwork({ network, stateDir });
    undo.add(() => pods.close());
    const keeper = keepNetwork({ network, pods, peers: () => [], clock: systemClock, logger: silentLogger });
    undo.add(() => keeper.close());
    const mtusOf = (netns: string, devices: RegExp) =>
      [...inNode(netns, 'ip -o link').matchAll(/^\d+: ([^:@]+).* mtu (\d+)/gm)].flatMap(
        ([, name = '', mtu]) => (devices.test(name) ? Number(mtu) : []),
      );
    const devices = overlay === 'vxlan' ? [0, 0] : [0];
    const overhead = overlay === 'vxlan' ? 50 : 0;
    for (const mtu of [1400, 1500]) {
      inNode(node, `ip link set eth0 mtu ${mtu}`);
      const wanted = devices.map(() => mtu - overhead);
      await eventually(
        () => mtusOf(node, /^fl0$|^fl\.vxlan$/),
        (found) => isDeepStrictEqual(found, wanted),
      );
      const pod = sandbox(undo);
      const uid = `mtu-${mtu}`;
      await pods.attach({ uid, namespace: 'default', name: uid, hostPorts: [] }, pod);
      assert.deepEqual(mtusOf(pod, /^eth0$/), [mtu - overhead]);
      assert.deepEqual(mtusOf(node, new RegExp(`^${podPort(uid)}$`)), [mtu - overhead]);
    }
    keeper.close();
    // IPv6 of the pods would need more.
    inNode(node, 'ip link set eth0 mtu 1300');
    if (overlay === 'vxlan') {
      const { failures } = await network.repair([]);
      assert.match(failures[0]?.error.message ?? '', /eth0 has the MTU 1300.*IPv6 needs 1280/);
      assert.deepEqual(mtusOf(node, /^fl0$|^fl\.vxlan$/), [1450, 1450]);
      assert.throws(open, /IPv6 needs 1280/);
    }
    // An agent that was not running when it changed.
    inNode(node, 'ip link set eth0 mtu 1350');
    const next = open();
    undo.add(() => next.close());
    assert.equal(next.mtu, 1350 - overhead);
    assert.deepEqual(
      mtusOf(node, /^fl0$|^fl\.vxlan$/),
      devices.map(() => 1350 - overhead),
    );
  });
}

test('tables that the kernel cannot protect are restored after other programs flush them', async () => {
  const { keepTables } = await import('../nft/kept-tables.ts');
  const netns = sandbox(undo);
  const tables = keepTables({ families: ['ipv4'], name: 'kept', netns, owned: false });
  undo.add(() => tables.close());
  tables.write('ipv4', {
    family: 'ipv4',
    name: 'kept',
    sets: [],
    chains: [{ name: 'one', rules: [] }],
    groups: new Map(),
  });
  const show = () => inNode(netns, 'nft list tables');
  assert.match(show(), /table ip kept/);
  inNode(netns, 'nft flush ruleset');
  await eventually(show, (text) => text.includes('table ip kept'));
  tables.write('ipv4', null);
  assert.equal(show(), '');
});

function inNode(netns: string, command: string): string {
  return execFileSync('ip', ['netns', 'exec', netns, 'bash', '-c', command], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

/**
 * Returns the node's state without link-local addresses, multicast and numbers of devices, which depend on
 * how often a device was created.
 */
function nodeState(netns: string): Record<string, string[]> {
  const lines = (command: string, clean = (line: string) => line) =>
    inNode(netns, command)
      .split('\n')
      .map((line) => clean(line).replace(/ +/g, ' ').trim())
      .filter((line) => line !== '' && !/fe80::|^multicast|33:33:|01:00:5e/.test(line))
      .sort();
  const link = (line: string) => {
    const [, name] = /^\d+: ([^:@]+)/.exec(line) ?? [];
    return `${name} ${/master \S+/.exec(line) ?? ''} ${/state \S+/.exec(line)} ${/mtu \d+/.exec(line)}`;
  };
  const settings = ['ip_forward', 'conf.all.send_redirects', 'conf.fl0.rp_filter', 'conf.fl0.route_localnet'];
  return {
    links: lines('ip -o link', link),
    addresses: lines('ip -br address', (line) => line.replace(/@\S+/, '').replace(/ fe80:\S+/g, '')),
    routes: lines('ip route; ip -6 route show proto 70; ip -6 route show table local ::1', (line) =>
      line.replace(/metric \d+/, ''),
    ),
    neighbours: lines('ip neigh show nud permanent'),
    // A pod's port has a random MAC.
    forwarding: lines('bridge fdb show').filter((line) => line.includes(' 02:') || line.startsWith('02:')),
    rules: lines('nft -s list ruleset', (line) => line.replace(/ #.*/, '')).filter(
      (line) => !/inet filter|^}$/.test(line),
    ),
    settings: [
      ...lines(
        `sysctl -e net.ipv6.conf.all.forwarding ${settings.map((name) => `net.ipv4.${name}`).join(' ')}`,
      ),
    ],
  };
}
