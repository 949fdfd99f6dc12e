import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { afterEach, test } from 'node:test';
import { createNetns, netnsExists } from '../kernel/netns.ts';
import { listAddresses } from '../kernel/rtnetlink/addresses.ts';
import { findLink, getLink, listLinks, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { listRoutes } from '../kernel/rtnetlink/routes.ts';
import {
  connectFrom,
  echoBytes,
  echoServer,
  netnsOf,
  sandbox,
  testNode,
  testTopology,
  Undo,
} from './testing/packets.ts';
import {
  addTopologyNode,
  createTopology,
  listTopology,
  machineDevice,
  nodeNetns,
  outsideNetns,
  plugMachine,
  removeTopology,
  removeTopologyNode,
  routeOutside,
  type Topology,
  unplugMachine,
  wireNetns,
} from './topology.ts';

const undo = new Undo();
afterEach(() => undo.run());

/** Returns the links, addresses and routes of this thread's namespace. */
function machineState(): string {
  return execFileSync(
    'sh',
    ['-c', 'ip -o link; ip -o addr; ip route show table all; ip -6 route show table all; ip rule'],
    {
      encoding: 'utf8',
    },
  ).replace(/(valid|preferred)_lft \S+|expires \S+/g, '');
}

test('every host on the wire reaches every other, in both families, and has no other routes', async () => {
  const topology = testTopology(undo, 3);
  const { cluster } = topology;
  const hosts = [
    { netns: wireNetns(cluster), addresses: topology.controlPlaneAddresses },
    { netns: outsideNetns(cluster), addresses: topology.outsideAddresses },
    ...topology.nodes.map((node) => ({ netns: nodeNetns(cluster, node.name), addresses: node.addresses })),
  ];
  for (const to of hosts) {
    for (const address of to.addresses) {
      const server = await echoServer(undo, to.netns, address);
      for (const from of hosts) {
        assert.ok(await echoBytes(await connectFrom(undo, from.netns, address, server.port), 100));
      }
      assert.deepEqual(
        server.peers,
        hosts.map((host) => host.addresses.find((other) => other.includes(':') === address.includes(':'))),
      );
    }
  }
  for (const { netns } of hosts) {
    using socket = openRouteSocket(netns);
    const defaults = listRoutes(socket).filter((route) => route.destination.endsWith('/0'));
    assert.deepEqual(defaults, []);
    assert.ok(getLink(socket, 'lo').up);
  }
});

test('the machine’s network is the same before, during and after', () => {
  const before = machineState();
  const topology = testTopology(undo, 2);
  assert.equal(machineState(), before);
  assert.deepEqual(removeTopology(topology.cluster), [
    `fl-${topology.cluster}-node-1`,
    `fl-${topology.cluster}-node-2`,
    `fl-${topology.cluster}-outside`,
    `fl-${topology.cluster}-wire`,
  ]);
  assert.equal(machineState(), before);
  assert.deepEqual(removeTopology(topology.cluster), []);
});

for (const [family, wire, at] of [
  ['IPv4', '10.99.0.0/24', (n: number) => [`10.99.0.${n}`]],
  ['IPv6', 'fd99::/64', (n: number) => [`fd99::${n}`]],
] as const) {
  test(`a wire with ${family} only`, () => {
    const cluster = `flt${randomBytes(3).toString('hex')}`;
    undo.add(() => removeTopology(cluster));
    createTopology({
      cluster,
      wireCidrs: [wire],
      controlPlaneAddresses: at(1),
      outsideAddresses: at(2),
      nodes: [{ name: 'node-1', addresses: at(3) }],
    });
    using socket = openRouteSocket(nodeNetns(cluster, 'node-1'));
    const addresses = listAddresses(socket, { device: getLink(socket, 'eth0').index });
    assert.deepEqual(
      addresses.filter((entry) => entry.scope === 0).map((entry) => `${entry.address}/${entry.prefix}`),
      [`${at(3)[0]}/${wire.split('/')[1]}`],
    );
  });
}

test('a node joins and leaves; its device on the wire is removed at once', async () => {
  const topology = testTopology(undo, 1);
  const { cluster } = topology;
  const long = 'a-node-with-quite-a-long-name.example';
  for (const name of ['node-2', long]) {
    addTopologyNode(cluster, { ...testNode(2), name }, topology.wireCidrs);
    const [address = ''] = testNode(2).addresses;
    const server = await echoServer(undo, nodeNetns(cluster, name), address);
    assert.ok(await echoBytes(await connectFrom(undo, outsideNetns(cluster), address, server.port), 100));
    assert.throws(() => addTopologyNode(cluster, { ...testNode(2), name }, topology.wireCidrs), {
      code: 'EEXIST',
    });
    assert.ok(netnsExists(nodeNetns(cluster, name)), 'the failed attempt took nothing away');
    assert.equal(removeTopologyNode(cluster, name), true);
    assert.equal(removeTopologyNode(cluster, name), false);
    using wire = openRouteSocket(wireNetns(cluster));
    assert.deepEqual(
      listLinks(wire)
        .map((link) => link.name)
        .sort(),
      ['lo', 'node-1', 'outside', 'wire0'],
    );
  }
});

test('leftovers of a crash are found by name and removed', () => {
  const cluster = `flt${randomBytes(3).toString('hex')}`;
  undo.add(() => removeTopology(cluster));
  createNetns(wireNetns(cluster));
  createNetns(nodeNetns(cluster, 'node-1'));
  assert.throws(() => createTopology({ ...EMPTY, cluster }), { code: 'EEXIST', hint: /fairlead down/ });
  assert.equal(removeTopology(cluster).length, 2);
  createTopology({ ...EMPTY, cluster });
});

test('a failed creation leaves nothing', () => {
  const cluster = `flt${randomBytes(3).toString('hex')}`;
  const nodes = [testNode(1), { name: 'node-2', addresses: ['192.0.2.7'] }];
  assert.throws(() => createTopology({ ...EMPTY, cluster, nodes }), { message: /192\.0\.2\.7/ });
  assert.deepEqual(listTopology(cluster), []);
  for (const name of ['outside', 'wire', 'x-wire', 'Big', '']) {
    assert.throws(() => createTopology({ ...EMPTY, cluster, nodes: [{ ...testNode(1), name }] }), {
      code: 'EINVAL',
    });
  }
  assert.deepEqual(listTopology(cluster), []);
});

test('a cluster whose name begins with another’s is left alone', () => {
  const one = `flt${randomBytes(3).toString('hex')}`;
  const two = `${one}-b`;
  for (const cluster of [one, two]) {
    undo.add(() => removeTopology(cluster));
    createTopology({ ...EMPTY, cluster, nodes: [testNode(1)] });
  }
  assert.equal(removeTopology(one).length, 3);
  assert.equal(listTopology(two).length, 3);
});

test('outside reaches a network through a node if routed', async () => {
  const topology = testTopology(undo, 1);
  const server = await echoServer(undo, netnsOf(topology, 1), '127.0.0.1');
  const outside = outsideNetns(topology.cluster);
  await assert.rejects(connectFrom(undo, outside, '10.244.1.1', server.port), { code: 'ENETUNREACH' });
  routeOutside(topology.cluster, '10.244.1.0/24', '172.30.9.11');
  routeOutside(topology.cluster, '10.244.1.0/24', '172.30.9.11');
  using socket = openRouteSocket(outside);
  assert.equal(listRoutes(socket).find((route) => route.destination === '10.244.1.0/24')?.via, '172.30.9.11');
});

test('the machine can be connected, reaches nodes, and is disconnected without leftovers', async () => {
  const topology = testTopology(undo, 1);
  const machine = sandbox(undo);
  plugMachine(topology.cluster, ['172.30.9.3', 'fd00:172:30:9::3'], topology.wireCidrs, machine);
  for (const address of testNode(1).addresses) {
    const server = await echoServer(undo, netnsOf(topology, 1), address);
    assert.ok(await echoBytes(await connectFrom(undo, machine, address, server.port), 100));
  }
  assert.equal(unplugMachine(topology.cluster, machine), true);
  assert.equal(unplugMachine(topology.cluster, machine), false);
  using socket = openRouteSocket(machine);
  assert.equal(findLink(socket, machineDevice(topology.cluster)), null);
  assert.deepEqual(listRoutes(socket), []);
  using wire = openRouteSocket(wireNetns(topology.cluster));
  assert.equal(findLink(wire, 'machine'), null);
});

const EMPTY: Omit<Topology, 'cluster'> = {
  wireCidrs: ['172.30.9.0/24', 'fd00:172:30:9::/64'],
  controlPlaneAddresses: ['172.30.9.1'],
  outsideAddresses: ['172.30.9.2'],
  nodes: [],
};
