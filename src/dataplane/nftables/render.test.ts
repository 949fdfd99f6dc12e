import { join } from 'node:path';
import { test } from 'node:test';
import { printTable } from '../../nft/print.ts';
import { goldenServices, PARTICULAR_NODE } from '../testing/golden-services.ts';
import { createLayout } from './layout.ts';
import { renderTable, TABLE } from './render.ts';

/** `node --test --test-update-snapshots FILE` updates the files. */
for (const [name, change] of Object.entries({ table: {}, 'table-particular-node': PARTICULAR_NODE })) {
  test(`the ruleset of ${name} equals golden/${name}.nft`, (t) => {
    const map = goldenServices(change);
    const spec = renderTable(TABLE, createLayout('ipv4', map.node), map, new Map());
    t.assert.fileSnapshot(printTable(spec), join(import.meta.dirname, 'golden', `${name}.nft`), {
      serializers: [String],
    });
  });
}
