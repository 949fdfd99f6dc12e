import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type HealthFacts, proxyHealth } from './proxy-health.ts';

const USUAL: HealthFacts = {
  now: 100_000,
  startedAt: 0,
  lastAppliedAt: 90_000,
  pendingSince: null,
  failure: null,
  syncPeriodMs: 30_000,
  families: ['ipv4'],
  nodeProblem: null,
};

interface Row {
  readonly name: string;
  readonly facts: Partial<HealthFacts>;
  readonly healthy: boolean;
  readonly live: boolean;
  readonly lastUpdated: number;
  readonly problem: RegExp | null;
}

const ROWS: readonly Row[] = [
  { name: 'all is programmed', facts: {}, healthy: true, live: true, lastUpdated: 90_000, problem: null },
  {
    name: 'the first programming has not succeeded',
    facts: { lastAppliedAt: null, pendingSince: 99_000 },
    ...{ healthy: false, live: true, lastUpdated: 0, problem: /not been programmed/ },
  },
  {
    name: 'the first programming fails again and again',
    facts: { lastAppliedAt: null, pendingSince: 1000, failure: 'no cgroup v2' },
    ...{
      healthy: false,
      live: false,
      lastUpdated: 0,
      problem: /not been programmed.*; .*failed: no cgroup v2/,
    },
  },
  {
    name: 'a change waits',
    facts: { pendingSince: 40_001 },
    ...{ healthy: true, live: true, lastUpdated: 90_000, problem: null },
  },
  {
    name: 'a change has just failed',
    facts: { pendingSince: 99_000, failure: 'busy' },
    ...{ healthy: true, live: true, lastUpdated: 90_000, problem: /^programming failed: busy$/ },
  },
  {
    name: 'a change has waited for two periods',
    facts: { pendingSince: 40_000 },
    ...{ healthy: false, live: false, lastUpdated: 90_000, problem: null },
  },
  {
    name: 'the Node has no address: a restart would not help',
    facts: { nodeProblem: 'Node a has no address' },
    ...{ healthy: false, live: true, lastUpdated: 90_000, problem: /no address/ },
  },
];

for (const { name, facts, problem, ...expected } of ROWS) {
  test(`health of the proxy: ${name}`, () => {
    const { problem: found, families: _, ...health } = proxyHealth({ ...USUAL, ...facts });
    assert.deepEqual(health, expected);
    if (problem) assert.match(found ?? '', problem);
    else assert.equal(found, null);
  });
}
