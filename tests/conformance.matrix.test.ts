import assert from 'node:assert/strict';
import { test } from 'node:test';
import { availableModes } from '../src/agent/dataplanes.ts';
import { startCluster } from './testing/cluster.ts';
import { assertConforms } from './testing/flow-report.ts';

/** The configurations of upstream's matrix besides the default one, which conformance.netns.test.ts has. */
const CONFIGURATIONS: readonly { readonly name: string; readonly up: readonly string[] }[] = [
  { name: 'masqueradeAll', up: ['--masquerade-all'] },
  { name: 'without local detection', up: ['--no-local-detection'] },
  { name: 'masqueradeAll without local detection', up: ['--masquerade-all', '--no-local-detection'] },
];

/** The scenarios that the configurations affect. */
const SCENARIOS = ['plain:', 'local:'];

/** Not every kernel supports IPVS. */
const MODES = availableModes().filter((mode) => mode !== 'ipvs');

for (const { name, up } of CONFIGURATIONS) {
  test(`every flow from pods, nodes and outside, configuration ${name}`, async (t) => {
    const cluster = await startCluster([
      ...['--nodes', '3', '--ip-family', 'dual', '--mode', MODES[0] ?? ''],
      ...up,
    ]);
    try {
      for (const mode of MODES) {
        await t.test(mode, async () => {
          if (mode !== MODES[0]) assert.equal((await cluster.fairlead('mode', mode)).status, 0);
          await assertConforms(cluster, mode, SCENARIOS);
        });
      }
    } finally {
      await cluster.down();
    }
  });
}
