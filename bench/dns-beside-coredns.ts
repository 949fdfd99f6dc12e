/**
 * Latency of the cluster's DNS and of CoreDNS, side by side on a busy machine: 2,000 queries per second over UDP, by
 * dnsperf, while other processes use every processor. Rounds alternate between the two servers.
 *
 *   node bench/dns-beside-coredns.ts COREDNS [BUSY PROCESSES] [ROUNDS]
 *
 * COREDNS: a binary with the plugins file and errors, which serves the same 1,000 names from a zone file.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { processorTime } from './process-usage.ts';

const NAMES = 1000;
const PER_SECOND = 2000;
const SECONDS = 4;
const PORTS = { fairlead: 5301, coredns: 5302 } as const;
type Server = keyof typeof PORTS;

const [
  program = assert.fail('name a CoreDNS binary'),
  busy = String(availableParallelism() * 3),
  rounds = '5',
] = process.argv.slice(2);
const run = promisify(execFile);
const folder = mkdtempSync(join(tmpdir(), 'fairlead-bench-'));
const file = (name: string, lines: readonly string[]) => {
  const path = join(folder, name);
  writeFileSync(path, `${lines.join('\n')}\n`);
  return path;
};
const names = Array.from({ length: NAMES }, (_, i) => `service-${i}.team.svc`);
const address = (i: number) => `11.0.${i >> 8}.${i & 255}`;
const queries = file(
  'queries',
  names.map((name) => `${name}.cluster.local A`),
);
const zone = file('zone', [
  '$ORIGIN cluster.local.',
  '@ 5 IN SOA ns.dns hostmaster 1 7200 1800 86400 5',
  '@ 5 IN NS ns.dns',
  ...names.map((name, i) => `${name} 5 IN A ${address(i)}`),
]);
const corefile = file('Corefile', [`cluster.local:${PORTS.coredns} {`, `  file ${zone}`, '  errors', '}']);

/** A name server in a process of its own, as in an agent. */
const OWN = `
const { createDnsMetrics } = await import(${JSON.stringify(import.meta.resolve('../src/dns/metrics.ts'))});
const { startDnsServer } = await import(${JSON.stringify(import.meta.resolve('../src/dns/server.ts'))});
const { createZone } = await import(${JSON.stringify(import.meta.resolve('../src/dns/zone.ts'))});
const { createForwarder } = await import(${JSON.stringify(import.meta.resolve('../src/dns/forwarder.ts'))});
const { silentLogger } = await import(${JSON.stringify(import.meta.resolve('../src/lib/log.ts'))});
const { Registry } = await import(${JSON.stringify(import.meta.resolve('prom-client'))});
const zone = createZone({ reverseCidrs: [] });
for (let i = 0; i < ${NAMES}; i++)
  zone.setService({
    metadata: { name: 'service-' + i, namespace: 'team' },
    spec: { clusterIP: '11.0.' + (i >> 8) + '.' + (i & 255), ports: [{ name: 'http', protocol: 'TCP', port: 80 }] },
  });
zone.setSynced(true);
const metrics = createDnsMetrics(new Registry());
const listeners = [{ address: '127.0.0.1', port: ${PORTS.fairlead} }];
await startDnsServer({ listeners, zone, forwarder: createForwarder({ upstreams: [], metrics }), metrics, logger: silentLogger });
`;

/** Returns the processor time of a process in milliseconds. */
const processorMs = ({ pid }: ChildProcess): number => processorTime(pid ?? 0) * 1000;

const servers: Record<Server, ChildProcess> = {
  fairlead: spawn(process.execPath, ['--input-type=module', '-e', OWN], {
    stdio: ['ignore', 'ignore', 'inherit'],
  }),
  coredns: spawn(program, ['-conf', corefile, '-quiet'], { stdio: ['ignore', 'ignore', 'inherit'] }),
};
const loops: ChildProcess[] = [];
try {
  for (const port of Object.values(PORTS))
    await run('dnsperf', ['-s', '127.0.0.1', '-p', String(port), '-d', queries, '-l', '2', '-Q', '500']);
  for (let i = 0; i < Number(busy); i++)
    loops.push(spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }));
  console.log(`${busy} busy processes, ${availableParallelism()} processors, ${PER_SECOND} queries/s\n`);
  console.log(
    '| round | fairlead mean ms | CoreDNS mean ms | ratio | fairlead CPU µs | CoreDNS CPU µs | lost |',
  );
  console.log('| ---: | ---: | ---: | ---: | ---: | ---: | ---: |');
  const sums = { fairlead: 0, coredns: 0 };
  for (let round = 1; round <= Number(rounds); round++) {
    const mean = { fairlead: 0, coredns: 0 };
    const cost = { fairlead: 0, coredns: 0 };
    let lost = 0;
    // Alternating order: what else the machine does affects both.
    const order: readonly Server[] = round % 2 ? ['fairlead', 'coredns'] : ['coredns', 'fairlead'];
    for (const server of order) {
      const started = processorMs(servers[server]);
      const { stdout } = await run('dnsperf', [
        ...['-s', '127.0.0.1', '-p', String(PORTS[server]), '-d', queries],
        ...['-c', '4', '-l', String(SECONDS), '-Q', String(PER_SECOND)],
      ]);
      const completed = Number(/Queries completed:\s+(\d+)/.exec(stdout)?.[1]);
      mean[server] = Number(/Average Latency \(s\):\s+([0-9.]+)/.exec(stdout)?.[1]) * 1000;
      cost[server] = ((processorMs(servers[server]) - started) * 1000) / completed;
      lost += Number(/Queries lost:\s+(\d+)/.exec(stdout)?.[1]);
    }
    sums.fairlead += mean.fairlead;
    sums.coredns += mean.coredns;
    const cells = [
      mean.fairlead.toFixed(3),
      mean.coredns.toFixed(3),
      (mean.fairlead / mean.coredns).toFixed(2),
    ];
    console.log(
      `| ${[round, ...cells, cost.fairlead.toFixed(0), cost.coredns.toFixed(0), lost].join(' | ')} |`,
    );
  }
  console.log(`\nall rounds: ratio of the means ${(sums.fairlead / sums.coredns).toFixed(2)}`);
} finally {
  for (const child of [...Object.values(servers), ...loops]) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
}
