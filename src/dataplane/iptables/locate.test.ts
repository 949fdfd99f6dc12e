import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SOURCE_CLASSES } from '../../service/model.ts';
import { goldenServices } from '../testing/golden-services.ts';
import { dispatchKey } from './dispatch-tree.ts';
import { locateSteps } from './locate.ts';
import { createRuleset } from './ruleset.ts';

test("the chains of a service port that a packet's steps name exist, and each leads to the next", () => {
  const map = goldenServices();
  const ruleset = createRuleset(map, 'ipv4', { dropInvalid: true, affinity: true });
  const { nat } = ruleset.render();
  const passed: string[] = [];
  for (const frontend of map.frontends.values()) {
    for (const sourceClass of SOURCE_CLASSES) {
      if (frontend.routes[sourceClass].action !== 'forward') continue;
      const packet = {
        ...{ source: '10.244.1.99', sourceClass, destination: frontend.address ?? '192.0.2.10' },
        ...{ port: frontend.port, protocol: frontend.protocol },
      };
      const chains = locateSteps(frontend, packet, ruleset).flatMap(
        ({ object }) => /-t nat chain (KUBE-(?:FW|EXT|SVC|SVL)-[A-Z2-7]{16})$/.exec(object)?.[1] ?? [],
      );
      const entry = ruleset.locate(
        frontend.address === null ? 'nodePort' : 'address',
        dispatchKey(frontend.address, frontend.protocol, frontend.port),
      );
      assert.ok(
        entry?.rules.some((rule) => rule.endsWith(`-j ${chains[0]}`)),
        frontend.key,
      );
      for (const [i, chain] of chains.entries()) {
        const next = chains[i + 1];
        const rules = nat.get(chain) ?? [];
        if (next)
          assert.ok(
            rules.some((rule) => rule.endsWith(`-j ${next}`)),
            `${chain} → ${next}`,
          );
        else
          assert.ok(
            rules.some((rule) => /DNAT|KUBE-SEP-/.test(rule)),
            chain,
          );
      }
      passed.push(chains.map((chain) => chain.split('-')[1]).join(' '));
    }
  }
  assert.deepEqual([...new Set(passed)].sort(), ['EXT SVC', 'EXT SVL', 'FW EXT SVC', 'FW EXT SVL', 'SVC']);
});
