import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { createNetns, removeNetns } from '../../kernel/netns.ts';
import type { IPFamily } from '../../lib/address.ts';
import { manualClock } from '../../lib/clock.ts';
import { decide } from '../../service/decide.ts';
import { snapshot } from '../../service/diff.ts';
import type { Packet, ServiceMap } from '../../service/model.ts';
import { applyEdit, randomCluster, serviceTableOf } from '../../service/testing/random-cluster.ts';
import { inInterface, isConsistent } from '../testing/packet-class.ts';
import { createIpvs } from './ipvs.ts';
import {
  contentOfState,
  type KernelContent,
  type KernelState,
  openKernelReader,
} from './testing/kernel-state.ts';
import { walkPacket } from './testing/packet-walk.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
/** The last seed of random clusters, from 31. */
const LAST_SEED = process.env['FAIRLEAD_TEST_FULL'] === '1' ? 32 : 31;
const ROUNDS = 30;
const EDITS = 4;
const PACKETS = 80;
/** Interval, in rounds, at which the kernel is compared with a fresh start. */
const COMPARED = 5;

for (let seed = 31; seed <= LAST_SEED; seed++) {
  test(`random cluster ${seed}: virtual servers, addresses and tables equal a fresh start, and packets follow the oracle`, async (t) => {
    const id = randomBytes(3).toString('hex');
    const [netns, other] = [`flt-${id}-increments`, `flt-${id}-fresh`];
    for (const name of [netns, other]) {
      createNetns(name);
      t.after(() => removeNetns(name));
      ip(name, 'link add uplink type dummy', 'link set uplink up');
      ip(name, 'address add 192.168.0.1/24 dev uplink', 'address add fd00:168::1/64 dev uplink nodad');
    }
    const clock = manualClock();
    const dataplane = createIpvs({ families: FAMILIES, netns, clock });
    const fresh = createIpvs({ families: FAMILIES, netns: other });
    const [reader, freshReader] = [openKernelReader(netns), openKernelReader(other)];
    try {
      const cluster = randomCluster(seed);
      const table = serviceTableOf(cluster);
      await dataplane.sync(table.commit().map);
      let compared = 0;
      let own: string | null = null;
      for (let round = 0; round < ROUNDS; round++) {
        for (let i = 0; i < EDITS; i++) applyEdit(table, cluster.edit());
        const { map, change } = table.commit();
        const report = await dataplane.apply(change, map);
        assert.deepEqual(
          report.failed.filter(({ error }) => !/IPVS scheduler/.test(error.message)),
          [],
        );
        // No connections are open, so that the next check removes draining servers.
        clock.advance(2000);
        assert.deepEqual(await dataplane.verify(), [], `round ${round}`);
        if (round % COMPARED !== 0) continue;
        // An address of a Service is added to another device of the node, or removed.
        const moved: string | null = own === null ? someAddress(map) : own;
        for (const name of moved ? [netns, other] : []) {
          ip(
            name,
            `address ${own ? 'del' : 'add'} ${moved}/${moved?.includes(':') ? '128' : '32'} dev uplink`,
          );
        }
        own = own === null ? moved : null;
        await dataplane.sync(map);
        clock.advance(2000);
        assert.deepEqual(await dataplane.verify(), [], `round ${round}`);
        await fresh.remove();
        await fresh.sync(snapshot(map));
        const kernel = reader.read();
        assertSame(contentOfState(kernel), contentOfState(freshReader.read()), `round ${round}`);
        for (let i = 0; i < PACKETS; i++) {
          const packet = cluster.packet(map);
          if (!isConsistent(packet, map)) continue;
          agree(map, { ...packet, destinationIsLocal: kernel.others.has(packet.destination) }, kernel);
          compared++;
        }
      }
      assert.ok(compared > 200, `${compared} packets`);
    } finally {
      reader.close();
      freshReader.close();
      await dataplane.close();
      await fresh.close();
    }
  });
}

function ip(netns: string, ...lines: string[]): void {
  execFileSync('ip', ['-n', netns, '-batch', '-'], { input: `${lines.join('\n')}\n` });
}

function someAddress(map: ServiceMap): string | null {
  const outer = [...map.frontends.values()].filter(
    ({ kind, address }) => address !== null && kind !== 'ClusterIP' && !map.clusterIPs.has(address),
  );
  return outer[Math.floor(outer.length / 2)]?.address ?? null;
}

/** Leaves out real servers that only keep their flows: a fresh start has none. */
const withoutSpared = (servers: string) =>
  servers.replace(/, \S+ \d+ weight 0\b/g, '').replace(/→ \S+ \d+ weight 0(, )?/, '→ ');

const spareless = (content: ReadonlyMap<string, string>) =>
  new Map([...content].map(([key, value]) => [key, withoutSpared(value)] as const).sort());

/** Compared with a fresh start, there may be additional chains without references, and their maps. */
function assertSame(ours: KernelContent, wanted: KernelContent, context: string): void {
  assert.deepEqual(spareless(ours.servers), spareless(wanted.servers), context);
  assert.deepEqual(ours.bound, wanted.bound, context);
  for (const [n, table] of wanted.tables.entries()) {
    const there = ours.tables[n] ?? assert.fail(context);
    assert.deepEqual(spareless(there.elements), spareless(table.elements), context);
    for (const [chain, rules] of table.chains) {
      assert.deepEqual(there.chains.get(chain), rules, `${context}: chain ${chain}`);
    }
    for (const chain of there.chains.keys()) {
      const reached = [...there.elements.values()].some((value) => value.includes(`goto ${chain}`));
      assert.ok(table.chains.has(chain) || !reached, `${context}: chain ${chain}`);
    }
  }
}

function agree(map: ServiceMap, packet: Packet, kernel: KernelState): void {
  const verdict = decide(map, packet);
  // The kernel's routing drops them, or guard-loopback with route_localnet.
  if (verdict.reason === 'martian') return;
  // A Service has the address of an endpoint: addresses on the mode's interface are not reachable on other
  // hosts.
  if (verdict.candidates.some(({ endpoint }) => kernel.bound.has(endpoint.ip))) return;
  const expected = new Set(
    verdict.candidates.map(
      ({ endpoint, masquerade }) =>
        `forward ${endpoint.ip} ${endpoint.port} ${masquerade ? 'masqueraded' : ''}`,
    ),
  );
  // Addresses on the mode's interface are local: this mode rejects packets that other modes route.
  const refused = verdict.action === 'pass' && kernel.bound.has(packet.destination);
  if (verdict.action !== 'forward') expected.add(refused ? 'reject' : verdict.action);
  const seen = walkPacket(kernel, packet, inInterface(packet, map)).map(({ action, target, masquerade }) =>
    action === 'forward' ? `forward ${target} ${masquerade ? 'masqueraded' : ''}` : action,
  );
  const context = `${JSON.stringify(packet)} ${verdict.reason} ${verdict.frontend?.key} ${JSON.stringify(seen)}`;
  assert.deepEqual([...new Set(seen)].sort(), [...expected].sort(), context);
}
