import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Registry } from 'prom-client';
import { parse } from 'yaml';
import { createDnsMetrics } from '../src/dns/metrics.ts';
import { systemClock } from '../src/lib/clock.ts';
import { createProcessMetrics } from '../src/proxy/process-metrics.ts';
import { createProxyMetrics } from '../src/proxy/proxy-metrics.ts';

const root = join(import.meta.dirname, '..');
const monitoring = join(root, 'deploy', 'monitoring');
const read = (path: string) => readFileSync(path, 'utf8');

/** Parts of the agent that register their metrics when they start. */
const PARTS = ['policy-part.ts', 'load-balancer-part.ts'].map((file) => join(root, 'src', 'agent', file));

/** Returns the names of all metrics of an agent; Prometheus itself adds `up`. */
async function servedNames(): Promise<Set<string>> {
  const registry = new Registry();
  createProxyMetrics({
    registry,
    clock: systemClock,
    families: ['ipv4'],
    mode: () => 'nftables',
    map: () => null,
    hasShortTimers: () => false,
  });
  createDnsMetrics(registry);
  createProcessMetrics(registry, 'v1.36.0');
  const names = new Set(['up']);
  for (const { name, type } of await registry.getMetricsAsJSON()) {
    const suffixes = String(type) === 'histogram' ? ['_bucket', '_sum', '_count'] : [''];
    for (const suffix of suffixes) names.add(name + suffix);
  }
  for (const file of PARTS) for (const [name] of read(file).matchAll(/\bfairlead_[a-z_]+/g)) names.add(name);
  return names;
}

/** Names of metrics stand before a selector, a range or an operator; labels and functions do not begin so. */
const METRIC = /\b(?:kubeproxy|fairlead|coredns|process|rest_client|nodejs)_[a-z_]+\b/g;

interface Rules {
  readonly groups: readonly {
    readonly rules: readonly { readonly alert: string; readonly expr: string }[];
  }[];
}
interface Dashboard {
  readonly panels: readonly {
    readonly title: string;
    readonly targets?: readonly { readonly expr: string }[];
  }[];
}

const rules = (parse(read(join(monitoring, 'alerts.yaml'))) as Rules).groups.flatMap((group) => group.rules);
const { panels } = JSON.parse(read(join(monitoring, 'dashboard.json'))) as Dashboard;
const EXPRESSIONS = [
  ...rules.map(({ alert, expr }) => [`the alert ${alert}`, expr] as const),
  ...panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr }) => [`the panel ${title}`, expr] as const),
  ),
];

for (const [what, expression] of EXPRESSIONS) {
  test(`${what} uses metrics that agents serve`, async () => {
    const used = expression.match(METRIC) ?? (/\bup\b/.test(expression) ? ['up'] : []);
    assert.notEqual(used.length, 0);
    const served = await servedNames();
    assert.deepEqual(
      used.filter((name) => !served.has(name)),
      [],
    );
  });
}

const promtool = [join(root, '.cache', 'promtool'), '/usr/bin/promtool'].find((path) => existsSync(path));

test('promtool accepts the alerts, and they fire when they should', {
  skip: promtool ? false : 'promtool is not there: sh tools/promtool.sh',
}, () => {
  const run = (...words: string[]) => execFileSync(String(promtool), words, { cwd: monitoring });
  run('check', 'rules', 'alerts.yaml');
  run('test', 'rules', 'alerts-test.yaml');
});
