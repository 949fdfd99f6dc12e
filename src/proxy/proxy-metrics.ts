import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { ApplyReport, Drift } from '../dataplane/dataplane.ts';
import type { Clock } from '../lib/clock.ts';

/** What the proxy reports. Names are kube-proxy's where it has one, so that its dashboards and alerts work. */
export interface ProxyMetrics {
  serviceChanged(): void;
  /** `triggeredAt`: when the cause happened (annotation of the slice), in milliseconds; null: unknown. */
  endpointsChanged(triggeredAt: number | null): void;
  queued(): void;
  programmed(report: ApplyReport, whole: boolean, seconds: number): void;
  failed(): void;
  drifted(drifts: readonly Drift[]): void;
  conntrackPass(family: string, seconds: number, deleted: number): void;
  answered(server: 'healthz' | 'livez', code: number): void;
  /** An endpoint was taken out of use, or came back. */
  endpointVerdict(kind: 'ejected' | 'returned', cause: string): void;
  /** So many endpoints are out of use. */
  ejectedNow(count: number): void;
  /** So many connections had no answer, and were freed to go elsewhere. */
  unanswered(count: number): void;
  /** The kernel dropped events of connections. */
  attemptsLost(): void;
}

/** 1 ms, doubled 14 times. */
const SYNC_BUCKETS = Array.from({ length: 15 }, (_, index) => 0.001 * 2 ** index);
const PROGRAMMING_BUCKETS = [0.25, 0.5, ...range(1, 59, 1), ...range(60, 115, 5), ...range(120, 300, 30)];

export function createProxyMetrics(registry: Registry, mode: () => string, clock: Clock): ProxyMetrics {
  const registers = [registry];
  const histogram = (name: string, help: string, buckets: number[], labelNames: string[] = []) =>
    new Histogram({ name: `kubeproxy_${name}`, help, buckets, labelNames, registers });
  const counter = (name: string, help: string, labelNames: string[] = []) =>
    new Counter({ name, help, labelNames, registers });
  const durations = {
    all: histogram('sync_proxy_rules_duration_seconds', 'Duration of a programming', SYNC_BUCKETS),
    full: histogram('sync_full_proxy_rules_duration_seconds', 'Of everything', SYNC_BUCKETS),
    partial: histogram('sync_partial_proxy_rules_duration_seconds', 'Of what changed', SYNC_BUCKETS),
  };
  const network = histogram(
    'network_programming_duration_seconds',
    "From an endpoint's change to rules in the kernel",
    PROGRAMMING_BUCKETS,
  );
  const reconciled = histogram(
    'conntrack_reconciler_sync_duration_seconds',
    'Duration of a look through connection tracking',
    SYNC_BUCKETS,
    ['ip_family'],
  );
  const gauge = (name: string, help: string) =>
    new Gauge({ name: `kubeproxy_${name}`, help, registers: [registry] });
  const lastDone = gauge('sync_proxy_rules_last_timestamp_seconds', 'When rules were last programmed');
  const lastQueued = gauge(
    'sync_proxy_rules_last_queued_timestamp_seconds',
    'When programming was last asked for',
  );
  const endpointsPending = gauge(
    'sync_proxy_rules_endpoint_changes_pending',
    'Endpoint changes not yet programmed',
  );
  const servicesPending = gauge(
    'sync_proxy_rules_service_changes_pending',
    'Service changes not yet programmed',
  );
  const endpoints = counter('kubeproxy_sync_proxy_rules_endpoint_changes_total', 'Endpoint changes');
  const services = counter('kubeproxy_sync_proxy_rules_service_changes_total', 'Service changes');
  const failures = counter('fairlead_programming_failures_total', 'Programmings that failed', ['mode']);
  const operations = counter('fairlead_programming_operations_total', "Operations, in the mode's own unit", [
    'mode',
  ]);
  const kernelSeconds = counter('fairlead_programming_kernel_seconds_total', 'Time spent in the kernel', [
    'mode',
  ]);
  const drift = counter('fairlead_drift_total', 'Kernel objects that others had changed', ['mode', 'kind']);
  const deleted = counter(
    'kubeproxy_conntrack_reconciler_deleted_entries_total',
    'Connection tracking entries deleted',
    ['ip_family'],
  );
  const answers = {
    healthz: counter('kubeproxy_proxy_healthz_total', 'Answers of /healthz', ['code']),
    livez: counter('kubeproxy_proxy_livez_total', 'Answers of /livez', ['code']),
  };
  const verdicts = {
    ejected: counter('fairlead_endpoint_ejections_total', 'Endpoints taken out of use', ['cause']),
    returned: counter('fairlead_endpoint_returns_total', 'Endpoints taken back into use', ['cause']),
  };
  const ejected = new Gauge({
    name: 'fairlead_ejected_endpoints',
    help: 'Endpoints that are out of use now',
    registers,
  });
  const unanswered = counter(
    'fairlead_unanswered_connections_total',
    'Connections that had no answer, and were freed to go elsewhere',
  );
  const lost = counter(
    'fairlead_connection_event_overruns_total',
    'Times that the kernel dropped events of connections',
  );
  let triggers: number[] = [];
  return {
    endpointVerdict: (kind, cause) => verdicts[kind].inc({ cause }),
    ejectedNow: (count) => ejected.set(count),
    unanswered: (count) => unanswered.inc(count),
    attemptsLost: () => lost.inc(),
    serviceChanged() {
      services.inc();
      servicesPending.inc();
    },
    endpointsChanged(triggeredAt) {
      endpoints.inc();
      endpointsPending.inc();
      if (triggeredAt !== null) triggers.push(triggeredAt);
    },
    queued: () => lastQueued.set(clock.now() / 1000),
    programmed(report, whole, seconds) {
      durations.all.observe(seconds);
      (whole ? durations.full : durations.partial).observe(seconds);
      operations.inc({ mode: mode() }, report.operations);
      kernelSeconds.inc({ mode: mode() }, report.kernelMs / 1000);
      lastDone.set(clock.now() / 1000);
      endpointsPending.set(0);
      servicesPending.set(0);
      for (const at of triggers) network.observe(Math.max(0, clock.now() - at) / 1000);
      triggers = [];
    },
    failed() {
      failures.inc({ mode: mode() });
    },
    drifted(drifts) {
      for (const { kind } of drifts) drift.inc({ mode: mode(), kind });
    },
    conntrackPass(family, seconds, count) {
      reconciled.observe({ ip_family: family === 'ipv6' ? 'IPv6' : 'IPv4' }, seconds);
      deleted.inc({ ip_family: family === 'ipv6' ? 'IPv6' : 'IPv4' }, count);
    },
    answered: (server, code) => answers[server].inc({ code: String(code) }),
  };
}

function range(from: number, to: number, step: number): number[] {
  return Array.from({ length: (to - from) / step + 1 }, (_, index) => from + index * step);
}
