/**
 * Queries per second and latency of the cluster's DNS on loopback, by dnsperf: cluster names with 10k Services and
 * 50k endpoints in memory, cached outside names, UDP and TCP. Run: node bench/dns.ts [seconds per row].
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Registry } from 'prom-client';
import { createForwarder } from '../src/dns/forwarder.ts';
import { CLASS_IN, emptyAnswer, TYPE } from '../src/dns/message.ts';
import { createDnsMetrics } from '../src/dns/metrics.ts';
import { createResolver } from '../src/dns/resolver.ts';
import { createResponder } from '../src/dns/responder.ts';
import { startDnsServer } from '../src/dns/server.ts';
import { malformedPackets } from '../src/dns/testing/malformed.ts';
import { startUpstream } from '../src/dns/testing/upstream.ts';
import { createZone, type Zone } from '../src/dns/zone.ts';
import { silentLogger } from '../src/lib/log.ts';

const SERVICES = 10_000;
const ENDPOINTS_PER_SERVICE = 5;
const seconds = Math.min(30, Number(process.argv[2] ?? 3));
const run = promisify(execFile);

const address = (base: number, i: number) => `${base}.${(i >> 16) & 255}.${(i >> 8) & 255}.${i & 255}`;

function fill(zone: Zone): void {
  for (let i = 0; i < SERVICES; i++) {
    const metadata = { name: `service-${i}`, namespace: `team-${i % 50}` };
    const headless = i % 10 === 0;
    const ports = [{ name: 'http', protocol: 'TCP', port: 80 }];
    zone.setService({ metadata, spec: { clusterIP: headless ? 'None' : address(11, i), ports } });
    zone.setSlice({
      metadata: {
        name: `${metadata.name}-a`,
        namespace: metadata.namespace,
        labels: { 'kubernetes.io/service-name': metadata.name },
      },
      addressType: 'IPv4',
      endpoints: Array.from({ length: ENDPOINTS_PER_SERVICE }, (_, e) => ({
        addresses: [address(12, i * ENDPOINTS_PER_SERVICE + e)],
        conditions: { ready: true },
      })),
      ports,
    });
  }
  zone.setSynced(true);
}

const heap = () => {
  globalThis.gc?.();
  return process.memoryUsage().heapUsed;
};
const before = heap();
const zone = createZone({ reverseCidrs: ['11.0.0.0/8', '12.0.0.0/8'] });
const filling = performance.now();
fill(zone);
console.log(
  `${SERVICES} Services, ${SERVICES * ENDPOINTS_PER_SERVICE} endpoints: filled in ${(performance.now() - filling).toFixed(0)} ms, ` +
    `${((heap() - before) / 2 ** 20).toFixed(1)} MiB heap with the slice objects themselves${globalThis.gc ? '' : ' (before collection; run with --expose-gc)'}`,
);

const upstream = await startUpstream(({ question }) => ({
  ...emptyAnswer(0),
  answers: [
    { name: question.name, type: TYPE.A, class: CLASS_IN, ttl: 300, data: Uint8Array.of(192, 0, 2, 1) },
  ],
}));
const metrics = createDnsMetrics(new Registry());
const forwarder = createForwarder({ upstreams: [upstream.address], metrics });
const server = await startDnsServer({
  listeners: [{ address: '127.0.0.1', port: 0 }],
  zone,
  forwarder,
  metrics,
  logger: silentLogger,
  // All clients have one address here: they are not to share what one pod may ask.
  share: { perSecond: 1e7, burst: 1e7 },
});
const port = String(server.addresses[0]?.port);
const folder = mkdtempSync(join(tmpdir(), 'fairlead-bench-'));

const workloads: Record<string, string[]> = {
  'cluster IP, A': names((i) => `service-${i * 10 + 1}.team-${(i * 10 + 1) % 50}.svc.cluster.local A`),
  'headless of 5, A': names((i) => `service-${i * 10}.team-${(i * 10) % 50}.svc.cluster.local A`),
  SRV: names((i) => `_http._tcp.service-${i * 10 + 1}.team-${(i * 10 + 1) % 50}.svc.cluster.local SRV`),
  'NXDOMAIN of a search path': names((i) => `www${i}.example.com.shop.svc.cluster.local A`),
  'outside, cached': names((i) => `www${i}.example.com A`),
};

function names(name: (i: number) => string): string[] {
  return Array.from({ length: 1000 }, (_, i) => name(i));
}

/** The cost of a process of this name server: processor time per query, and the latency of clients. */
interface Row {
  readonly what: string;
  readonly over: string;
  readonly perSecond: number;
  readonly microseconds: number;
  readonly lost: string;
  readonly p50: string;
  readonly p99: string;
}

async function measure(what: string, over: string, lines: readonly string[]): Promise<Row> {
  const file = join(folder, 'queries');
  writeFileSync(file, `${lines.join('\n')}\n`);
  const base = ['-s', '127.0.0.1', '-p', port, '-m', over, '-d', file, '-c', '4', '-l', String(seconds)];
  const idle = process.cpuUsage();
  const full = await run('dnsperf', [...base, '-q', '200']);
  const used = process.cpuUsage(idle);
  const paced = await run('dnsperf', [...base, '-Q', '3000', '-v'], { maxBuffer: 1 << 28 });
  const times = paced.stdout
    .split('\n')
    .filter((line) => line.startsWith('> '))
    .map((line) => Number(line.split(' ').at(-1)) * 1000)
    .sort((a, b) => a - b);
  const at = (quantile: number) => (times[Math.floor(times.length * quantile)] ?? 0).toFixed(3);
  const completed = Number(/Queries completed:\s+(\d+)/.exec(full.stdout)?.[1]);
  return {
    what,
    over,
    perSecond: Math.round(Number(/per second:\s+([0-9.]+)/.exec(full.stdout)?.[1])),
    microseconds: (used.user + used.system) / completed,
    lost: /Queries lost:\s+(\d+)/.exec(full.stdout)?.[1] ?? '?',
    p50: at(0.5),
    p99: at(0.99),
  };
}

/** Passes invalid packets directly to the server's answering function: none may throw or leak memory. */
function measureMalformed(count: number): void {
  const respond = createResponder({
    resolve: createResolver(zone, null),
    offersRecursion: () => false,
    domain: zone.domain,
    metrics: createDnsMetrics(new Registry()),
    logger: { ...silentLogger, error: (_, message) => assert.fail(message) },
  });
  const packets = malformedPackets(1);
  for (let i = 0; i < 50_000; i++) respond(packets(), 'udp', 'ipv4', 0);
  const start = heap();
  const started = performance.now();
  for (let i = 0; i < count; i++) respond(packets(), 'udp', 'ipv4', 0);
  const took = (performance.now() - started) / 1000;
  const grown = (heap() - start) / 2 ** 20;
  console.log(
    `\n${count} malformed packets: ${((took * 1e6) / count).toFixed(1)} µs each (making them included), no exception, ` +
      `${grown.toFixed(1)} MiB more heap`,
  );
}

try {
  const rows: Row[] = [];
  for (const [what, lines] of Object.entries(workloads)) {
    for (const over of ['udp', 'tcp']) rows.push(await measure(what, over, lines));
  }
  const titles = [
    'question',
    'over',
    'queries/s',
    'CPU µs each',
    'lost',
    'p50 ms at 3000/s',
    'p99 ms at 3000/s',
  ];
  console.log(
    `\n| ${titles.join(' | ')} |\n|${titles.map((_, i) => (i < 2 ? ' --- ' : ' ---: ')).join('|')}|`,
  );
  for (const { what, over, perSecond, microseconds, lost, p50, p99 } of rows)
    console.log(`| ${[what, over, perSecond, microseconds.toFixed(1), lost, p50, p99].join(' | ')} |`);
  measureMalformed(1_000_000);
} finally {
  rmSync(folder, { recursive: true });
  await server.close();
  forwarder.close();
  await upstream.close();
}
