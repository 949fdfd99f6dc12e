import { join } from 'node:path';
import { test } from 'node:test';
import { printTable } from '../../nft/print.ts';
import { goldenServices } from '../testing/golden-services.ts';
import { renderDrainTable } from './drain-table.ts';
import { planFrontend } from './frontend-plan.ts';
import { createLayout } from './layout.ts';
import { markScheme, NumberTable, PORTS } from './marks.ts';
import { renderTable } from './render.ts';

/** `node --test --test-update-snapshots FILE` updates the files. */
const file = (name: string) => join(import.meta.dirname, 'golden', `${name}.nft`);

test('the ruleset equals golden/table.nft', (t) => {
  const map = goldenServices();
  const scheme = markScheme(map.node.masqueradeBit);
  const options = { marks: new NumberTable(scheme), aliases: new NumberTable(PORTS), scheduler: 'rr' };
  const plans = new Map(
    [...map.frontends.values()].map((frontend) => [
      frontend.key,
      planFrontend(frontend, { ...options, bound: frontend.address !== null }),
    ]),
  );
  const spec = renderTable(createLayout('ipv4', map.node, scheme), map.node, {
    plans,
    bound: map.clusterIPs.keys(),
    hairpinAddresses: map.hairpinAddresses,
  });
  t.assert.fileSnapshot(printTable(spec), file('table'), { serializers: [String] });
});

test('the ruleset of a draining mode equals golden/drain.nft', (t) => {
  const spec = renderDrainTable('ipv6', ['fd00:96::1', '10.96.0.1']);
  t.assert.fileSnapshot(printTable(spec), file('drain'), { serializers: [String] });
});
