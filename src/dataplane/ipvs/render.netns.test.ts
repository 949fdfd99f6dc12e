import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { afterEach, beforeEach, test } from 'node:test';
import { createNetns, removeNetns } from '../../kernel/netns.ts';
import { Tables } from '../../nft/tables.ts';
import { goldenServices, PARTICULAR_NODE } from '../testing/golden-services.ts';
import { DRAIN_TABLE, renderDrainTable } from './drain-table.ts';
import { planFrontend } from './frontend-plan.ts';
import { createLayout, TABLE } from './layout.ts';
import { markScheme, NumberTable, PORTS } from './marks.ts';
import { renderTable } from './render.ts';

// The rules around IPVS do not use IPVS: kernels without it accept them too.

let netns: string;
beforeEach(() => {
  netns = `flt-${randomBytes(3).toString('hex')}-render`;
  createNetns(netns);
});
afterEach(() => removeNetns(netns));

for (const [name, change] of Object.entries({
  'an ordinary': {},
  'a specially configured': PARTICULAR_NODE,
})) {
  test(`the kernel’s table of ${name} node equals the written one, and is gone after removal`, async () => {
    const tables = new Tables({ families: ['ipv4', 'ipv6'], name: TABLE, netns });
    try {
      const map = goldenServices(change);
      const scheme = markScheme(map.node.masqueradeBit);
      const options = { marks: new NumberTable(scheme), aliases: new NumberTable(PORTS), scheduler: 'rr' };
      const plans = new Map(
        [...map.frontends.values()].map((frontend) => [
          frontend.key,
          planFrontend(frontend, { ...options, bound: frontend.address !== null }),
        ]),
      );
      const bound = [...map.clusterIPs.keys(), 'fd00:96::1'];
      await tables.replace((family) =>
        renderTable(createLayout(family, map.node, scheme), map.node, {
          plans,
          bound,
          hairpinAddresses: map.hairpinAddresses,
        }),
      );
      assert.deepEqual(tables.refused, []);
      assert.deepEqual(await tables.verify(), []);
      await tables.remove();
      assert.deepEqual(await tables.verify(), []);
    } finally {
      tables.close();
    }
  });
}

test('the kernel’s drain table equals the written one', async () => {
  const tables = new Tables({ families: ['ipv4', 'ipv6'], name: DRAIN_TABLE, netns, owned: false });
  try {
    await tables.replace((family) => renderDrainTable(family, ['10.96.0.1', 'fd00:96::1']));
    assert.deepEqual(await tables.verify(), []);
  } finally {
    tables.close();
  }
});
