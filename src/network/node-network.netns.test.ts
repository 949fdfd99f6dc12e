import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, test } from 'node:test';
import { addAddress, deleteAddress } from '../kernel/rtnetlink/addresses.ts';
import { watchNetwork } from '../kernel/rtnetlink/events.ts';
import { getLink, listLinks, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { deleteRoute, listRoutes, ROUTE_PROTOCOL } from '../kernel/rtnetlink/routes.ts';
import { NodeNetwork, type NodeNetworkOptions } from './node-network.ts';
import type { Overlay } from './overlay-routes.ts';
import { openPodNetwork } from './pod-network.ts';
import {
  answerSource,
  anyAddressServer,
  connectFrom,
  datagram,
  echoBytes,
  echoServer,
  fragmentsMade,
  netnsOf,
  sandbox,
  testNode,
  testPeer,
  testPodCidrs,
  testTopology,
  Undo,
} from './testing/packets.ts';
import { addTopologyNode, outsideNetns, removeTopologyNode, type Topology } from './topology.ts';

const undo = new Undo();
afterEach(() => undo.run());

function openNode(
  topology: Topology,
  number: number,
  overlay: Overlay,
  more: Partial<NodeNetworkOptions> = {},
) {
  const network = new NodeNetwork({
    node: `node-${number}`,
    addresses: testNode(number).addresses,
    podCidrs: testPodCidrs(number),
    overlay,
    netns: netnsOf(topology, number),
    ...more,
  });
  undo.add(() => network.close());
  return network;
}

async function startPod(network: NodeNetwork, uid: string) {
  const stateDir = mkdtempSync(join(tmpdir(), 'flt-'));
  undo.add(() => rmSync(stateDir, { recursive: true }));
  const pods = openPodNetwork({ network, stateDir });
  undo.add(() => pods.close());
  const netns = sandbox(undo);
  const { ips } = await pods.attach({ uid, namespace: 'default', name: uid }, netns);
  return { netns, ips, ip: (family: 'ipv4' | 'ipv6') => ips[family === 'ipv4' ? 0 : 1] ?? '' };
}

/** Creates two nodes that know each other, each with a pod. */
async function twoNodes(overlay: Overlay) {
  const topology = testTopology(undo, 2);
  const networks = [1, 2].map((number) => openNode(topology, number, overlay));
  const [first, second] = networks;
  assert.ok(first && second);
  for (const network of networks) assert.deepEqual(network.syncRoutes([1, 2].map(testPeer)), []);
  return { topology, first, second, a: await startPod(first, 'a'), b: await startPod(second, 'b') };
}

for (const overlay of ['routes', 'vxlan'] as const) {
  test(`pods of two nodes reach each other (${overlay}), without NAT, at full size, both families`, async () => {
    const { topology, first, a, b } = await twoNodes(overlay);
    assert.equal(first.mtu, overlay === 'routes' ? 1500 : 1450);
    const namespaces = [a.netns, b.netns, netnsOf(topology, 1), netnsOf(topology, 2)];
    for (const family of ['ipv4', 'ipv6'] as const) {
      const cutUp = namespaces.map(fragmentsMade);
      const server = await echoServer(undo, b.netns, b.ip(family));
      const socket = await connectFrom(undo, a.netns, b.ip(family), server.port);
      assert.ok(await echoBytes(socket, 1 << 20), `1 MiB over ${family}`);
      assert.deepEqual(server.peers, [a.ip(family)], 'the source address is preserved');
      const payload: number = first.mtu - (family === 'ipv4' ? 28 : 48);
      const from = { netns: a.netns, address: a.ip(family) };
      const to = { netns: b.netns, address: b.ip(family) };
      assert.deepEqual(await datagram(undo, from, to, payload), { length: payload, source: from.address });
      assert.deepEqual(await datagram(undo, to, from, payload), { length: payload, source: to.address });
      assert.deepEqual(namespaces.map(fragmentsMade), cutUp, 'no packet at the MTU is cut up');
      // The sender fragments larger ones.
      assert.equal((await datagram(undo, from, to, payload + 1)).length, payload + 1);
      // Each node reaches each pod, and pods reach nodes.
      for (const number of [1, 2]) {
        const node = await connectFrom(undo, netnsOf(topology, number), b.ip(family), server.port);
        assert.ok(await echoBytes(node, 1000), `node ${number} reaches the pod`);
      }
      const address = testNode(2).addresses[family === 'ipv4' ? 0 : 1] ?? '';
      const onNode = await echoServer(undo, netnsOf(topology, 2), address);
      assert.ok(await echoBytes(await connectFrom(undo, a.netns, address, onNode.port), 1000));
      await assert.rejects(connectFrom(undo, outsideNetns(topology.cluster), b.ip(family), server.port), {
        code: 'ENETUNREACH',
      });
    }
  });

  test(`nodes join and leave (${overlay}) without affecting a connection between others`, async () => {
    const { topology, first, second, a, b } = await twoNodes(overlay);
    const server = await echoServer(undo, b.netns, b.ip('ipv4'));
    const socket = await connectFrom(undo, a.netns, b.ip('ipv4'), server.port);
    const before = shownRoutes(first);
    for (let round = 0; round < 2; round++) {
      addTopologyNode(topology.cluster, testNode(3), topology.wireCidrs);
      const third = openNode(topology, 3, overlay);
      for (const network of [first, second, third]) {
        assert.deepEqual(network.syncRoutes([1, 2, 3].map(testPeer)), []);
      }
      const c = await startPod(third, 'c');
      const back = await echoServer(undo, a.netns, a.ip('ipv6'));
      assert.ok(await echoBytes(await connectFrom(undo, c.netns, a.ip('ipv6'), back.port), 10_000));
      assert.ok(await echoBytes(socket, 1000));
      for (const network of [first, second]) assert.deepEqual(network.syncRoutes([1, 2].map(testPeer)), []);
      assert.equal(removeTopologyNode(topology.cluster, 'node-3'), true);
      assert.ok(await echoBytes(socket, 1000));
      assert.deepEqual(shownRoutes(first), before);
    }
  });

  for (const agent of ['is started again', 'runs on'] as const)
    test(`a node changes its address (${overlay}), its agent ${agent}, and its connections continue`, async () => {
      const { topology, first, second, a, b } = await twoNodes(overlay);
      const server = await echoServer(undo, b.netns, b.ip('ipv4'));
      const socket = await connectFrom(undo, a.netns, b.ip('ipv4'), server.port);
      const addresses = ['172.30.9.77', 'fd00:172:30:9::77'];
      using route = openRouteSocket(netnsOf(topology, 2));
      const device = getLink(route, 'eth0').index;
      for (const [i, old] of testNode(2).addresses.entries()) {
        const prefix = i === 0 ? 24 : 64;
        deleteAddress(route, { device, address: old, prefix });
        addAddress(route, { device, address: addresses[i] ?? '', prefix });
      }
      const peers = [testPeer(1), { ...testPeer(2), addresses }];
      if (agent === 'runs on') {
        assert.throws(
          () => second.moveTo(['172.30.9.78']),
          /no network device has the node's address 172\.30\.9\.78/,
        );
        second.moveTo(addresses);
        assert.deepEqual(second.syncRoutes(peers), []);
      } else {
        second.close();
        assert.deepEqual(openNode(topology, 2, overlay, { addresses }).syncRoutes(peers), []);
      }
      assert.deepEqual(first.syncRoutes(peers), []);
      assert.ok(await echoBytes(socket, 100_000));
      assert.ok(await echoBytes(await connectFrom(undo, a.netns, b.ip('ipv4'), server.port), 1000));
    });

  test(`a server of datagrams of the node answers its pods (${overlay}) from the address that they asked`, async () => {
    const topology = testTopology(undo, 1);
    const netns = netnsOf(topology, 1);
    const asked = async (pod: Awaited<ReturnType<typeof startPod>>, what: string) => {
      for (const family of ['ipv4', 'ipv6'] as const) {
        const address = testNode(1).addresses[family === 'ipv4' ? 0 : 1] ?? '';
        const port = await anyAddressServer(undo, netns, family);
        const from = { netns: pod.netns, address: pod.ip(family) };
        assert.equal(await answerSource(undo, from, address, port), address, what);
      }
    };
    const network = openNode(topology, 1, overlay);
    const pod = await startPod(network, 'a');
    await asked(pod, 'a new bridge');
    network.close();
    // As an earlier version left it: the routes to the pods are the kernel's.
    const run = (command: string) => execFileSync('ip', ['-n', netns, ...command.split(' ')]);
    run('route del 10.244.1.0/24 proto 70');
    run('-6 route del fd00:10:244:1::/64 proto 70');
    run('addr change 10.244.1.1/24 dev fl0 metric 0');
    const next = openNode(topology, 1, overlay);
    await asked(pod, 'an existing bridge');
    // Without its address the node still reaches its pods, from the bridge's.
    const server = await echoServer(undo, pod.netns, pod.ip('ipv4'));
    run('addr del 172.30.9.11/24 dev eth0');
    assert.ok(await echoBytes(await connectFrom(undo, netns, pod.ip('ipv4'), server.port), 1000));
    assert.deepEqual(server.peers, ['10.244.1.1']);
    run('addr add 172.30.9.11/24 dev eth0');
    const { repaired } = await next.repair([]);
    assert.deepEqual(repaired.includes('route to 10.244.1.0/24'), true, repaired.join());
    await asked(pod, 'an address that came back');
    assert.deepEqual((await next.repair([])).repaired, []);
  });

  test(`a restarted agent (${overlay}) adopts the existing state without changes`, async () => {
    const { topology, first, a, b } = await twoNodes(overlay);
    const server = await echoServer(undo, b.netns, b.ip('ipv6'));
    const socket = await connectFrom(undo, a.netns, b.ip('ipv6'), server.port);
    const seen: string[] = [];
    const watch = watchNetwork(
      ['link', 'address', 'route'],
      (event) => seen.push(JSON.stringify(event)),
      netnsOf(topology, 1),
    );
    undo.add(() => watch.close());
    first.close();
    const again = openNode(topology, 1, overlay);
    assert.deepEqual(again.syncRoutes([1, 2].map(testPeer)), []);
    assert.ok(await echoBytes(socket, 1 << 16));
    assert.deepEqual(seen, []);
    // Routes of nodes that left unnoticed are removed.
    assert.deepEqual(again.syncRoutes([testPeer(1)]), []);
    assert.deepEqual(shownRoutes(again), []);
  });

  test(`routes that other programs remove (${overlay}) are restored, and finally all are removed`, async () => {
    const topology = testTopology(undo, 2);
    const links = () => {
      using socket = openRouteSocket(netnsOf(topology, 1));
      return listLinks(socket)
        .map((link) => link.name)
        .sort();
    };
    const network = openNode(topology, 1, overlay, { serviceCidrs: ['10.96.0.0/16', 'fd00:10:96::/112'] });
    network.syncRoutes([1, 2].map(testPeer));
    const complete = shownRoutes(network);
    const entries = () =>
      execFileSync('bridge', ['-n', netnsOf(topology, 1), 'fdb', 'show'], { encoding: 'utf8' });
    const forwarding = entries();
    for (const route of listRoutes(network.socket, { protocol: ROUTE_PROTOCOL.fairlead })) {
      if (route.device !== network.bridge) deleteRoute(network.socket, route);
    }
    if (overlay === 'vxlan')
      execFileSync('ip', ['-n', netnsOf(topology, 1), 'neigh', 'flush', 'dev', 'fl.vxlan', 'nud', 'all']);
    assert.deepEqual((await network.repair([1, 2].map(testPeer))).failures, []);
    assert.deepEqual(shownRoutes(network), complete);
    assert.equal(entries(), forwarding);
    network.remove();
    assert.deepEqual(links(), ['eth0', 'lo']);
    const left = execFileSync('ip', ['-n', netnsOf(topology, 1), 'route'], { encoding: 'utf8' });
    assert.match(left, /^172\.30\.9\.0\/24 dev eth0 [^\n]*\n$/);
  });
}

test('a node switches from routes to VXLAN and back', async () => {
  const { topology, a, b, first, second } = await twoNodes('routes');
  let open = [first, second];
  for (const overlay of ['vxlan', 'routes'] as const) {
    for (const network of open) network.close();
    open = [1, 2].map((number) => openNode(topology, number, overlay));
    for (const network of open) assert.deepEqual(network.syncRoutes([1, 2].map(testPeer)), []);
    for (const family of ['ipv4', 'ipv6'] as const) {
      const server = await echoServer(undo, b.netns, b.ip(family));
      assert.ok(
        await echoBytes(await connectFrom(undo, a.netns, b.ip(family), server.port), 100_000),
        overlay,
      );
    }
  }
});

test('a next hop that is not on the link is reported with a hint, and the other routes are written', () => {
  const topology = testTopology(undo, 1);
  const network = openNode(topology, 1, 'routes');
  const far = { name: 'far', addresses: ['198.51.100.7'], podCidrs: ['10.244.9.0/24'] };
  const [failure, ...others] = network.syncRoutes([far, testPeer(2)]);
  assert.equal(others.length, 0);
  assert.equal(failure?.node, 'far');
  assert.equal(failure?.error.code, 'ENETUNREACH');
  assert.match(failure?.error.hint ?? '', /--overlay vxlan/);
  assert.equal(shownRoutes(network).length, 2);
});

test('TCP over VXLAN works with masqueraded outer packets: checksums are valid', async () => {
  const { topology, a, b } = await twoNodes('vxlan');
  execFileSync('ip', ['netns', 'exec', netnsOf(topology, 1), 'nft', '-f', '-'], {
    input: `table ip outer {
      chain post {
        type nat hook postrouting priority 100
        udp dport 4789 masquerade random
      }
    }`,
  });
  const server = await echoServer(undo, b.netns, b.ip('ipv4'));
  assert.ok(await echoBytes(await connectFrom(undo, a.netns, b.ip('ipv4'), server.port), 1 << 20));
});

const refusals: [string, Partial<NodeNetworkOptions>, string, RegExp][] = [
  ['an invalid pod network', { podCidrs: ['10.244.1.0'] }, 'bad-cidr', /podCidrs/],
  ['a pod network that is too small', { podCidrs: ['10.244.1.0/31'] }, 'bad-cidr', /no room/],
  ['an address that the node does not have', { addresses: ['192.0.2.1'] }, 'EADDRNOTAVAIL', /192\.0\.2\.1/],
  ['an invalid Service network', { serviceCidrs: ['x'] }, 'bad-cidr', /serviceCidrs/],
];
for (const [name, options, code, message] of refusals) {
  test(`${name} is refused`, () => {
    const topology = testTopology(undo, 1);
    assert.throws(() => openNode(topology, 1, 'routes', options), { code, message });
  });
}

function shownRoutes(network: NodeNetwork): string[] {
  return (['ipv4', 'ipv6'] as const)
    .flatMap((family) => listRoutes(network.socket, { family, protocol: ROUTE_PROTOCOL.fairlead }))
    .filter(({ device, destination }) => device !== network.bridge || !isPodNetwork(network, destination))
    .map((route) => `${route.destination} ${route.via ?? ''} ${route.device} ${route.source}`)
    .sort();
}

const isPodNetwork = (network: NodeNetwork, destination: string) =>
  network.gateways.some(({ cidr }) => cidr.text === destination);
