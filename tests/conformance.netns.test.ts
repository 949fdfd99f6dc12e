import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { availableModes } from '../src/agent/dataplanes.ts';
import { type Cluster, startCluster } from './testing/cluster.ts';
import { CLUSTER_POLICY_DEFINITIONS } from './testing/cluster-policy-definitions.ts';

interface Report {
  readonly modes: Readonly<Record<string, string>>;
  readonly failed: number;
  readonly drifts: readonly unknown[];
  readonly skipped: readonly string[];
  readonly flows: readonly { readonly flow: string; readonly ok: boolean; readonly mode: string }[];
}

/** The configurations of upstream's matrix. The first runs all scenarios, the others only those that they affect. */
const CONFIGURATIONS: readonly { readonly name: string; readonly up: string[]; readonly only: string[] }[] = [
  { name: 'default', up: [], only: [] },
  { name: 'masqueradeAll', up: ['--masquerade-all'], only: ['plain:', 'local:'] },
  { name: 'without local detection', up: ['--no-local-detection'], only: ['plain:', 'local:'] },
  {
    name: 'masqueradeAll without local detection',
    up: ['--masquerade-all', '--no-local-detection'],
    only: ['plain:', 'local:'],
  },
];

/** Not every kernel supports IPVS: ipvs-cluster.vm.test.ts tests it in a virtual machine. */
const MODES = availableModes().filter((mode) => mode !== 'ipvs');

for (const { name, up, only } of CONFIGURATIONS) {
  describe(`every flow from pods, nodes and outside, configuration ${name}`, () => {
    test(`modes ${MODES.join(', ')}`, async (t) => {
      const cluster = await startCluster([
        '--nodes',
        '3',
        '--ip-family',
        'dual',
        '--mode',
        MODES[0] ?? '',
        ...up,
      ]);
      try {
        if (only.length === 0) await cluster.apply(CLUSTER_POLICY_DEFINITIONS);
        for (const mode of MODES) {
          await t.test(mode, async () => {
            if (mode !== MODES[0]) assert.equal((await cluster.fairlead('mode', mode)).status, 0);
            await assertConforms(cluster, mode, only);
          });
        }
      } finally {
        await cluster.down();
      }
    });
  });
}

test('every flow between nodes in different modes', async () => {
  const cluster = await startCluster(['--nodes', '3', '--ip-family', 'dual']);
  try {
    assert.equal((await cluster.fairlead('mode', '--node', 'node-1', 'iptables')).status, 0);
    assert.equal((await cluster.fairlead('mode', '--node', 'node-2', 'ebpf')).status, 0);
    const report = await check(cluster, ['plain:', 'local:']);
    assert.deepEqual(report.modes, { 'node-1': 'iptables', 'node-2': 'ebpf', 'node-3': 'nftables' });
    assertGood(report);
  } finally {
    await cluster.down();
  }
});

async function assertConforms(cluster: Cluster, mode: string, only: readonly string[]): Promise<void> {
  const report = await check(cluster, only);
  assert.deepEqual([...new Set(Object.values(report.modes))], [mode]);
  // Fewer flows would mean that sources, kinds of address, protocols, families or scenarios were left out.
  assert.ok(report.flows.length >= (only.length === 0 ? 1400 : 300), `${report.flows.length} flows`);
  const policies = report.flows.filter(({ flow }) => flow.startsWith('policy: '));
  assert.ok(policies.length >= (only.length === 0 ? 450 : 0), `${policies.length} flows of policies`);
  assert.deepEqual(report.skipped, []);
  assertGood(report);
}

async function check(cluster: Cluster, only: readonly string[]): Promise<Report> {
  const { out, error } = await cluster.fairlead(
    'check',
    '-o',
    'json',
    ...only.flatMap((text) => ['--only', text]),
  );
  assert.notEqual(out, '', error);
  return JSON.parse(out) as Report;
}

function assertGood(report: Report): void {
  assert.deepEqual(
    report.flows.filter(({ ok }) => !ok),
    [],
  );
  assert.deepEqual(report.drifts, []);
  assert.equal(report.failed, 0);
}
