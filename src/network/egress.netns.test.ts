import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, test } from 'node:test';
import { EGRESS_TABLE } from './egress.ts';
import { NodeNetwork } from './node-network.ts';
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
import { outsideNetns } from './topology.ts';

const undo = new Undo();
afterEach(() => undo.run());

for (const overlay of ['routes', 'vxlan'] as const) {
  test(`pods use their node's address to reach hosts outside, and their own to reach pods and nodes (${overlay})`, async () => {
    const topology = testTopology(undo, 2);
    const networks = [1, 2].map((number) => {
      const network = new NodeNetwork({
        ...testNode(number),
        node: `node-${number}`,
        podCidrs: testPodCidrs(number),
        overlay,
        masquerade: true,
        netns: netnsOf(topology, number),
      });
      undo.add(() => network.close());
      network.syncRoutes([1, 2].map(testPeer));
      return network;
    });
    const [a, b] = await Promise.all(
      networks.map(async (network, i) => {
        const stateDir = mkdtempSync(join(tmpdir(), 'flt-'));
        undo.add(() => rmSync(stateDir, { recursive: true }));
        const pods = openPodNetwork({ network, stateDir });
        undo.add(() => pods.close());
        const netns = sandbox(undo);
        return {
          netns,
          pods,
          ...(await pods.attach({ uid: `p${i}`, namespace: 'default', name: `p${i}` }, netns)),
        };
      }),
    );
    assert.ok(a && b);
    for (const i of [0, 1]) {
      const own = a.ips[i] ?? '';
      const node = testNode(1).addresses[i] ?? '';
      const rows: [what: string, netns: string, address: string, seen: string][] = [
        ['outside', outsideNetns(topology.cluster), topology.outsideAddresses[i] ?? '', node],
        ['a pod of the other node', b.netns, b.ips[i] ?? '', own],
        ['the other node', netnsOf(topology, 2), testNode(2).addresses[i] ?? '', own],
        ['its node', netnsOf(topology, 1), node, own],
      ];
      for (const [what, netns, address, seen] of rows) {
        const server = await echoServer(undo, netns, address);
        assert.ok(await echoBytes(await connectFrom(undo, a.netns, address, server.port), 10_000), what);
        assert.deepEqual(server.peers, [seen], what);
      }
    }
    // A former address of a node is outside the cluster.
    const [first] = networks;
    const former = testNode(2).addresses[0] ?? '';
    const server = await echoServer(undo, netnsOf(topology, 2), former);
    first?.syncRoutes([testPeer(1)]);
    assert.ok(await echoBytes(await connectFrom(undo, a.netns, former, server.port), 10));
    assert.deepEqual(server.peers, [testNode(1).addresses[0]]);
    // The table of its pods belongs to what uses it.
    a.pods.close();
    first?.remove();
    const tables = execFileSync('ip', ['netns', 'exec', netnsOf(topology, 1), 'nft', 'list', 'tables'], {
      encoding: 'utf8',
    });
    assert.ok(!tables.includes(EGRESS_TABLE), tables);
  });
}
