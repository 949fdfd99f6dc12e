import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { createNetns, removeNetns } from '../kernel/netns.ts';
import { NftConnection } from '../kernel/nftables/connection.ts';
import { NFPROTO } from '../kernel/nftables/constants.ts';
import { PROTOCOL_NUMBER } from '../kernel/protocol-numbers.ts';
import { addAddress } from '../kernel/rtnetlink/addresses.ts';
import { getLink, openRouteSocket, setLink } from '../kernel/rtnetlink/links.ts';
import { familyOf, hostPort, type IPFamily } from '../lib/address.ts';
import { manualClock } from '../lib/clock.ts';
import { hexOf } from '../nft/encoding.ts';
import { decide } from '../service/decide.ts';
import { snapshot } from '../service/diff.ts';
import type { Packet, Protocol, ServiceMap } from '../service/model.ts';
import { applyEdit, randomCluster, serviceTableOf } from '../service/testing/random-cluster.ts';
import { type KernelTable, readKernelTable } from './testing/kernel-table.ts';
import { inInterface, isConsistent, isForNode } from './testing/packet-class.ts';
import { createWalk, UNTOUCHED } from './testing/rules-interpreter.ts';
import { LISTENERS, TABLE } from './userspace/layout.ts';
import { readListenerKey } from './userspace/render.ts';
import { createUserspace, type UserspaceDataplane } from './userspace/userspace.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
/** The mode does not support SCTP, and reports it. */
const PROTOCOLS: readonly Protocol[] = ['TCP', 'TCP', 'UDP'];
const ROUNDS = 30;
const EDITS = 4;
const PACKETS = 40;
/** Interval, in rounds, at which the kernel is compared with a fresh start. */
const COMPARED = 3;

for (let seed = 31; seed <= 33; seed++) {
  test(`random cluster ${seed}: incremental changes yield the rules and listeners of a fresh start, and packets reach the oracle’s endpoints`, async (t) => {
    const id = randomBytes(3).toString('hex');
    const [netns, other] = [`flt-${id}-increments`, `flt-${id}-fresh`];
    for (const name of [netns, other]) {
      createNetns(name);
      t.after(() => removeNetns(name));
    }
    const cluster = randomCluster(seed, { protocols: PROTOCOLS });
    const clock = manualClock();
    const dataplane = createUserspace({ families: FAMILIES, netns, clock });
    const fresh = createUserspace({ families: FAMILIES, netns: other, clock });
    const [connection, otherConnection] = [new NftConnection(netns), new NftConnection(other)];
    try {
      for (const name of [netns, other]) giveAddresses(name, [cluster.node.ipv4, cluster.node.ipv6]);
      const table = serviceTableOf(cluster);
      await dataplane.sync(table.commit().map);
      const actions: Record<string, number> = {};
      for (let round = 0; round < ROUNDS; round++) {
        for (let i = 0; i < EDITS; i++) applyEdit(table, cluster.edit());
        const { map, change } = table.commit();
        assert.deepEqual((await dataplane.apply(change, map)).failed, []);
        // Listeners without rules close.
        clock.advance(2000);
        if (round % COMPARED !== 0) continue;
        assert.deepEqual(await dataplane.verify(), [], `round ${round}`);
        await fresh.sync(snapshot(map));
        clock.advance(2000);
        assert.deepEqual(poolsOf(dataplane), poolsOf(fresh), `round ${round}`);
        for (const family of FAMILIES) {
          const kernel = readKernelTable(connection, NFPROTO[family], TABLE);
          const wanted = readKernelTable(otherConnection, NFPROTO[family], TABLE);
          assert.deepEqual(sorted(kernel.ruleBytes), sorted(wanted.ruleBytes), `round ${round}`);
          assert.deepEqual(
            elementsOf(kernel, family, dataplane),
            elementsOf(wanted, family, fresh),
            `round ${round}`,
          );
          for (let i = 0; i < PACKETS; i++) {
            const packet = cluster.packet(map);
            if (familyOf(packet.destination) !== family || !isConsistent(packet, map)) continue;
            if (packet.protocol === 'SCTP') continue;
            const action = agree(map, packet, kernel, dataplane);
            actions[action] = (actions[action] ?? 0) + 1;
          }
        }
      }
      for (const action of ['forward', 'reject', 'drop', 'pass']) {
        assert.ok((actions[action] ?? 0) > 5, `too few packets for a result: ${JSON.stringify(actions)}`);
      }
    } finally {
      connection.close();
      otherConnection.close();
      await dataplane.close();
      await fresh.close();
    }
  });
}

/** Adds the addresses that listeners use to the node. */
function giveAddresses(netns: string, addresses: readonly (string | null)[]): void {
  using socket = openRouteSocket(netns);
  const device = getLink(socket, 'lo').index;
  setLink(socket, device, { up: true });
  for (const address of addresses) {
    if (address !== null) addAddress(socket, { device, address, prefix: address.includes(':') ? 128 : 32 });
  }
}

const sorted = <T>(map: ReadonlyMap<string, T>): Map<string, T> => new Map([...map].sort());

/** Returns protocol and endpoints by pool. Ports differ from run to run. */
function poolsOf(dataplane: UserspaceDataplane): Map<string, unknown> {
  return sorted(
    new Map(dataplane.listeners().map(({ pool, protocol, endpoints }) => [pool, { protocol, endpoints }])),
  );
}

/** Returns the contents of the kernel's sets, with pools in place of the ports of their listeners. */
function elementsOf(
  table: KernelTable,
  family: IPFamily,
  dataplane: UserspaceDataplane,
): Map<string, string> {
  // The kernel may give a TCP and a UDP listener the same port.
  const pools = new Map(
    dataplane.listeners().map(({ at, pool, protocol }) => [`${protocol} ${hostPort(at)}`, pool]),
  );
  const poolAt = (protocol: number | undefined, at: Uint8Array) =>
    pools.get(`${protocol === PROTOCOL_NUMBER.TCP ? 'TCP' : 'UDP'} ${hostPort(readListenerKey(at, family))}`);
  const addressBytes = family === 'ipv4' ? 4 : 16;
  const elements = new Map<string, string>();
  for (const [set, content] of table.sets) {
    for (const [key, { verdict, data, keyEnd, intervalEnd }] of content) {
      const value = verdict ?? (data && hexOf(data)) ?? (keyEnd && hexOf(keyEnd)) ?? String(intervalEnd);
      if (set === LISTENERS) {
        const at = Buffer.from(key, 'hex');
        elements.set(`${set} ${poolAt(at[addressBytes], at)}`, value);
      } else if (/^(services|nodeports)-(pod|node|external)$/.test(set)) {
        const bytes = Buffer.from(value, 'hex');
        // Data have no protocol between address and port, unlike a listener's key.
        const at = Buffer.concat([bytes.subarray(0, -4), Buffer.alloc(4), bytes.subarray(-4)]);
        const protocol = Buffer.from(key, 'hex')[set.startsWith('nodeports') ? 0 : addressBytes];
        elements.set(`${set} ${key}`, poolAt(protocol, at) ?? 'none');
      } else elements.set(`${set} ${key}`, value);
    }
  }
  return sorted(elements);
}

/**
 * Asserts that the listener which receives the packet through the rules has the oracle's endpoints, or that
 * none receives it. Returns the action.
 */
function agree(map: ServiceMap, packet: Packet, kernel: KernelTable, dataplane: UserspaceDataplane): string {
  const verdict = decide(map, packet);
  // The kernel's routing drops them.
  if (verdict.reason === 'martian') return verdict.reason;
  const isLocal = isForNode(packet, map);
  const from = inInterface(packet, map);
  const walk = createWalk(kernel, packet, {
    inInterface: from,
    isLocal: ({ target }) => isLocal && target === null,
  });
  const steps = walk(from === null ? 'output' : 'prerouting', UNTOUCHED);
  const context = `${JSON.stringify(packet)} ${verdict.reason} ${verdict.frontend?.key}`;
  assert.equal(steps.length, 1, context);
  const [step] = steps;
  const target = step?.state.target;
  if (!target) {
    const action = step?.end === 'drop' || step?.end === 'reject' ? step.end : 'pass';
    assert.equal(action, verdict.action, context);
    return action;
  }
  assert.equal(verdict.action, 'forward', context);
  const key = Buffer.from([...target.address, 0, 0, 0, 0, target.port >> 8, target.port & 255, 0, 0]);
  const at = hostPort(readListenerKey(key, familyOf(packet.destination) ?? 'ipv4'));
  const listener = dataplane
    .listeners()
    .find((one) => hostPort(one.at) === at && one.protocol === packet.protocol);
  assert.ok(listener, `${context}: no listener at ${at}`);
  const reached = listener.endpoints.map(hostPort).sort();
  assert.deepEqual(reached, verdict.candidates.map(({ endpoint }) => hostPort(endpoint)).sort(), context);
  return 'forward';
}
