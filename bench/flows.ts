/**
 * New connections per second through Services with and without `fairlead flows`, in each mode, the processor time that the
 * node's agent spends on it, and the rate at which it begins to show samples: the mode and the sources of flows run in a
 * process of the node's namespace, as in an agent. Client, node and pods are network namespaces made for it; the client opens
 * one connection after the other.
 *
 * node bench/flows.ts [--rounds 5] [--modes nftables,iptables,ipvs,ebpf,userspace]
 *
 * Rounds with and without take turns, and the ratio is the median of the turns', so that other work on the machine touches
 * both.
 */
import { type ChildProcess, execFileSync, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { controlGroupRoot } from '../src/kernel/control-group.ts';
import { inNetns } from '../src/kernel/netns.ts';
import { removeGroup } from './control-group.ts';
import type { WatchedMode, WatcherAnswer, WatcherCommand } from './flows-watcher.ts';
import { clusterIP } from './large-cluster.ts';
import { printTable } from './print-table.ts';
import { type RoutedPods, routePods } from './routed-pods.ts';

const SERVICES = 100;
/** A round without flows takes about this long. */
const ROUND_MS = 1500;
/** Connections by which the length of a round is chosen. */
const FIRST_CONNECTS = 2000;
const PACED_RATES = [500, 1000, 2000, 4000, 8000];
const PACED_SECONDS = 3;
const PACED_STEP_MS = 50;
/** Within this share of a rate, it is reached. */
const REACHED = 0.7;

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    modes: { type: 'string', default: 'nftables,iptables,ipvs,ebpf,userspace' },
  },
});
const ROUNDS = Math.min(200, Number(values.rounds));
const TARGETS = Array.from({ length: SERVICES }, (_, i) => [clusterIP(i), 80] as const);

const median = (list: readonly number[]): number =>
  list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)] ?? Number.NaN;

type Report = Extract<WatcherAnswer, { seconds: number }>;

async function answerOf(watcher: ChildProcess): Promise<Report> {
  const [answer] = (await once(watcher, 'message')) as [WatcherAnswer];
  if ('failure' in answer) throw new Error(answer.failure);
  return answer;
}

/** Tells the watcher what to do; resolves to what it has done since the last command. */
async function tell(watcher: ChildProcess, what: WatcherCommand): Promise<Report> {
  watcher.send(what);
  return await answerOf(watcher);
}

const percent = ({ processorSeconds, seconds }: Report) => (processorSeconds / seconds) * 100;

/** Measures as many connections as the client can open, and returns a row. */
async function measureFull(pods: RoutedPods, watcher: ChildProcess): Promise<string[]> {
  const connect = async (times: number): Promise<number> => {
    const begun = performance.now();
    await pods.ask({ what: 'connect', targets: TARGETS, times });
    return (times * 1000) / (performance.now() - begun);
  };
  await connect(FIRST_CONNECTS);
  const times = Math.round(((await connect(FIRST_CONNECTS)) * ROUND_MS) / 1000);
  const rates = { with: [] as number[], without: [] as number[] };
  const shares = { with: [] as number[], without: [] as number[] };
  let lines = 0;
  for (let round = 0; round < ROUNDS; round++) {
    await tell(watcher, 'reset');
    rates.without.push(await connect(times));
    shares.without.push(percent(await tell(watcher, 'start')));
    rates.with.push(await connect(times));
    const report = await tell(watcher, 'stop');
    shares.with.push(percent(report));
    lines += report.lines;
  }
  const ratio = median(rates.with.map((rate, i) => rate / (rates.without[i] ?? Number.NaN)));
  return [
    median(rates.with).toFixed(0),
    median(rates.without).toFixed(0),
    ratio.toFixed(3),
    `${median(shares.with).toFixed(1)} %`,
    `${median(shares.without).toFixed(1)} %`,
    (lines / (ROUNDS * times)).toFixed(2),
  ];
}

/** Measures the agent's share of a processor at rising rates, until samples are shown. */
async function measurePaced(mode: string, pods: RoutedPods, watcher: ChildProcess): Promise<string[][]> {
  const rows: string[][] = [];
  for (const rate of PACED_RATES) {
    // The kernel reports the end of tracked connections later, also of those of an earlier rate.
    execFileSync('ip', ['netns', 'exec', pods.node, 'conntrack', '-F'], { stdio: 'ignore' });
    await tell(watcher, 'start');
    const begun = performance.now();
    let next = begun + PACED_STEP_MS;
    const steps = (PACED_SECONDS * 1000) / PACED_STEP_MS;
    for (let i = 0; i < steps; i++) {
      await pods.ask({ what: 'connect', targets: TARGETS, times: (rate * PACED_STEP_MS) / 1000 });
      // A pause of the machine is not made up for: that would be a burst, of which samples are shown.
      await sleep(Math.max(0, next - performance.now()));
      next = Math.max(next, performance.now() - 2) + PACED_STEP_MS;
    }
    const reached = (rate * PACED_SECONDS * 1000) / (performance.now() - begun);
    const report = await tell(watcher, 'stop');
    if (reached < rate * REACHED) break;
    const sampled = report.notices
      .filter((text) => /too many/.test(text))
      .map((text) => /1 in \d+/.exec(text)?.[0]);
    rows.push([
      `${mode}, ${reached.toFixed(0)}/s`,
      `${percent(report).toFixed(1)} %`,
      (report.lines / (rate * PACED_SECONDS)).toFixed(2),
      sampled.length === 0 ? 'all' : (sampled.at(-1) ?? ''),
    ]);
  }
  return rows;
}

async function measureMode(mode: WatchedMode['mode']): Promise<{ full: string[]; paced: string[][] }> {
  const name = `flb-${process.pid}-${mode.slice(0, 4)}`;
  const group = join(controlGroupRoot() ?? '/sys/fs/cgroup', name);
  mkdirSync(group);
  const pods = await routePods(name, '192.168.0.1', group);
  const wanted: WatchedMode = {
    mode,
    netns: pods.node,
    group,
    pinPath: `/run/${name}-bpf`,
    services: SERVICES,
  };
  const watcher = inNetns(pods.node, () =>
    fork(join(import.meta.dirname, 'flows-watcher.ts'), [JSON.stringify(wanted)]),
  );
  const ended = once(watcher, 'exit');
  try {
    await answerOf(watcher);
    const full = await measureFull(pods, watcher);
    const paced = await measurePaced(mode, pods, watcher);
    await tell(watcher, 'end');
    return { full, paced };
  } finally {
    await Promise.race([ended, sleep(2000)]);
    watcher.kill('SIGKILL');
    await pods.close();
    await removeGroup(group);
  }
}

console.log(`node ${process.version}, ${cpus().length} x ${cpus()[0]?.model}; medians of ${ROUNDS} rounds`);
const full = [
  ['as fast as one client can', 'with flows', 'without', 'ratio', 'agent', 'without', 'lines/connection'],
];
const paced = [['at a rate', 'agent', 'lines/connection', 'shown']];
for (const mode of values.modes.split(',') as WatchedMode['mode'][]) {
  try {
    const measured = await measureMode(mode);
    full.push([mode, ...measured.full]);
    paced.push(...measured.paced);
  } catch (error) {
    full.push([mode, `not here: ${(error as Error).message.slice(0, 80)}`]);
  }
}
printTable(full);
console.log('');
printTable(paced);
