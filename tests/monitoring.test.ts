import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Registry } from 'prom-client';
import { parse } from 'yaml';
import { createDnsMetrics } from '../src/dns/metrics.ts';
import { systemClock } from '../src/lib/clock.ts';
import { createProcessMetrics, registerProcessFigures } from '../src/proxy/process-metrics.ts';
import { createProxyMetrics } from '../src/proxy/proxy-metrics.ts';

const root = join(import.meta.dirname, '..');
const monitoring = join(root, 'deploy', 'monitoring');
const read = (path: string) => readFileSync(path, 'utf8');

/** Parts of the agent that register their metrics when they start. */
const PARTS = [
  'policy-metrics.ts',
  'policy-names.ts',
  'load-balancer-part.ts',
  'capacity-metrics.ts',
  'egress-part.ts',
].map((file) => join(root, 'src', 'agent', file));

/** Registers the metrics of an agent that proxies and serves DNS. */
function createMetrics(): Registry {
  const registry = new Registry();
  createProxyMetrics({
    registry,
    clock: systemClock,
    families: ['ipv4'],
    mode: () => 'nftables',
    map: () => null,
    hasShortTimers: () => false,
    countedPackets: async () => ({ invalidDropped: 3, loopbackAccepted: 5 }),
  });
  createDnsMetrics(registry);
  createProcessMetrics(registry, 'v1.36.0');
  registerProcessFigures(registry);
  return registry;
}

/** Returns the names of all metrics of an agent; Prometheus itself adds `up`. */
async function servedNames(): Promise<Set<string>> {
  const registry = createMetrics();
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
    readonly rules: readonly {
      readonly alert: string;
      readonly expr: string;
      readonly annotations: Readonly<Record<string, string>>;
    }[];
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

test('each alert names its section of docs/alerts.md, and each section has an alert', () => {
  const sections = [...read(join(root, 'docs', 'alerts.md')).matchAll(/^## (Fairlead\w+)$/gm)].map(
    ([, name = '']) => name,
  );
  assert.deepEqual(
    rules.map(({ alert }) => alert),
    sections,
  );
  for (const { alert, annotations } of rules)
    assert.equal(annotations['runbook'], `docs/alerts.md#${alert.toLowerCase()}`);
});

/** The metrics of kube-proxy 1.36 in iptables and nftables mode: name, type, labels. */
const OF_KUBE_PROXY = `
kubeproxy_conntrack_reconciler_deleted_entries_total counter ip_family
kubeproxy_conntrack_reconciler_sync_duration_seconds histogram ip_family
kubeproxy_iptables_ct_state_invalid_dropped_packets_total counter
kubeproxy_iptables_localhost_nodeports_accepted_packets_total counter
kubeproxy_network_programming_duration_seconds histogram ip_family
kubeproxy_proxy_healthz_total counter code
kubeproxy_proxy_livez_total counter code
kubeproxy_sync_full_proxy_rules_duration_seconds histogram ip_family
kubeproxy_sync_partial_proxy_rules_duration_seconds histogram ip_family
kubeproxy_sync_proxy_rules_duration_seconds histogram ip_family
kubeproxy_sync_proxy_rules_endpoint_changes_pending gauge
kubeproxy_sync_proxy_rules_endpoint_changes_total counter
kubeproxy_sync_proxy_rules_iptables_last gauge ip_family table
kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total counter ip_family
kubeproxy_sync_proxy_rules_iptables_restore_failures_total counter ip_family
kubeproxy_sync_proxy_rules_iptables_total gauge ip_family table
kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds gauge ip_family
kubeproxy_sync_proxy_rules_last_timestamp_seconds gauge ip_family
kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total counter ip_family
kubeproxy_sync_proxy_rules_nftables_sync_failures_total counter ip_family
kubeproxy_sync_proxy_rules_no_local_endpoints_total gauge ip_family traffic_policy
kubeproxy_sync_proxy_rules_service_changes_pending gauge
kubeproxy_sync_proxy_rules_service_changes_total counter
process_cpu_seconds_total counter
process_max_fds gauge
process_network_receive_bytes_total counter
process_network_transmit_bytes_total counter
process_open_fds gauge
process_resident_memory_bytes gauge
process_start_time_seconds gauge
process_virtual_memory_bytes gauge
process_virtual_memory_max_bytes gauge
rest_client_rate_limiter_duration_seconds histogram host verb
rest_client_request_duration_seconds histogram host verb
rest_client_request_size_bytes histogram host verb
rest_client_requests_total counter code host method
rest_client_response_size_bytes histogram host verb
`;

for (const line of OF_KUBE_PROXY.trim().split('\n')) {
  const [name = '', type, ...labels] = line.split(' ');
  test(`kube-proxy's metric ${name} is served with its type and labels`, () => {
    const metric = createMetrics().getSingleMetric(name) as
      | { readonly type: string; readonly labelNames: readonly string[] }
      | undefined;
    assert.equal(metric?.type, type);
    assert.deepEqual(metric?.labelNames.filter((label) => label !== 'le').toSorted(), labels);
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
