import assert from 'node:assert/strict';
import { test } from 'node:test';
import { availableModes } from '../src/agent/dataplanes.ts';
import type { Mode } from '../src/dataplane/dataplane.ts';
import { startCluster } from './testing/cluster.ts';
import { assertConforms } from './testing/flow-report.ts';
import { TAKES_FULL_PRODUCT } from './testing/pairwise.ts';

/** The configurations of upstream's matrix besides the default one, which tests/promise has. */
const CONFIGURATIONS: readonly {
  readonly name: string;
  readonly up: readonly string[];
  /** The modes that are checked with it; the full product has all. */
  readonly modes: readonly Mode[];
}[] = [
  // Options decide before the modes whether a flow is masqueraded, and the oracle tests of each mode's room compare its rules
  // with that: each mode is checked with one configuration, and each option in two modes.
  { name: 'masqueradeAll', up: ['--masquerade-all'], modes: ['ebpf'] },
  { name: 'without local detection', up: ['--no-local-detection'], modes: ['userspace'] },
  {
    name: 'masqueradeAll without local detection',
    up: ['--masquerade-all', '--no-local-detection'],
    modes: ['nftables', 'iptables'],
  },
];

/** The scenarios that the configurations affect. */
const SCENARIOS = ['plain:', 'local:'];

/** With two, each Service has endpoints on the client's node and on another one. */
const NODES = TAKES_FULL_PRODUCT ? '3' : '2';

/** Not every kernel supports IPVS. */
const MODES = availableModes().filter((mode) => mode !== 'ipvs');

for (const { name, up, modes } of CONFIGURATIONS) {
  const checked = TAKES_FULL_PRODUCT ? MODES : modes;
  test(`every flow from pods, nodes and outside, configuration ${name}`, async (t) => {
    const cluster = await startCluster([
      ...['--nodes', NODES, '--ip-family', 'dual', '--mode', checked[0] ?? ''],
      ...up,
    ]);
    try {
      for (const mode of checked) {
        await t.test(mode, async () => {
          if (mode !== checked[0]) assert.equal((await cluster.fairlead('mode', mode)).status, 0);
          await assertConforms(cluster, mode, SCENARIOS);
        });
      }
    } finally {
      await cluster.down();
    }
  });
}
