import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { CountedPackets } from '../dataplane/abilities.ts';
import type { ApplyReport, Drift } from '../dataplane/dataplane.ts';
import { FAMILY_NAMES, type IPFamily } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import type { ServiceMap } from '../service/model.ts';
import { portsWithoutLocalEndpoints } from './local-policies.ts';

/** The proxy's metrics, with kube-proxy's names where they exist, so that its dashboards and alerts work. */
export interface ProxyMetrics {
  serviceChanged(): void;
  /**
   * Counts a change of endpoints. `triggeredAt`: the time of the cause (annotation of the slice), in
   * milliseconds; null: unknown.
   */
  endpointsChanged(triggeredAt: number | null): void;
  programmed(report: ApplyReport, whole: boolean, seconds: number): void;
  /** Counts a failure. `whole`: in a full sync, not in a change. */
  failed(whole: boolean): void;
  drifted(drifts: readonly Drift[]): void;
  conntrackPass(family: IPFamily, seconds: number, deleted: number): void;
  answered(server: 'healthz' | 'livez', code: number): void;
  /** Counts an ejection, or a return. */
  endpointVerdict(kind: 'ejected' | 'returned', cause: string): void;
  /** Sets the number of ejected endpoints. */
  ejectedNow(count: number): void;
  /** Counts unanswered connections whose entries were deleted. */
  unanswered(count: number): void;
  /** Counts overruns of connection tracking events. */
  pendingEventsLost(): void;
}

/** 1 ms, doubled 14 times. */
const SYNC_BUCKETS = Array.from({ length: 15 }, (_, index) => 0.001 * 2 ** index);
const PROGRAMMING_BUCKETS = [0.25, 0.5, ...range(1, 59, 1), ...range(60, 115, 5), ...range(120, 300, 30)];

export interface ProxyMetricsOptions {
  readonly registry: Registry;
  readonly clock: Clock;
  readonly families: readonly IPFamily[];
  readonly mode: () => string;
  /** The programmed map; null: none yet. */
  readonly map: () => ServiceMap | null;
  /** Whether sockets that connect to Services have the short SYN timer. */
  readonly hasShortTimers: () => boolean;
  /** Reads what the rules of iptables mode have counted; null: not known, or another mode. */
  readonly countedPackets: () => Promise<CountedPackets | null>;
}

type MakeHistogram = (name: string, help: string, buckets: number[], labelNames?: string[]) => Histogram;
type MakeCounter = (name: string, help: string, labelNames?: string[]) => Counter;

const createAnswerCounters = (counter: MakeCounter) => ({
  healthz: counter('kubeproxy_proxy_healthz_total', 'Answers of /healthz', ['code']),
  livez: counter('kubeproxy_proxy_livez_total', 'Answers of /livez', ['code']),
});

const createDurations = (histogram: MakeHistogram) => ({
  all: histogram('sync_proxy_rules_duration_seconds', 'Duration of a sync', SYNC_BUCKETS, ['ip_family']),
  full: histogram('sync_full_proxy_rules_duration_seconds', 'Duration of a full sync', SYNC_BUCKETS, [
    'ip_family',
  ]),
  partial: histogram(
    'sync_partial_proxy_rules_duration_seconds',
    'Duration of an incremental sync',
    SYNC_BUCKETS,
    ['ip_family'],
  ),
});

/** Both families are programmed together: where kube-proxy's metrics have the label ip_family, their values are equal. */
export function createProxyMetrics(options: ProxyMetricsOptions): ProxyMetrics {
  const { clock, families, mode } = options;
  const labels = families.map((family) => ({ ip_family: FAMILY_NAMES[family] }));
  const registers = [options.registry];
  const histogram: MakeHistogram = (name, help, buckets, labelNames = []) =>
    new Histogram({ name: `kubeproxy_${name}`, help, buckets, labelNames, registers });
  const counter: MakeCounter = (name, help, labelNames = []) =>
    new Counter({ name, help, labelNames, registers });
  const durations = createDurations(histogram);
  const network = histogram(
    'network_programming_duration_seconds',
    "Time from an endpoint's change until the kernel has it",
    PROGRAMMING_BUCKETS,
    ['ip_family'],
  );
  const reconciled = histogram(
    'conntrack_reconciler_sync_duration_seconds',
    'Duration of a pass over the connection tracking table',
    SYNC_BUCKETS,
    ['ip_family'],
  );
  const gauge = (name: string, help: string, labelNames: string[] = []) =>
    new Gauge({ name: `kubeproxy_${name}`, help, labelNames, registers });
  const lastDone = gauge('sync_proxy_rules_last_timestamp_seconds', 'Time of the last successful sync', [
    'ip_family',
  ]);
  const lastQueued = gauge('sync_proxy_rules_last_queued_timestamp_seconds', 'Time of the last queued sync', [
    'ip_family',
  ]);
  registerPortsWithoutEndpoints(options);
  const rulesTotal = gauge(
    'sync_proxy_rules_iptables_total',
    'Rules of iptables mode after the last full sync',
    ['ip_family', 'table'],
  );
  const rulesLast = gauge('sync_proxy_rules_iptables_last', 'Rules written by the last sync', [
    'ip_family',
    'table',
  ]);
  const { failuresByMode, cleanups } = createFailureCounters(counter);
  for (const label of labels)
    for (const one of [...Object.values(failuresByMode), cleanups]) one.inc(label, 0);
  registerCountedPackets(options);
  const queued = () => labels.forEach((label) => void lastQueued.set(label, clock.now() / 1000));
  const endpointsPending = gauge('sync_proxy_rules_endpoint_changes_pending', 'Pending endpoint changes');
  const servicesPending = gauge('sync_proxy_rules_service_changes_pending', 'Pending Service changes');
  const endpoints = counter('kubeproxy_sync_proxy_rules_endpoint_changes_total', 'Endpoint changes');
  const services = counter('kubeproxy_sync_proxy_rules_service_changes_total', 'Service changes');
  const failures = counter('fairlead_programming_failures_total', 'Failed syncs', ['mode']);
  const operations = counter('fairlead_programming_operations_total', "Operations, in the mode's own unit", [
    'mode',
  ]);
  const kernelSeconds = counter('fairlead_programming_kernel_seconds_total', 'Time spent in the kernel', [
    'mode',
  ]);
  const drift = counter('fairlead_drift_total', 'Kernel objects changed by other programs', ['mode', 'kind']);
  const deleted = counter(
    'kubeproxy_conntrack_reconciler_deleted_entries_total',
    'Connection tracking entries deleted',
    ['ip_family'],
  );
  const answers = createAnswerCounters(counter);
  let triggers: number[] = [];
  return {
    ...createFailoverMetrics(options, counter),
    serviceChanged() {
      queued();
      services.inc();
      servicesPending.inc();
    },
    endpointsChanged(triggeredAt) {
      queued();
      endpoints.inc();
      endpointsPending.inc();
      if (triggeredAt !== null) triggers.push(triggeredAt);
    },
    programmed(report, whole, seconds) {
      for (const label of labels) {
        durations.all.observe(label, seconds);
        (whole ? durations.full : durations.partial).observe(label, seconds);
        lastDone.set(label, clock.now() / 1000);
        for (const at of triggers) network.observe(label, Math.max(0, clock.now() - at) / 1000);
      }
      for (const { family, table, written, total } of report.rules ?? []) {
        const label = { ip_family: FAMILY_NAMES[family], table };
        rulesLast.set(label, written);
        if (total !== null) rulesTotal.set(label, total);
      }
      operations.inc({ mode: mode() }, report.operations);
      kernelSeconds.inc({ mode: mode() }, report.kernelMs / 1000);
      endpointsPending.set(0);
      servicesPending.set(0);
      triggers = [];
    },
    failed(whole) {
      const name = mode();
      failures.inc({ mode: name });
      for (const label of labels) {
        if (name === 'iptables') failuresByMode[whole ? 'iptables' : 'iptablesPartial'].inc(label);
        if (name === 'nftables') failuresByMode.nftables.inc(label);
      }
    },
    drifted(drifts) {
      for (const { kind } of drifts) drift.inc({ mode: mode(), kind });
    },
    conntrackPass(family, seconds, count) {
      reconciled.observe({ ip_family: FAMILY_NAMES[family] }, seconds);
      deleted.inc({ ip_family: FAMILY_NAMES[family] }, count);
    },
    answered: (server, code) => answers[server].inc({ code: String(code) }),
  };
}

/** Packets that rules of iptables mode count: names, help texts and values. */
const COUNTED: readonly (readonly [name: string, help: string, value: keyof CountedPackets])[] = [
  [
    'kubeproxy_iptables_ct_state_invalid_dropped_packets_total',
    'Packets dropped by iptables mode because connection tracking calls them invalid',
    'invalidDropped',
  ],
  [
    'kubeproxy_iptables_localhost_nodeports_accepted_packets_total',
    'First packets of connections to node ports on loopback addresses, in iptables mode',
    'loopbackAccepted',
  ],
];

/** Registers counters whose values the kernel has. Both are read at once, at each scrape. */
function registerCountedPackets({ registry, countedPackets }: ProxyMetricsOptions): void {
  let reading: Promise<CountedPackets | null> | null = null;
  const read = () => {
    reading ??= countedPackets().finally(() => {
      reading = null;
    });
    return reading;
  };
  for (const [name, help, value] of COUNTED) {
    new Counter({
      name,
      help,
      registers: [registry],
      async collect() {
        const counted = await read();
        if (counted === null) return;
        this.reset();
        this.inc(counted[value]);
      },
    });
  }
}

function range(from: number, to: number, step: number): number[] {
  return Array.from({ length: (to - from) / step + 1 }, (_, index) => from + index * step);
}

function registerPortsWithoutEndpoints({ registry, families, map }: ProxyMetricsOptions): void {
  new Gauge({
    name: 'kubeproxy_sync_proxy_rules_no_local_endpoints_total',
    help: 'Service ports with a Local traffic policy and no endpoint on this node',
    labelNames: ['ip_family', 'traffic_policy'],
    registers: [registry],
    collect() {
      const current = map();
      for (const family of current ? families : []) {
        const counts = portsWithoutLocalEndpoints(current as ServiceMap, family);
        for (const policy of ['internal', 'external'] as const) {
          this.set({ ip_family: FAMILY_NAMES[family], traffic_policy: policy }, counts[policy]);
        }
      }
    },
  });
}

function createFailureCounters(counter: MakeCounter) {
  const failuresByMode = {
    iptables: counter(
      'kubeproxy_sync_proxy_rules_iptables_restore_failures_total',
      'Failed full syncs in iptables mode',
      ['ip_family'],
    ),
    iptablesPartial: counter(
      'kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total',
      'Failed incremental syncs in iptables mode',
      ['ip_family'],
    ),
    nftables: counter(
      'kubeproxy_sync_proxy_rules_nftables_sync_failures_total',
      'Failed syncs in nftables mode',
      ['ip_family'],
    ),
  };
  const cleanups = counter(
    'kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total',
    'Failed removals of stale chains: always 0, since they are part of each sync',
    ['ip_family'],
  );
  return { failuresByMode, cleanups };
}

type FailoverMetrics = Pick<
  ProxyMetrics,
  'endpointVerdict' | 'ejectedNow' | 'unanswered' | 'pendingEventsLost'
>;

function createFailoverMetrics(
  { registry, hasShortTimers }: ProxyMetricsOptions,
  counter: MakeCounter,
): FailoverMetrics {
  const verdicts = {
    ejected: counter('fairlead_endpoint_ejections_total', 'Ejections of endpoints', ['cause']),
    returned: counter('fairlead_endpoint_returns_total', 'Returns of ejected endpoints', ['cause']),
  };
  const ejected = new Gauge({
    name: 'fairlead_ejected_endpoints',
    help: 'Currently ejected endpoints',
    registers: [registry],
  });
  new Gauge({
    name: 'fairlead_short_syn_timers',
    help: 'Whether sockets that connect to Services retransmit an unanswered SYN early (0 or 1)',
    registers: [registry],
    collect() {
      this.set(hasShortTimers() ? 1 : 0);
    },
  });
  const unanswered = counter(
    'fairlead_unanswered_connections_total',
    'Unanswered connections whose conntrack entries were deleted',
  );
  const lost = counter(
    'fairlead_connection_event_overruns_total',
    'Times that the kernel dropped connection tracking events',
  );
  return {
    endpointVerdict: (kind, cause) => verdicts[kind].inc({ cause }),
    ejectedNow: (count) => ejected.set(count),
    unanswered: (count) => unanswered.inc(count),
    pendingEventsLost: () => lost.inc(),
  };
}
