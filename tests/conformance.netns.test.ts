import assert from 'node:assert/strict';
import { test } from 'node:test';
import { availableModes } from '../src/agent/dataplanes.ts';
import { startCluster } from './testing/cluster.ts';
import { CLUSTER_POLICY_DEFINITIONS } from './testing/cluster-policy-definitions.ts';
import { assertConforms, assertGood, check } from './testing/flow-report.ts';

/**
 * Not every kernel supports IPVS: ipvs-cluster.vm.test.ts tests it in a virtual machine. conformance.matrix.test.ts has the
 * other configurations.
 */
const MODES = availableModes().filter((mode) => mode !== 'ipvs');

test('every flow from pods, nodes and outside', async (t) => {
  const cluster = await startCluster(['--nodes', '3', '--ip-family', 'dual', '--mode', MODES[0] ?? '']);
  try {
    await cluster.apply(CLUSTER_POLICY_DEFINITIONS);
    for (const mode of MODES) {
      await t.test(mode, async () => {
        if (mode !== MODES[0]) assert.equal((await cluster.fairlead('mode', mode)).status, 0);
        await assertConforms(cluster, mode, []);
      });
    }
  } finally {
    await cluster.down();
  }
});

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
