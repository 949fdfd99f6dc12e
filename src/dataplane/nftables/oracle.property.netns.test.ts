import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { createNetns, removeNetns } from '../../kernel/netns.ts';
import { NftConnection } from '../../kernel/nftables/connection.ts';
import { NFPROTO } from '../../kernel/nftables/constants.ts';
import { familyOf, type IPFamily } from '../../lib/address.ts';
import { manualClock } from '../../lib/clock.ts';
import { decide } from '../../service/decide.ts';
import { snapshot } from '../../service/diff.ts';
import type { Packet, ServiceMap } from '../../service/model.ts';
import { applyEdit, randomCluster, serviceTableOf } from '../../service/testing/random-cluster.ts';
import { contentOf, type KernelTable, readKernelTable } from '../testing/kernel-table.ts';
import { inInterface, isConsistent, isForNode, isOwnAddress } from '../testing/packet-class.ts';
import { interpret } from '../testing/rules-interpreter.ts';
import { createNftables } from './nftables.ts';
import { TABLE } from './render.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
const SEEDS = process.env['FAIRLEAD_TEST_FULL'] === '1' ? 8 : 4;
const ROUNDS = 60;
const EDITS = 3;
const PACKETS = 40;
/** Interval, in rounds, at which the kernel is compared with a fresh start. */
const COMPARED = 4;

for (let seed = 1; seed <= SEEDS; seed++) {
  test(`random cluster ${seed}: incremental changes yield the kernel state of a fresh start, and packets follow the oracle`, async (t) => {
    const id = randomBytes(3).toString('hex');
    const [netns, other] = [`flt-${id}-increments`, `flt-${id}-fresh`];
    for (const name of [netns, other]) {
      createNetns(name);
      t.after(() => removeNetns(name));
    }
    const clock = manualClock();
    const dataplane = createNftables({ families: FAMILIES, netns, clock });
    const fresh = createNftables({ families: FAMILIES, netns: other });
    const [connection, otherConnection] = [new NftConnection(netns), new NftConnection(other)];
    try {
      const cluster = randomCluster(seed);
      const table = serviceTableOf(cluster);
      await dataplane.sync(table.commit().map);
      let compared = 0;
      for (let round = 0; round < ROUNDS; round++) {
        for (let i = 0; i < EDITS; i++) applyEdit(table, cluster.edit());
        const { map, change } = table.commit();
        const report = await dataplane.apply(change, map);
        assert.deepEqual(report.failed, []);
        // Completes deferred removals.
        clock.advance(1000);
        assert.deepEqual(await dataplane.verify(), [], `round ${round}`);
        if (round % COMPARED !== 0) continue;
        await fresh.sync(snapshot(map));
        for (const family of FAMILIES) {
          const kernel = readKernelTable(connection, NFPROTO[family], TABLE);
          assertSame(kernel, readKernelTable(otherConnection, NFPROTO[family], TABLE), `round ${round}`);
          for (let i = 0; i < PACKETS; i++) {
            const packet = cluster.packet(map);
            if (familyOf(packet.destination) !== family || !isConsistent(packet, map)) continue;
            agree(map, packet, kernel);
            compared++;
          }
        }
      }
      assert.ok(compared > 300, `${compared} packets`);
    } finally {
      connection.close();
      otherConnection.close();
      await dataplane.close();
      await fresh.close();
    }
  });
}

/** Compared with a fresh start, there may be additional chains without references. */
function assertSame(kernel: KernelTable, fresh: KernelTable, context: string): void {
  const [ours, wanted] = [contentOf(kernel), contentOf(fresh)];
  assert.deepEqual(new Map([...ours.elements].sort()), new Map([...wanted.elements].sort()), context);
  for (const [chain, rules] of wanted.chains) {
    const there = ours.chains.get(chain);
    assert.ok(there, `${context}: chain ${chain}`);
    if (chain === 'remember') for (const rule of rules) assert.ok(there.includes(rule), context);
    else assert.deepEqual(there, rules, `${context}: chain ${chain}`);
  }
  const reached = new Set([...kernel.sets.values()].flatMap((s) => [...s.values()].map((e) => e.verdict)));
  for (const chain of ours.chains.keys()) {
    assert.ok(wanted.chains.has(chain) || !reached.has(`goto ${chain}`), `${context}: chain ${chain}`);
  }
}

function agree(map: ServiceMap, packet: Packet, kernel: KernelTable): void {
  const verdict = decide(map, packet);
  // The kernel's routing drops them, or guard-loopback with route_localnet.
  if (verdict.reason === 'martian') return;
  const expected = new Map<string, number>();
  for (const { endpoint, odds, masquerade } of verdict.candidates) {
    add(expected, `forward ${endpoint.ip} ${endpoint.port} ${masquerade ? 'masqueraded' : ''}`, odds);
  }
  if (verdict.action !== 'forward') add(expected, verdict.action, 1);
  const seen = new Map<string, number>();
  const input = {
    packet,
    destinationIsLocal: isForNode(packet, map),
    isOwnEndpoint: (address: string) => isOwnAddress(address, map),
    inInterface: inInterface(packet, map),
  };
  for (const { action, target, masquerade, odds } of interpret(kernel, input)) {
    add(seen, action === 'forward' ? `forward ${target} ${masquerade ? 'masqueraded' : ''}` : action, odds);
  }
  const context = `${JSON.stringify(packet)} ${verdict.reason} ${verdict.frontend?.key} ${JSON.stringify([...seen])}`;
  assert.deepEqual([...seen.keys()].sort(), [...expected.keys()].sort(), context);
  // Size classes: nearly uniform.
  for (const [name, odds] of expected) assert.ok(Math.abs((seen.get(name) ?? 0) / odds - 1) < 0.05, context);
}

function add(counts: Map<string, number>, name: string, odds: number): void {
  if (odds > 0) counts.set(name, (counts.get(name) ?? 0) + odds);
}
