/**
 * New connections per second through a Service with and without `fairlead flows`, and the processor time that the node's
 * agent spends on it: the sources of flows run in a process of the node's namespace, as in an agent. Client, node and pods are
 * network namespaces made for it; the client opens one connection after the other, as fast as it can.
 *
 * node bench/flows.ts [--rounds 15]
 *
 * Rounds with and without take turns within a second, and the ratio is the median of the turns', so that other work on the
 * machine touches both.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { createNftables } from '../src/dataplane/nftables/nftables.ts';
import { inNetns } from '../src/kernel/netns.ts';
import type { FlowsReport } from './flows-watcher.ts';
import { clusterIP, largeClusterTable } from './large-cluster.ts';
import { printTable } from './print-table.ts';
import { routePods } from './routed-pods.ts';

const SERVICES = 100;
const CONNECTS = 40_000;
const PACED_BATCH = 100;
const PACED_MS = 100;
const PACED_BATCHES = 50;

const { values } = parseArgs({ options: { rounds: { type: 'string', default: '15' } } });
const ROUNDS = Math.min(200, Number(values.rounds));

const median = (list: readonly number[]): number =>
  list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)] ?? Number.NaN;

/** Asks the watcher to start or stop; resolves to what it has done since it started. */
async function tell(watcher: ChildProcess, what: 'start' | 'stop'): Promise<FlowsReport> {
  watcher.send(what);
  const [report] = await once(watcher, 'message');
  return report as FlowsReport;
}

const pods = await routePods(`flb-${process.pid}`, '192.168.0.1', null);
const table = largeClusterTable(SERVICES, 1);
const dataplane = createNftables({ families: ['ipv4'], netns: pods.node });
const watcher = inNetns(pods.node, () => fork(join(import.meta.dirname, 'flows-watcher.ts')));
try {
  await dataplane.sync(table.commit().map);
  const targets = Array.from({ length: SERVICES }, (_, i) => [clusterIP(i), 80] as const);
  const rates = { with: [] as number[], without: [] as number[] };
  const shares: number[] = [];
  const counts = { connections: 0, lines: 0, notices: new Set<string>() };
  const measure = async () => {
    const begun = performance.now();
    await pods.ask({ what: 'connect', targets, times: CONNECTS });
    return (CONNECTS * 1000) / (performance.now() - begun);
  };
  for (let round = -1; round < ROUNDS; round++) {
    const without = await measure();
    await tell(watcher, 'start');
    const rate = await measure();
    const report = await tell(watcher, 'stop');
    if (round < 0) continue;
    rates.without.push(without);
    rates.with.push(rate);
    shares.push(report.processorSeconds / report.seconds);
    counts.connections += CONNECTS;
    counts.lines += report.lines;
    for (const notice of report.notices) counts.notices.add(notice);
  }
  await tell(watcher, 'start');
  const begun = performance.now();
  for (let i = 0; i < PACED_BATCHES; i++) {
    await pods.ask({ what: 'connect', targets, times: PACED_BATCH });
    await sleep(Math.max(0, begun + (i + 1) * PACED_MS - performance.now()));
  }
  const paced = await tell(watcher, 'stop');
  console.log(
    `node ${process.version}, ${cpus().length} x ${cpus()[0]?.model}; nftables mode, medians of ${ROUNDS} rounds`,
  );
  const ratio = median(rates.with.map((rate, i) => rate / (rates.without[i] ?? Number.NaN)));
  printTable([
    ['', 'with flows', 'without', 'ratio', 'of one processor', 'lines per connection'],
    [
      'connections/s, one client',
      median(rates.with).toFixed(0),
      median(rates.without).toFixed(0),
      ratio.toFixed(3),
      `${(median(shares) * 100).toFixed(1)} %`,
      (counts.lines / counts.connections).toFixed(2),
    ],
    [
      'the same at 1,000/s',
      '1000',
      '',
      '',
      `${((paced.processorSeconds / paced.seconds) * 100).toFixed(1)} %`,
      (paced.lines / (PACED_BATCHES * PACED_BATCH)).toFixed(2),
    ],
  ]);
  for (const notice of counts.notices) console.log(`notice: ${notice}`);
} finally {
  watcher.kill('SIGKILL');
  await dataplane.remove();
  await dataplane.close();
  await pods.close();
}
