import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { openHeldAddresses, openTables } from '../src/egress/held-addresses.ts';
import { openPolicyRoutes } from '../src/egress/policy-routes.ts';
import { GATEWAY_TABLE, renderGateways } from '../src/egress/render.ts';
import { addAddress, deleteAddress } from '../src/kernel/rtnetlink/addresses.ts';
import { findLink, openRouteSocket } from '../src/kernel/rtnetlink/links.ts';
import { familyOf, parseCidr } from '../src/lib/address.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { NodeNetwork } from '../src/network/node-network.ts';
import { openPodNetwork } from '../src/network/pod-network.ts';
import {
  connectFrom,
  datagram,
  echoBytes,
  echoServer,
  netnsOf,
  sandbox,
  testNode,
  testPeer,
  testPodCidrs,
  testTopology,
  Undo,
} from '../src/network/testing/packets.ts';
import { outsideNetns, UPLINK } from '../src/network/topology.ts';

const undo = new Undo();
afterEach(() => undo.run());

const NUMBERS = [1, 2, 3];
const ADDRESSES = ['172.30.9.50', 'fd00:172:30:9::50'];
const FAMILIES = ['ipv4', 'ipv6'] as const;
const cidrs = (texts: readonly string[]) => texts.flatMap((text) => parseCidr(text) ?? []);
const hostCidr = (address: string) => `${address}/${address.includes(':') ? 128 : 32}`;

/** Starts a node with its pod network and a pod. */
async function startNode(
  topology: ReturnType<typeof testTopology>,
  number: number,
  overlay: 'routes' | 'vxlan',
) {
  const netns = netnsOf(topology, number);
  const network = new NodeNetwork({
    ...testNode(number),
    node: `node-${number}`,
    podCidrs: testPodCidrs(number),
    overlay,
    masquerade: true,
    netns,
  });
  undo.add(() => network.close());
  const cluster = cidrs(
    NUMBERS.flatMap((one) => [...testPodCidrs(one), ...testNode(one).addresses.map(hostCidr)]),
  );
  network.setGateways({ nodes: new Set(NUMBERS.map((one) => `node-${one}`)), cluster });
  network.syncRoutes(NUMBERS.map(testPeer));
  const stateDir = mkdtempSync(join(tmpdir(), 'flt-'));
  undo.add(() => rmSync(stateDir, { recursive: true }));
  const pods = openPodNetwork({ network, stateDir });
  undo.add(() => pods.close());
  const pod = sandbox(undo);
  const { ips } = await pods.attach({ uid: `p${number}`, namespace: 'default', name: `p${number}` }, pod);
  const tables = openTables(GATEWAY_TABLE, { netns });
  undo.add(() => tables.close());
  const held = openHeldAddresses({ bridge: 'fl0', netns });
  undo.add(() => held.close());
  const routes = openPolicyRoutes('fl0', netns);
  undo.add(() => routes.close());
  return { number, netns, network, pod, ips, tables, held, routes, cluster };
}

type TestedNode = Awaited<ReturnType<typeof startNode>>;

function writeTables(nodes: readonly TestedNode[]): void {
  const sources = new Map(
    nodes.flatMap(({ ips }) =>
      ips.map((ip) => [ip, ADDRESSES.find((one) => familyOf(one) === familyOf(ip)) ?? null] as const),
    ),
  );
  for (const node of nodes) {
    const rules = {
      gateways: [{ name: 'a', destinations: null, except: [], sources }],
      cluster: node.cluster,
      podNetworks: cidrs(NUMBERS.flatMap(testPodCidrs)),
      numbers: new Map(ADDRESSES.map((address, i) => [address, i + 1])),
      bridge: 'fl0',
      tunnel: node.network.tunnel,
      nextHops: NUMBERS.filter((one) => one !== node.number).flatMap((one) => testNode(one).addresses),
    };
    for (const family of FAMILIES) node.tables.write(family, renderGateways(family, rules));
  }
}

/** Gives the addresses to a node; null: to none. */
function give(nodes: readonly TestedNode[], holder: number | null): void {
  for (const node of nodes) {
    using socket = openRouteSocket(node.netns);
    const uplink = findLink(socket, UPLINK)?.index ?? 1;
    const hops = node.network.nextHops(NUMBERS.map(testPeer)).get(`node-${holder}`);
    node.routes.write(
      ADDRESSES.map((address, i) => {
        const family = familyOf(address) ?? 'ipv4';
        const via = hops?.[family];
        return {
          family,
          number: i + 1,
          hop: via === undefined ? null : { via, device: node.network.tunnel },
        };
      }),
    );
    for (const [i, address] of ADDRESSES.entries()) {
      const one = { device: uplink, address, prefix: address.includes(':') ? 128 : 32 };
      if (node.number === holder) {
        node.held.hold([{ address, number: i + 1 }], 60_000);
        // Stands for the announcer.
        addAddress(socket, one);
      } else {
        node.held.release({ address, number: i + 1 });
        deleteAddress(socket, one);
      }
    }
  }
}

const inNode = (netns: string, ...command: string[]): string =>
  execFileSync('ip', ['netns', 'exec', netns, ...command], { encoding: 'utf8' });

for (const overlay of ['routes', 'vxlan'] as const) {
  test(`pods of every node leave with the gateway's address, and with no other while no node has it (${overlay})`, {
    timeout: 60_000,
  }, async () => {
    const topology = testTopology(undo, 3);
    const nodes: TestedNode[] = [];
    for (const number of NUMBERS) nodes.push(await startNode(topology, number, overlay));
    const outside = outsideNetns(topology.cluster);
    writeTables(nodes);
    give(nodes, 3);
    for (const [i, family] of FAMILIES.entries()) {
      const target = topology.outsideAddresses[i] ?? '';
      const server = await echoServer(undo, outside, target);
      for (const holder of [3, 2]) {
        give(nodes, holder);
        for (const node of nodes) {
          server.peers.length = 0;
          assert.ok(
            await echoBytes(await connectFrom(undo, node.pod, target, server.port), 300_000),
            `${family} from node ${node.number} by ${holder}`,
          );
          assert.deepEqual(server.peers, [ADDRESSES[i]], `${family} from node ${node.number} by ${holder}`);
          // With fragments.
          const sent = await datagram(
            undo,
            { netns: node.pod, address: node.ips[i] ?? '' },
            { netns: outside, address: target },
            8000,
          );
          assert.deepEqual(sent, { length: 8000, source: ADDRESSES[i] });
        }
      }
      // Pods and nodes are reached with the pod's own address.
      const [first, second] = nodes;
      assert.ok(first && second);
      const inside = await echoServer(undo, second.pod, second.ips[i] ?? '');
      assert.ok(
        await echoBytes(await connectFrom(undo, first.pod, second.ips[i] ?? '', inside.port), 10_000),
      );
      assert.deepEqual(inside.peers, [first.ips[i]]);
    }
    for (const node of nodes) {
      assert.deepEqual(await node.tables.check(), []);
      assert.deepEqual(await node.held.check(), []);
      assert.deepEqual(node.routes.check(), []);
    }
  });

  test(`a connection that waits while no node has the address opens when one has it (${overlay})`, {
    timeout: 60_000,
  }, async () => {
    const topology = testTopology(undo, 3);
    const nodes: TestedNode[] = [];
    for (const number of NUMBERS) nodes.push(await startNode(topology, number, overlay));
    const outside = outsideNetns(topology.cluster);
    const target = topology.outsideAddresses[0] ?? '';
    const server = await echoServer(undo, outside, target);
    const [first] = nodes;
    assert.ok(first);
    // Open before the gateway selects the pod: from then on its packets go nowhere.
    const former = await connectFrom(undo, first.pod, target, server.port);
    assert.ok(await echoBytes(former, 10));
    assert.deepEqual(server.peers, [testNode(1).addresses[0]]);
    server.peers.length = 0;
    writeTables(nodes);
    give(nodes, null);
    let foreign = 0;
    former.on('data', () => foreign++);
    former.write('too late');
    const opening = connectFrom(undo, first.pod, target, server.port);
    await setTimeout(300);
    // Also without rules and routes: nothing leaves with another address.
    for (const { netns } of nodes) inNode(netns, 'ip', 'rule', 'flush', 'table', String(0x5e60001));
    const other = connectFrom(undo, first.pod, target, server.port);
    await setTimeout(300);
    assert.deepEqual(server.peers, []);
    for (const { routes } of nodes) assert.notDeepEqual(routes.check(), []);
    give(nodes, 2);
    for (const socket of await Promise.all([opening, other])) assert.ok(await echoBytes(socket, 10));
    assert.deepEqual(server.peers, [ADDRESSES[0], ADDRESSES[0]]);
    assert.equal(foreign, 0);
    // What is not refreshed ends by itself, as after the agent was killed.
    const second = nodes.find(({ number }) => number === 2);
    assert.ok(second);
    second.held.hold([{ address: ADDRESSES[0] ?? '', number: 1 }], 200);
    await eventually(
      () => inNode(second.netns, 'nft', 'list', 'map', 'ip', 'fairlead-egress-held', 'held'),
      (text) => !text.includes('expires'),
    );
    server.peers.length = 0;
    const later = connectFrom(undo, first.pod, target, server.port);
    await setTimeout(300);
    assert.deepEqual(server.peers, []);
    second.held.hold([{ address: ADDRESSES[0] ?? '', number: 1 }], 60_000);
    assert.ok(await echoBytes(await later, 10));
    assert.deepEqual(server.peers, [ADDRESSES[0]]);
  });
}
