import assert from 'node:assert/strict';
import type { Cluster } from './cluster.ts';

/** The report of `fairlead check -o json`. */
export interface Report {
  readonly modes: Readonly<Record<string, string>>;
  readonly failed: number;
  readonly drifts: readonly unknown[];
  readonly skipped: readonly string[];
  readonly flows: readonly { readonly flow: string; readonly ok: boolean; readonly mode: string }[];
}

/** Checks a cluster whose nodes are all in one mode: every flow of the scenarios that `only` names; all without it. */
export async function assertConforms(cluster: Cluster, mode: string, only: readonly string[]): Promise<void> {
  const report = await check(cluster, only);
  assert.deepEqual([...new Set(Object.values(report.modes))], [mode]);
  // Fewer flows would mean that sources, kinds of address, protocols, families or scenarios were left out.
  assert.ok(report.flows.length >= (only.length === 0 ? 1400 : 300), `${report.flows.length} flows`);
  const policies = report.flows.filter(({ flow }) => flow.startsWith('policy: '));
  assert.ok(policies.length >= (only.length === 0 ? 450 : 0), `${policies.length} flows of policies`);
  assert.deepEqual(report.skipped, []);
  assertGood(report);
}

/** Returns the report of the scenarios that `only` names. */
export async function check(cluster: Cluster, only: readonly string[]): Promise<Report> {
  const { out, error } = await cluster.fairlead(
    'check',
    '-o',
    'json',
    ...only.flatMap((text) => ['--only', text]),
  );
  assert.notEqual(out, '', error);
  return JSON.parse(out) as Report;
}

export function assertGood(report: Report): void {
  assert.deepEqual(
    report.flows.filter(({ ok }) => !ok),
    [],
  );
  assert.deepEqual(report.drifts, []);
  assert.equal(report.failed, 0);
}
