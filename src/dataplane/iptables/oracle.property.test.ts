import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cidrContains, familyOf, parseCidr } from '../../lib/address.ts';
import { decide } from '../../service/decide.ts';
import type { Packet, ServiceMap } from '../../service/model.ts';
import { createServiceTable } from '../../service/service-table.ts';
import { applyEdit, randomCluster } from '../../service/testing/random-cluster.ts';
import { hostPort } from './chain-names.ts';
import { createRuleset } from './ruleset.ts';
import { interpret, type Outcome, type Tables } from './testing/interpreter.ts';

const OPTIONS = { dropInvalid: true, affinity: true };
const FAMILIES = ['ipv4', 'ipv6'] as const;

for (let seed = 1; seed <= 8; seed++) {
  test(`random cluster ${seed}: increments equal a fresh start, and packets go where the oracle says`, () => {
    const cluster = randomCluster(seed);
    const table = createServiceTable(cluster.node);
    for (const object of cluster.services.values()) table.setService(object);
    for (const object of cluster.slices.values()) table.setSlice(object);
    let { map } = table.commit();
    let rulesets = FAMILIES.map((family) => createRuleset(map, family, OPTIONS));
    let kernels = rulesets.map((ruleset) => ruleset.render(map));
    let compared = 0;
    for (let round = 0; round < 60; round++) {
      for (let i = 0; i < 3; i++) applyEdit(table, cluster.edit());
      const commit = table.commit();
      map = commit.map;
      if (commit.change.node) {
        rulesets = FAMILIES.map((family) => createRuleset(map, family, OPTIONS));
        kernels = rulesets.map((ruleset) => ruleset.render(map));
      }
      for (const [i, ruleset] of rulesets.entries()) {
        const kernel = kernels[i];
        assert.ok(kernel);
        if (!commit.change.node) {
          const change = ruleset.apply(commit.change, map);
          for (const name of ['nat', 'filter'] as const) {
            for (const [chain, rules] of change.written[name]) kernel[name].set(chain, rules);
            for (const chain of change.deleted[name]) assert.ok(kernel[name].delete(chain), chain);
          }
        }
        const fresh = createRuleset(map, ruleset.family, OPTIONS).render(map);
        for (const name of ['nat', 'filter'] as const) {
          assert.deepEqual(
            new Map([...kernel[name]].sort()),
            new Map([...fresh[name]].sort()),
            `round ${round}`,
          );
        }
      }
      for (let i = 0; i < 40; i++) {
        const packet = cluster.packet(map);
        const kernel = kernels[familyOf(packet.destination) === 'ipv6' ? 1 : 0];
        if (kernel && consistent(packet, map)) {
          agree(map, packet, kernel);
          compared++;
        }
      }
    }
    assert.ok(compared > 500, `${compared} packets`);
  });
}

/** Packets whose class is the one that rules can tell from them. */
function consistent(packet: Packet, map: ServiceMap): boolean {
  const family = familyOf(packet.source);
  if (family === null || family !== familyOf(packet.destination)) return false;
  const detection = map.node.localDetection;
  if (!('ipv4' in detection)) return true;
  const cidr = detection[family];
  return (cidr !== null && cidrContains(cidr, packet.source)) === (packet.sourceClass === 'pod');
}

function isLocal(packet: Packet, map: ServiceMap): boolean {
  const { destination } = packet;
  const loopback =
    destination === '::1' || cidrContains(parseCidr('127.0.0.0/8') ?? assert.fail(), destination);
  return (
    packet.destinationIsLocal ?? (loopback || destination === map.node.ipv4 || destination === map.node.ipv6)
  );
}

function agree(map: ServiceMap, packet: Packet, tables: Tables): void {
  const verdict = decide(map, packet);
  // The kernel itself drops IPv6's, and IPv4's where `route_localnet` is off.
  if (verdict.reason === 'martian') return;
  const expected = new Map<string, number>();
  for (const { endpoint, odds, masquerade } of verdict.candidates) {
    // Every endpoint that reaches itself is masqueraded here, also one of another node.
    const masked = masquerade || endpoint.ip === packet.source;
    add(expected, `forward ${hostPort(endpoint)} ${masked ? 'masqueraded' : ''}`, odds);
  }
  if (verdict.action !== 'forward') add(expected, verdict.action, 1);
  const seen = new Map<string, number>();
  for (const outcome of interpret(tables, packet, isLocal(packet, map)))
    add(seen, nameOf(outcome), outcome.odds);
  const context = `${JSON.stringify(packet)} ${verdict.reason} ${verdict.frontend?.key} ${JSON.stringify([...seen])}`;
  assert.deepEqual([...seen.keys()].sort(), [...expected.keys()].sort(), context);
  for (const [name, odds] of expected) assert.ok(Math.abs((seen.get(name) ?? 0) - odds) < 1e-6, context);
}

const nameOf = ({ action, target, masquerade }: Outcome): string =>
  action === 'forward' ? `forward ${target} ${masquerade ? 'masqueraded' : ''}` : action;

function add(counts: Map<string, number>, name: string, odds: number): void {
  if (odds > 1e-9) counts.set(name, (counts.get(name) ?? 0) + odds);
}
