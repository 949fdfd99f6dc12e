import assert from 'node:assert/strict';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { Socket as TcpSocket } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { ConntrackConnection } from '../src/kernel/conntrack/connection.ts';
import { bindUdpIn, type NetnsRef, openTcpIn } from '../src/kernel/netns.ts';
import { findLink, openRouteSocket } from '../src/kernel/rtnetlink/links.ts';
import { listNeighbours } from '../src/kernel/rtnetlink/neighbours.ts';
import { readSysctl } from '../src/kernel/sysctl.ts';
import type { Pod } from '../src/kube/types.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { type Cluster, type RunningPod, spawnFairlead, startCluster } from './testing/cluster.ts';
import { clusterPlaces } from './testing/cluster-places.ts';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';
import { pod } from './testing/policy-traffic.ts';

/** One pod does not fill the tables that the pods of a node, and those of the machine, share. */

const MANIFEST = [
  pod('greedy', 'node-1', 'role: greedy', 'sleep, infinity'),
  pod('other', 'node-1', 'role: other', 'sleep, infinity'),
  pod('server', 'node-1', 'role: server', 'fairlead, echo, --port=8080'),
  pod('far', 'node-2', 'role: far', 'sleep, infinity'),
].join('\n---');
const UNUSED = 150;
/** Addresses of the node's link: a pod may begin to send to 200, and to 60 more each second. */
const HOSTS = 900;
const DNS = '10.96.0.10';
/** Datagrams without a question, at once: the kernel lets 2,000 pass, and 8,000 a second. */
const FLOOD = 20_000;
/** NUD_INCOMPLETE, NUD_FAILED (linux/neighbour.h): not of the entries without a question that the kernel makes for redirects. */
const ASKED = 0x01 | 0x20;
/** Datagrams that are handed to the kernel before the process waits. */
const BATCH = 500;

/** The bounds are tables of their own, the same in each mode: each mode is there once. */
const CLUSTERS = TAKES_FULL_PRODUCT
  ? ([
      ['routes', ['nftables', 'ebpf', 'iptables', 'userspace']],
      ['vxlan', ['nftables', 'ebpf', 'iptables', 'userspace']],
    ] as const)
  : ([
      ['routes', ['nftables', 'ebpf']],
      ['vxlan', ['iptables', 'userspace']],
    ] as const);

for (const [overlay, modes] of CLUSTERS)
  describe(`overlay ${overlay}`, () => {
    let cluster: Cluster;
    const pods = new Map<string, RunningPod & { netns: NetnsRef }>();
    let nodes: NetnsRef[] = [];

    before(async () => {
      cluster = await startCluster(['--nodes', '2', '--ip-family', 'dual', '--overlay', overlay]);
      await cluster.apply(MANIFEST);
      await cluster.ask('wait', '--for=condition=Ready', 'pod', '--all', '--timeout=120s');
      const { items } = JSON.parse(await cluster.ask('get', 'pods', '-o', 'json')) as { items: Pod[] };
      const places = clusterPlaces(cluster, items);
      const netnsOf = (name: string) => ({
        path: places.find((one) => one.name === name)?.netns ?? assert.fail(`no place ${name}`),
      });
      nodes = ['node-1', 'node-2'].map(netnsOf);
      for (const { metadata, spec, status } of items) {
        const name = metadata?.name ?? '';
        const ips = (status?.podIPs ?? []).flatMap(({ ip }) => ip ?? []);
        pods.set(name, { name, node: spec?.nodeName ?? '', ips, netns: netnsOf(`pod default/${name}`) });
      }
    });
    after(() => cluster?.down());

    const find = (name: string) => pods.get(name) ?? assert.fail(`no pod ${name}`);

    if (overlay === 'routes')
      test('explain, flows and an event name a pod that sends more DNS queries than it may', async () => {
        const { netns, ips } = find('greedy');
        const [own = ''] = ips;
        const dns = ['explain', 'pod/greedy', `${DNS}:53/udp`] as const;
        assert.match((await cluster.fairlead(...dns)).out, /^DELIVERED/);
        const socket = await openUdp(netns, own);
        const flood = () =>
          send(
            socket,
            Array.from({ length: FLOOD }, () => [DNS, 53]),
          );
        const flows = spawnFairlead(cluster.stateRoot, ['flows', '--name', cluster.name]);
        let shown = '';
        flows.stdout?.resume();
        flows.stderr?.on('data', (text) => {
          shown += text;
        });
        try {
          await eventually(
            async () => {
              await flood();
              return (await cluster.fairlead(...dns)).out;
            },
            (text) => /^PARTLY DELIVERED.*limit of one client/.test(text.replace(/\s+/g, ' ')),
          );
          const others = (await cluster.fairlead('explain', 'pod/other', `${DNS}:53/udp`)).out;
          assert.match(others, /^DELIVERED/);
          await eventually(
            async () => {
              await flood();
              return shown + (await cluster.ask('get', 'events', '-o', 'jsonpath={.items[*].reason}'));
            },
            (text) =>
              text.includes('TooManyDNSQueries') &&
              new RegExp(`dropped \\d+ packets of ${own}: .*DNS queries`).test(text),
          );
        } finally {
          socket.close();
          flows.kill('SIGTERM');
        }
      });

    for (const [at, mode] of modes.entries()) {
      test(`${mode}: packets to addresses without a pod are answered at once, and leave no neighbours`, async () => {
        await cluster.fairlead('mode', mode);
        for (const name of ['greedy', 'far'])
          for (const [at, own] of find(name).ips.entries()) {
            const socket = await openUdp(find(name).netns, own);
            const target = find('greedy').ips[at] ?? '';
            const addresses = Array.from({ length: UNUSED }, (_, i) => beside(target, 100 + i));
            await send(
              socket,
              addresses.map((address) => [address, 9]),
            );
            socket.close();
            assert.deepEqual(asked(nodes[0]), []);
            assert.equal(await connectError(find(name).netns, beside(target, 99)), 'EHOSTUNREACH');
            assert.deepEqual(asked(nodes[0]), []);
          }
        const explained = await cluster.fairlead(
          'explain',
          'pod/far',
          `${beside(find('greedy').ips[0] ?? '', 99)}:80`,
        );
        assert.match(explained.out, /UNREACHABLE[\s\S]*no pod has it/);
      });

      test(`${mode}: a pod's packets to unused addresses of the node's link fill no table of neighbours`, async () => {
        await cluster.fairlead('mode', mode);
        const { netns, ips } = find('greedy');
        const own = ips.find((ip) => ip.includes(':')) ?? '';
        const node = cluster.state().nodes[0]?.addresses.find((ip) => ip.includes(':')) ?? '';
        const prefix = node.replace(/[^:]*$/, '');
        // Other addresses than in the modes before.
        const hosts = Array.from(
          { length: HOSTS },
          (_, i) => `${prefix}${(0x1000 * (at + 1) + i).toString(16)}`,
        );
        const socket = await openUdp(netns, own);
        await send(
          socket,
          hosts.map((address) => [address, 9]),
        );
        socket.close();
        const asking = new Set(asked(nodes[0], 'eth0'));
        const count = hosts.filter((address) => asking.has(address)).length;
        assert.ok(count > 0 && count <= HOSTS * 0.7, `${count} of ${HOSTS}`);
        assert.equal(await connectError(find('other').netns, find('far').ips[1] ?? '', 9), 'ECONNREFUSED');
      });

      // The pods are at rest, and the table has a fixed size: one overlay tells what all do.
      if (overlay === 'routes')
        test(`${mode}: a pod with a quarter of the tracked connections opens no more, others do`, async () => {
          await cluster.fairlead('mode', mode);
          using conntrack = new ConntrackConnection(nodes[0]);
          const share = Math.floor(Number(readSysctl('net.netfilter.nf_conntrack_max', nodes[0])) / 4);
          const { netns, ips } = find('greedy');
          const isOfGreedy = (source: string) => ips.includes(source);
          const [own = ''] = ips;
          const [to = ''] = find('server').ips;
          // Each sends to many ports of the server.
          const sockets = await Promise.all([1, 2, 3].map(() => openUdp(netns, own)));
          const events = async () =>
            (await cluster.ask('get', 'events', '-o', 'jsonpath={.items[*].reason}')).includes(
              'TooManyConnections',
            );
          try {
            const all = Array.from({ length: Math.min(share + 3000, 180_000) }, (_, i) => i);
            for (const [n, socket] of sockets.entries())
              await send(
                socket,
                all.filter((i) => Math.floor(i / 60_000) === n).map((i) => [to, 1000 + (i % 60_000)]),
              );
            await eventually(
              async () => (await cluster.fairlead('explain', 'pod/greedy', `${to}:8080`)).out,
              (text) => /has more tracked connections/.test(text),
            );
            const later = await openUdp(netns, own);
            await send(
              later,
              Array.from({ length: 500 }, (_, i) => [to, 1000 + i]),
            );
            const { port } = later.address();
            later.close();
            const passed = conntrack
              .list('ipv4', { source: own })
              .filter(({ original }) => isOfGreedy(original.source) && original.sourcePort === port);
            assert.equal(passed.length, 0);
            assert.equal(await connectError(find('other').netns, to, 8080), null);
            await eventually(events, (has) => has);
          } finally {
            for (const socket of sockets) socket.close();
            const left = conntrack.list('ipv4', { source: own });
            await conntrack.delete(left.filter(({ original }) => isOfGreedy(original.source)));
          }
          await eventually(
            async () => (await cluster.fairlead('explain', 'pod/greedy', `${to}:8080`)).out,
            (text) => text.startsWith('DELIVERED'),
          );
          assert.equal(await connectError(netns, to, 8080), null);
        });
    }
  });

/** Returns an address in the pod network of another one, which no pod has. */
function beside(address: string, number: number): string {
  return address.includes(':')
    ? address.replace(/[^:]*$/, number.toString(16))
    : address.replace(/[^.]*$/, String(number));
}

/** Returns the addresses that a node has asked for on a device. */
function asked(node: NetnsRef | undefined, name = 'fl0'): string[] {
  using socket = openRouteSocket(node);
  const device = findLink(socket, name)?.index ?? assert.fail(`no device ${name}`);
  return listNeighbours(socket, { device })
    .filter(({ permanent, state }) => !permanent && (state & ASKED) !== 0)
    .map(({ address }) => address);
}

async function openUdp(netns: NetnsRef, own: string): Promise<Socket> {
  const socket = createSocket(own.includes(':') ? 'udp6' : 'udp4');
  socket.on('error', () => {});
  const listening = once(socket, 'listening');
  socket.bind({ fd: bindUdpIn(netns, own, 0) });
  await listening;
  return socket;
}

async function send(
  socket: Socket,
  targets: readonly (readonly [address: string, port: number])[],
): Promise<void> {
  for (let from = 0; from < targets.length; from += BATCH)
    // The kernel may know at once that no pod has the address.
    await Promise.all(
      targets
        .slice(from, from + BATCH)
        .map(
          ([address, port]) =>
            new Promise<void>((resolve) => socket.send('x', port, address, () => resolve())),
        ),
    );
}

/** Connects, and returns the error's code; null: connected. */
async function connectError(netns: NetnsRef, host: string, port = 80): Promise<string | null> {
  const socket = new TcpSocket({ fd: openTcpIn(netns, host.includes(':') ? 'ipv6' : 'ipv4') });
  try {
    socket.connect(port, host);
    await once(socket, 'connect');
    return null;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? 'none';
  } finally {
    socket.destroy();
  }
}
