import { readFileSync } from 'node:fs';
import { Counter, collectDefaultMetrics, Gauge, Histogram, type Registry } from 'prom-client';
import type { TransportOptions } from '../kube/transport.ts';

/** The buckets of client-go. */
const DURATIONS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60];
const SIZES = [64, 256, 512, 1024, ...Array.from({ length: 7 }, (_, index) => 4096 * 4 ** index)];

/** prom-client measures the delays of the event loop by a timer that fires this often; 10 ms would be half of an idle agent's work. */
const NEVER_MS = 2 ** 31 - 1;
/** The results of that timer; nodejs_eventloop_lag_seconds is measured by each scrape. */
const LAG_PARTS = ['min', 'max', 'mean', 'stddev', 'p50', 'p90', 'p99'];

/** prom-client counts from the registration, the kernel from the start of the process. */
const PROCESSOR_TIMES = {
  process_cpu_user_seconds_total: ({ user }: NodeJS.CpuUsage) => user,
  process_cpu_system_seconds_total: ({ system }: NodeJS.CpuUsage) => system,
  process_cpu_seconds_total: ({ user, system }: NodeJS.CpuUsage) => user + system,
};

/**
 * Registers process_* and nodejs_*, unless they are registered: call it before each scrape. The modules that they load take 5 ms
 * of a start.
 */
export function registerProcessFigures(registry: Registry): void {
  if (registry.getSingleMetric('process_cpu_seconds_total')) return;
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: NEVER_MS });
  const used = process.cpuUsage();
  for (const [name, microseconds] of Object.entries(PROCESSOR_TIMES)) {
    const counter = registry.getSingleMetric(name);
    if (counter instanceof Counter) counter.inc(microseconds(used) / 1e6);
  }
  for (const part of LAG_PARTS) registry.removeSingleMetric(`nodejs_eventloop_lag_${part}_seconds`);
  registerKernelFigures([registry]);
}

/**
 * Registers the metrics of every Kubernetes component: kubernetes_build_info and rest_client_*. `version` is
 * "v1.36.0+fairlead.0.1.0".
 */
export function createProcessMetrics(
  registry: Registry,
  version: string,
): Required<Pick<TransportOptions, 'onAnswer' | 'onBody'>> {
  const registers = [registry];
  const [major = '', minor = ''] = version.replace(/^v/, '').split('.');
  new Gauge({
    name: 'kubernetes_build_info',
    help: 'The version of this program, as a constant 1',
    labelNames: ['git_version', 'major', 'minor', 'platform', 'compiler', 'go_version'],
    registers,
  }).set(
    {
      git_version: version,
      major,
      minor,
      platform: `linux/${process.arch === 'x64' ? 'amd64' : process.arch}`,
      compiler: 'node',
      go_version: '',
    },
    1,
  );
  const requests = new Counter({
    name: 'rest_client_requests_total',
    help: 'Requests to the API server by HTTP status, method and host',
    labelNames: ['code', 'host', 'method'],
    registers,
  });
  const histogram = (name: string, help: string, buckets: number[]) =>
    new Histogram({ name: `rest_client_${name}`, help, buckets, labelNames: ['verb', 'host'], registers });
  const durations = histogram(
    'request_duration_seconds',
    'Time until the API server began its response',
    DURATIONS,
  );
  const waits = histogram(
    'rate_limiter_duration_seconds',
    'Time for which requests were held back: always 0',
    DURATIONS,
  );
  const sent = histogram('request_size_bytes', 'Size of the bodies of requests', SIZES);
  const received = histogram('response_size_bytes', 'Size of the bodies of responses, except watches', SIZES);
  return {
    onAnswer({ host, method, code, seconds, bytes }) {
      const labels = { verb: method, host };
      requests.inc({ code, host, method });
      waits.observe(labels, 0);
      durations.observe(labels, seconds);
      sent.observe(labels, bytes);
    },
    onBody: ({ host, method }, bytes) => received.observe({ verb: method, host }, bytes),
  };
}

/** Process metrics of client_golang that prom-client lacks. */
function registerKernelFigures(registers: Registry[]): void {
  for (const [name, field, what] of [
    ['receive', 'InOctets', 'received'],
    ['transmit', 'OutOctets', 'sent'],
  ] as const) {
    new Counter({
      name: `process_network_${name}_bytes_total`,
      help: `Bytes ${what} in packets of the network namespace of this process`,
      registers,
      collect() {
        this.reset();
        this.inc(ipCounter(readFileSync('/proc/self/net/netstat', 'utf8'), field));
      },
    });
  }
  new Gauge({
    name: 'process_virtual_memory_max_bytes',
    help: 'Limit of the address space; 2^64 without one',
    registers,
    collect() {
      this.set(addressSpaceLimit(readFileSync('/proc/self/limits', 'utf8')));
    },
  });
}

/** Returns a counter of the lines IpExt of netstat: one with the names, one with the values. */
export function ipCounter(netstat: string, field: string): number {
  const [names = [], values = []] = netstat
    .split('\n')
    .filter((line) => line.startsWith('IpExt:'))
    .map((line) => line.split(' '));
  return Number(values[names.indexOf(field)] ?? 0);
}

/** Returns the soft limit; client_golang reports an absent one as the largest 64-bit number. */
export function addressSpaceLimit(limits: string): number {
  const limit = /^Max address space +(\d+)/m.exec(limits)?.[1];
  return limit === undefined ? 2 ** 64 : Number(limit);
}
