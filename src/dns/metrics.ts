import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import { rcodeName, typeName } from './message.ts';
import { createQueryCounter, createQueryHistogram } from './query-counts.ts';

export type Transport = 'udp' | 'tcp';

/** One answered query. */
export interface ServedQuery {
  readonly transport: Transport;
  readonly family: 'ipv4' | 'ipv6';
  readonly type: number;
  readonly dnssecOk: boolean;
  readonly rcode: number;
  readonly zone: string;
  /** The source of the answer: "kubernetes", "forward", or "" for a refusal. */
  readonly plugin: string;
  readonly requestBytes: number;
  readonly responseBytes: number;
  readonly seconds: number;
}

export type CacheKind = 'success' | 'denial';

/** The metrics of the server and the forwarder, with CoreDNS's names and labels, so that its dashboards work. */
export interface DnsMetrics {
  served(query: ServedQuery): void;
  /** Counts an internal error, after which SERVFAIL was sent. */
  panicked(): void;
  /** Counts a query of a client that has used up its share. */
  dropped(): void;
  programmed(seconds: number): void;
  cacheHit(kind: CacheKind): void;
  cacheMiss(): void;
  cacheEvicted(kind: CacheKind): void;
  /** Called at each scrape. */
  observeCacheEntries(count: (kind: CacheKind) => number): void;
  forwarded(upstream: string, rcode: number, seconds: number): void;
  healthCheckFailed(upstream: string): void;
  allUpstreamsDown(): void;
  forwardRejected(): void;
}

const SERVER = 'dns://:53';

type MakeCounter = (name: string, help: string, labelNames: string[]) => Counter;
type MakeHistogram = (name: string, help: string, labelNames: string[], buckets: number[]) => Histogram;

/** Registers CoreDNS's metrics in `registry`. */
export function createDnsMetrics(registry: Registry): DnsMetrics {
  const registers = [registry];
  const counter: MakeCounter = (name, help, labelNames) => new Counter({ name, help, labelNames, registers });
  const histogram: MakeHistogram = (name, help, labelNames, buckets) =>
    new Histogram({ name, help, labelNames, buckets, registers });
  const sizes = [100, 200, 300, 400, 511, 1023, 2047, 4095, 8291, 16e3, 32e3, 48e3, 64e3];
  const times = Array.from({ length: 16 }, (_, i) => 0.00025 * 2 ** i);

  const perQuery = (name: string, help: string, labelNames: string[]) =>
    createQueryCounter(registry, name, help, labelNames);
  const requests = perQuery(
    'coredns_dns_requests_total',
    'Counter of DNS requests made per zone, protocol and family.',
    ['server', 'zone', 'view', 'proto', 'family', 'type'],
  );
  const dnssec = perQuery(
    'coredns_dns_do_requests_total',
    'Counter of DNS requests with DO bit set per zone.',
    ['server', 'zone', 'view'],
  );
  const responses = perQuery('coredns_dns_responses_total', 'Counter of response status codes.', [
    'server',
    'zone',
    'view',
    'rcode',
    'plugin',
  ]);
  const duration = createQueryHistogram(
    registry,
    'coredns_dns_request_duration_seconds',
    'Histogram of the time (in seconds) each request took per zone.',
    times,
  );
  const requestSize = createQueryHistogram(
    registry,
    'coredns_dns_request_size_bytes',
    'Size of the EDNS0 UDP buffer in bytes (64K for TCP) per zone and protocol.',
    sizes,
  );
  const responseSize = createQueryHistogram(
    registry,
    'coredns_dns_response_size_bytes',
    'Size of the returned response in bytes.',
    sizes,
  );
  const panics = counter('coredns_panics_total', 'A metrics that counts the number of panics.', []);
  const dropped = counter(
    'fairlead_dns_dropped_queries_total',
    'Queries over UDP that were dropped because their client had used up its share.',
    [],
  );
  const programming = histogram(
    'coredns_kubernetes_dns_programming_duration_seconds',
    'Histogram of the time (in seconds) it took to program a dns instance.',
    ['service_kind'],
    Array.from({ length: 20 }, (_, i) => 0.001 * 2 ** i),
  );
  const cache = createCacheMetrics(registry, counter);
  const forwarding = createForwardMetrics(counter, histogram, times);

  return {
    served({ zone, transport, family, type, dnssecOk, rcode, plugin, requestBytes, responseBytes, seconds }) {
      const labels = () => ({ server: SERVER, zone, view: '' });
      const overTransport = () => ({ ...labels(), proto: transport });
      // Unknown types are one series: a client could ask for thousands of them.
      const typeLabel = typeName(type);
      requests.inc(`${zone} ${transport} ${family} ${typeLabel}`, () => ({
        ...overTransport(),
        family: family === 'ipv4' ? '1' : '2',
        type: typeLabel,
      }));
      if (dnssecOk) dnssec.inc(zone, labels);
      responses.inc(`${zone} ${rcode} ${plugin}`, () => ({ ...labels(), rcode: rcodeName(rcode), plugin }));
      duration.observe(zone, labels, seconds);
      const key = `${zone} ${transport}`;
      requestSize.observe(key, overTransport, requestBytes);
      responseSize.observe(key, overTransport, responseBytes);
    },
    panicked: () => panics.inc(),
    dropped: () => dropped.inc(),
    programmed: (seconds) => programming.observe({ service_kind: 'headless_with_selector' }, seconds),
    ...cache,
    ...forwarding,
  };
}

type CacheMetrics = Pick<DnsMetrics, 'cacheHit' | 'cacheMiss' | 'cacheEvicted' | 'observeCacheEntries'>;

function createCacheMetrics(registry: Registry, counter: MakeCounter): CacheMetrics {
  const cacheRequests = counter('coredns_cache_requests_total', 'The count of cache requests.', [
    'server',
    'zones',
    'view',
  ]);
  const cacheHits = counter('coredns_cache_hits_total', 'The count of cache hits.', [
    'server',
    'type',
    'zones',
    'view',
  ]);
  const cacheMisses = counter(
    'coredns_cache_misses_total',
    'The count of cache misses. Deprecated, derive misses from cache hits/requests counters.',
    ['server', 'zones', 'view'],
  );
  const cacheEvictions = counter('coredns_cache_evictions_total', 'The count of cache evictions.', [
    'server',
    'type',
    'zones',
    'view',
  ]);
  const cacheLabels = { server: SERVER, zones: '.', view: '' };
  return {
    cacheHit(kind) {
      cacheRequests.inc(cacheLabels);
      cacheHits.inc({ ...cacheLabels, type: kind });
    },
    cacheMiss() {
      cacheRequests.inc(cacheLabels);
      cacheMisses.inc(cacheLabels);
    },
    cacheEvicted: (kind) => cacheEvictions.inc({ ...cacheLabels, type: kind }),
    observeCacheEntries(count) {
      new Gauge({
        name: 'coredns_cache_entries',
        help: 'The number of elements in the cache.',
        labelNames: ['server', 'type', 'zones', 'view'],
        registers: [registry],
        collect() {
          for (const type of ['success', 'denial'] as const) this.set({ ...cacheLabels, type }, count(type));
        },
      });
    },
  };
}

type ForwardMetrics = Omit<DnsMetrics, keyof CacheMetrics | 'served' | 'panicked' | 'dropped' | 'programmed'>;

function createForwardMetrics(
  counter: MakeCounter,
  histogram: MakeHistogram,
  times: number[],
): ForwardMetrics {
  const proxyDuration = histogram(
    'coredns_proxy_request_duration_seconds',
    'Histogram of the time each request took.',
    ['proxy_name', 'to', 'rcode'],
    times,
  );
  const healthFailures = counter(
    'coredns_proxy_healthcheck_failures_total',
    'Counter of the number of failed healthchecks.',
    ['proxy_name', 'to'],
  );
  const healthBroken = counter(
    'coredns_forward_healthcheck_broken_total',
    'Counter of the number of complete failures of the healthchecks.',
    [],
  );
  const rejects = counter(
    'coredns_forward_max_concurrent_rejects_total',
    'Counter of the number of queries rejected because the concurrent queries were at maximum.',
    [],
  );
  return {
    forwarded: (to, rcode, seconds) =>
      proxyDuration.observe({ proxy_name: 'forward', to, rcode: rcodeName(rcode) }, seconds),
    healthCheckFailed: (to) => healthFailures.inc({ proxy_name: 'forward', to }),
    allUpstreamsDown: () => healthBroken.inc(),
    forwardRejected: () => rejects.inc(),
  };
}
