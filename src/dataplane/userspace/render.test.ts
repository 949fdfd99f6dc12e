import { join } from 'node:path';
import { test } from 'node:test';
import { printTable } from '../../nft/print.ts';
import { queue } from '../../nft/rule.ts';
import { type Frontend, SOURCE_CLASSES, type SourceClass } from '../../service/model.ts';
import { goldenServices } from '../testing/golden-services.ts';
import { renderFrontend, renderTable, type Target } from './render.ts';

/** Listeners at ports in the order of the frontends. `node --test --test-update-snapshots FILE` updates the file. */
test('the ruleset equals golden/table.nft', (t) => {
  const map = goldenServices();
  const frontends = [...map.frontends.values()];
  const target = (frontend: Frontend, source: SourceClass): Target => {
    const route = frontend.routes[source];
    if (route.action !== 'forward') return route.action;
    return { ip: '192.0.2.10', port: 40_000 + frontends.indexOf(frontend) };
  };
  const spec = renderTable('ipv4', map.node, {
    frontends: frontends.map((frontend) => ({
      key: frontend.key,
      group: renderFrontend({
        frontend,
        targets: Object.fromEntries(
          SOURCE_CLASSES.map((source) => [source, target(frontend, source)]),
        ) as Record<SourceClass, Target>,
        pools: [],
      }),
    })),
    listeners: [
      {
        pool: 'shop/plain:p/TCP/ipv4/cluster',
        family: 'ipv4',
        protocol: 'TCP',
        at: { ip: '192.0.2.10', port: 40_000 },
      },
    ],
    clusterIPs: map.clusterIPs.keys(),
    gate: queue(64_030, 'queue'),
  });
  t.assert.fileSnapshot(printTable(spec), join(import.meta.dirname, 'golden', 'table.nft'), {
    serializers: [String],
  });
});
