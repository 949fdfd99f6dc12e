import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { conformanceDocument } from './e2e/conformance-document.ts';
import { ginkgoCommand } from './e2e/ginkgo.ts';
import { readReport, type SpecResult, specNames } from './e2e/ginkgo-report.ts';
import { groupNamed, isOfGroup } from './e2e/groups.ts';
import { notApplicable } from './e2e/not-applicable.ts';
import { exactly, finishedSpecs, loadResults, saveResults } from './e2e/results.ts';
import {
  installFairlead,
  missingForRealCluster,
  type RealCluster,
  startRealCluster,
} from './testing/real-cluster.ts';

/**
 * Upstream's [sig-network] specs on real kubelets, with the agents in place of kube-proxy, CoreDNS and a CNI plugin. They take
 * some 15 minutes: each run goes on with those that have not passed yet, for REAL_SPECS_TIMEOUT.
 */

const MODE = process.env['REAL_SPECS'] ?? '';
const ASSETS = process.env['KUBEBUILDER_ASSETS'] ?? '';
const FAMILY = 'ipv4';
const skip = missingForRealCluster() ?? (MODE === '' && 'REAL_SPECS does not name a proxy mode');
const GROUP = groupNamed('real-network');
const OF_EVICTION = 'rejected for evicted pods';
const NO_EVICTION = "the test bed's kubelets evict no pods (localStorageCapacityIsolation: false)";
const DOCUMENT = join(import.meta.dirname, '..', 'docs', 'conformance.md');

test(`the specs that have not passed yet${MODE === '' ? '' : ` in ${MODE} mode`}`, { skip }, async (t) => {
  process.env['NODES'] = String(GROUP.nodes);
  const cluster = await startRealCluster();
  const output = mkdtempSync(join(tmpdir(), 'flt-e2e-'));
  try {
    await installFairlead(cluster, ['--mode', MODE]);
    for (const [i, node] of cluster.nodes.entries())
      await cluster.ask(
        'label',
        'node',
        node,
        `topology.kubernetes.io/zone=zone-${(i % (GROUP.zones ?? 1)) + 1}`,
      );
    const left = (await evictsPods(cluster)) ? [] : [OF_EVICTION];
    const words = ginkgoCommand({
      assets: ASSETS,
      kubeconfig: cluster.kubeconfig,
      nodes: cluster.nodes.length,
      focus: process.env['REAL_SPECS_FOCUS'] ?? GROUP.focus,
      skips: [GROUP.skip, ...left, ...finishedSpecs(GROUP.name, MODE, FAMILY).map(exactly)],
      procs: '4',
      timeout: process.env['REAL_SPECS_TIMEOUT'] ?? '30m',
      output,
    });
    const { out, error } = await cluster.run('workstation', 'env', '-C', output, ...words);
    const text = readFileSync(join(output, 'report.json'), 'utf8');
    const ran = readReport(text).filter(({ name }) => isOfGroup(GROUP, name));
    const version = execFileSync(join(ASSETS, 'e2e.test'), ['--version'], { encoding: 'utf8' }).trim();
    const all = specNames(text).filter((name) => isOfGroup(GROUP, name));
    const withoutEviction = all
      .filter((name) => left.some((words) => name.includes(words)))
      .map((name): SpecResult => ({ name, state: 'skipped', reason: NO_EVICTION }));
    const set = saveResults(
      { group: GROUP.name, mode: MODE, family: FAMILY, version },
      [...ran, ...withoutEviction],
      all,
    );
    writeFileSync(DOCUMENT, conformanceDocument(loadResults()));
    const missing = Object.values(set.specs).filter(({ state }) => state === 'not run').length;
    t.diagnostic(`${ran.filter(({ state }) => state === 'passed').length} passed, ${missing} not run yet`);
    assert.deepEqual(
      ran.filter(
        ({ name, state, reason }) => state === 'failed' && notApplicable(name, MODE, reason) === null,
      ),
      [],
      `${out}${error}`,
    );
  } finally {
    rmSync(output, { recursive: true, force: true });
    await cluster.down();
  }
});

/** Returns whether the kubelets evict pods that use more of the node's storage than their limits. */
async function evictsPods(cluster: RealCluster): Promise<boolean> {
  const text = await cluster.ask('get', '--raw', `/api/v1/nodes/${cluster.nodes[0]}/proxy/configz`);
  const { kubeletconfig } = JSON.parse(text) as {
    readonly kubeletconfig: { readonly localStorageCapacityIsolation?: boolean };
  };
  return kubeletconfig.localStorageCapacityIsolation !== false;
}
