import assert from 'node:assert/strict';
import { test } from 'node:test';
import { familyOf } from '../../lib/address.ts';
import { applyEdit, randomCluster, serviceTableOf } from '../../service/testing/random-cluster.ts';
import { isConsistent } from '../testing/packet-class.ts';
import { createRuleset } from './ruleset.ts';
import { agree } from './testing/agree.ts';

const OPTIONS = { dropInvalid: true, affinity: true };
const FAMILIES = ['ipv4', 'ipv6'] as const;

const SEEDS = process.env['FAIRLEAD_TEST_FULL'] === '1' ? 8 : 3;

for (let seed = 1; seed <= SEEDS; seed++) {
  test(`random cluster ${seed}: incremental changes yield the rules of a fresh start, and packets follow the oracle`, () => {
    const cluster = randomCluster(seed);
    const table = serviceTableOf(cluster);
    let { map } = table.commit();
    let rulesets = FAMILIES.map((family) => createRuleset(map, family, OPTIONS));
    let kernels = rulesets.map((ruleset) => ruleset.render());
    let compared = 0;
    for (let round = 0; round < 60; round++) {
      for (let i = 0; i < 3; i++) applyEdit(table, cluster.edit());
      const commit = table.commit();
      map = commit.map;
      if (commit.change.node) {
        rulesets = FAMILIES.map((family) => createRuleset(map, family, OPTIONS));
        kernels = rulesets.map((ruleset) => ruleset.render());
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
        const fresh = createRuleset(map, ruleset.family, OPTIONS).render();
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
        if (kernel && isConsistent(packet, map)) {
          agree(map, packet, kernel);
          compared++;
        }
      }
    }
    assert.ok(compared > 500, `${compared} packets`);
  });
}
