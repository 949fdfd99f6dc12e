/**
 * One of four endpoints dies (its address goes, or its port is closed) under 800 new connections a second: how many
 * fail, how many are slow, with failover and without; and how slow they are where nothing dies, which is the machine's
 * own share. Run as root:
 *   node bench/failover.ts [MODE…] [--rate N] [--from pod1|node]
 *   node bench/failover.ts [MODE…] --soak MINUTES     healthy endpoints on a loaded machine: none may be ejected;
 *                                                     so long for each mode; with --rate at that rate, otherwise
 *                                                     as many connections as 64 clients manage
 */
import { type ChildProcess, fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, Socket } from 'node:net';
import { constants, cpus, loadavg, setPriority } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { Dataplane } from '../src/dataplane/dataplane.ts';
import { attachSynTimeout } from '../src/dataplane/ebpf/syn-timeout.ts';
import {
  CLUSTER_IP,
  createFailoverScene,
  PORT,
  SERVICE_NETWORKS,
} from '../src/dataplane/testing/failover-scene.ts';
import { createTopology, type Place } from '../src/dataplane/testing/topology.ts';
import type { Outcome } from '../src/failover/outcome.ts';
import { listenTcpIn, openTcpIn } from '../src/kernel/netns.ts';
import type { IPFamily } from '../src/lib/address.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
const ENDPOINTS: readonly Place[] = ['pod2', 'pod3', 'far', 'outside'];
const VICTIM: Place = 'pod2';
const TARGET = 8080;
/** A second before the failure, and four after. */
const BEFORE_MS = 1000;
const LOAD_MS = 5000;
const PATIENCE_MS = 10_000;
/** A user notices a connection slower than this. */
const SLOW_MS = 250;
const MAX_PER_SECOND = 2000;
/** The columns of watchMachine(): of the machine's processors, and its mean and maximum load. */
const BUSY = ['busy', 'load', 'most'];

interface Settings {
  readonly netns: string;
  readonly failover: boolean;
  readonly onOutcome: (outcome: Outcome) => void;
  readonly cgroup: string;
  readonly pinPath: string;
}

const MODES: Readonly<Record<string, (settings: Settings) => Promise<Dataplane>>> = {
  nftables: async ({ netns }) =>
    (await import('../src/dataplane/nftables/nftables.ts')).createNftables({ families: FAMILIES, netns }),
  iptables: async ({ netns }) =>
    (await import('../src/dataplane/iptables/iptables.ts')).createIptables({ families: FAMILIES, netns }),
  userspace: async ({ netns, onOutcome }) =>
    (await import('../src/dataplane/userspace/userspace.ts')).createUserspace({
      families: FAMILIES,
      netns,
      onOutcome,
    }),
  ipvs: async ({ netns }) =>
    (await import('../src/dataplane/ipvs/ipvs.ts')).createIpvs({ families: FAMILIES, netns }),
  ebpf: async (settings) =>
    (await import('../src/dataplane/testing/open-ebpf.ts')).openEbpf({ families: FAMILIES, ...settings }),
};

const DEATHS = ['none', 'address gone', 'port closed'] as const;

interface Connection {
  /** Milliseconds since 1970. */
  readonly at: number;
  /** Milliseconds until the answer's first byte. */
  readonly ms: number;
  /** Something accepted it: the endpoint's kernel, or the proxy. */
  readonly connected: boolean;
  readonly failure: string | null;
}

const [role, ...words] = process.argv.slice(2);
if (role === 'child-serve') serve(words[0] ?? '');
else if (role === 'child-load') await load(words);
else if (role === 'child-burn') for (;;);
else await main();

async function main(): Promise<void> {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: {
      rate: { type: 'string' },
      from: { type: 'string', default: 'pod1' },
      soak: { type: 'string' },
    },
  });
  const from = values.from === 'node' ? 'node' : 'pod1';
  const modes = positionals.length > 0 ? positionals : ['nftables', 'iptables', 'userspace', 'ebpf'];
  const rate = Math.min(MAX_PER_SECOND, Number(values.rate ?? 800));
  if (values.soak !== undefined) {
    const minutes = Number(values.soak);
    console.log(`${minutes} minutes of load for each mode, healthy endpoints, alongside two busy loops\n`);
    printSoak(['mode', 'connections', 'a second', 'failed', 'max ms', 'ejected', 'unanswered', ...BUSY]);
    const how = (ms: number) =>
      values.rate === undefined ? ['closed', '64', String(ms)] : ['paced', String(rate), String(ms)];
    for (const mode of modes) printSoak([mode, ...(await soak(mode, how(minutes * 60_000)))]);
    return;
  }
  console.log(
    `${rate} new connections a second from ${from}; one of four endpoints dies after one of five seconds`,
  );
  console.log('cut off: the endpoint had accepted them when it died\n');
  print([
    'mode',
    'death',
    'failover',
    'count',
    'failed',
    'cut off',
    'slow',
    'slow after 1 s',
    'median ms',
    'max ms',
  ]);
  for (const mode of modes) {
    for (const death of DEATHS) {
      // The userspace mode dials the next endpoint in any case.
      for (const failover of mode === 'userspace' || death === 'none' ? [true] : [true, false])
        print([mode, death, ...(await measure(mode, death, failover, { rate, from }))]);
    }
  }
}

async function measure(
  mode: string,
  death: (typeof DEATHS)[number],
  failover: boolean,
  { rate, from }: { readonly rate: number; readonly from: Place },
): Promise<string[]> {
  await using stage = await setUp(mode, failover, from);
  const { scene, servers } = stage;
  const { done } = await stage.load(['paced', String(rate), String(LOAD_MS)]);
  await pause(BEFORE_MS);
  if (death === 'address gone') scene.vanish(VICTIM);
  const victim = servers.get(VICTIM);
  if (death === 'port closed' && victim) {
    victim.kill('SIGKILL');
    await once(victim, 'exit');
  }
  const diedAt = Date.now();
  const connections = await done;
  const cutOff = connections.filter((one) => wasCutOff(one, diedAt));
  const others = connections.filter((one) => !wasCutOff(one, diedAt));
  const failed = others.filter((one) => one.failure);
  const slow = others.filter((one) => one.failure || one.ms > SLOW_MS);
  const times = others.map(({ ms }) => ms).sort((a, b) => a - b);
  const kinds = Object.entries(Object.groupBy(failed, ({ failure }) => failure ?? ''))
    .map(([kind, list]) => `${list?.length} ${kind}`)
    .join(', ');
  return [
    failover ? 'yes' : 'no',
    String(connections.length),
    failed.length === 0 ? '0' : kinds,
    String(cutOff.length),
    String(slow.length),
    String(slow.filter(({ at }) => at >= diedAt + 1000).length),
    (times[times.length >> 1] ?? 0).toFixed(1),
    (times.at(-1) ?? 0).toFixed(0),
  ];
}

/**
 * Returns true if a connection was lost because its server died after it had been accepted. The kernel resets a dead
 * process's connections, including those that it has accepted for it. A reset is ECONNRESET for an established connection
 * and ECONNREFUSED otherwise (tcp_reset() in the kernel).
 */
function wasCutOff({ failure, connected, at }: Connection, diedAt: number): boolean {
  return (failure === 'ECONNRESET' || (failure === 'silence' && connected)) && at <= diedAt;
}

async function soak(mode: string, how: string[]): Promise<string[]> {
  await using stage = await setUp(mode, true, 'pod1');
  // At the lowest priority: the machine is never idle, but other processes are not slowed down.
  const burners = [1, 2].map(() => fork(import.meta.filename, ['child-burn']));
  for (const { pid = 0 } of burners) setPriority(pid, constants.priority.PRIORITY_LOW);
  const machine = watchMachine();
  try {
    const ms = Number(how[2]);
    const connections = await (await stage.load(how)).done;
    const failed = connections.filter((one) => one.failure).length;
    const longest = connections.reduce((most, one) => Math.max(most, one.ms), 0);
    const ejected = stage.scene.verdicts.filter(({ kind }) => kind === 'ejected').length;
    return [
      String(connections.length),
      (connections.length / (ms / 1000)).toFixed(0),
      String(failed),
      longest.toFixed(0),
      String(ejected),
      String(stage.scene.unanswered),
      ...machine(),
    ];
  } finally {
    machine();
    for (const burner of burners) burner.kill('SIGKILL');
  }
}

/**
 * Measures until the result is called: the share of time that the machine's processors were busy, its mean
 * and its maximum load.
 */
function watchMachine(): () => string[] {
  const ticks = () => {
    let idle = 0;
    let all = 0;
    for (const { times } of cpus()) {
      idle += times.idle;
      all += times.idle + times.user + times.nice + times.sys + times.irq;
    }
    return { idle, all };
  };
  const before = ticks();
  const loads: number[] = [];
  const sampling = setInterval(() => loads.push(loadavg()[0] ?? 0), 5000);
  return () => {
    clearInterval(sampling);
    const after = ticks();
    const busy = 1 - (after.idle - before.idle) / Math.max(1, after.all - before.all);
    const mean = loads.reduce((sum, load) => sum + load, 0) / Math.max(1, loads.length);
    return [`${(busy * 100).toFixed(0)} %`, mean.toFixed(1), Math.max(0, ...loads).toFixed(1)];
  };
}

/** Creates a topology with servers in separate processes, programmed by a mode. */
async function setUp(mode: string, failover: boolean, from: Place) {
  const topology = createTopology();
  const name = `flt-${randomBytes(3).toString('hex')}`;
  const { makeTestGroup, removeTestGroup } = await import('../src/dataplane/ebpf/testing/client.ts');
  const cgroup = makeTestGroup();
  const children = new Set<ChildProcess>();
  const start = async (...args: string[]) => {
    const child = fork(import.meta.filename, args);
    children.add(child);
    await once(child, 'message');
    return child;
  };
  let report: (outcome: Outcome) => void = () => {};
  const open = MODES[mode];
  if (!open) throw new Error(`no mode ${mode}; there are ${Object.keys(MODES).join(', ')}`);
  const dataplane = await open({
    netns: topology.namespace('node'),
    failover,
    onOutcome: (outcome) => report(outcome),
    cgroup,
    pinPath: `/run/${name}-bpf`,
  });
  const tracked = mode !== 'userspace' && mode !== 'ebpf';
  // As the agent does in these modes.
  const timers = failover && tracked ? attachSynTimeout(cgroup, SERVICE_NETWORKS) : null;
  const scene = await createFailoverScene(topology, dataplane, {
    failover,
    tracked: mode !== 'userspace',
    shortTimers: () => timers,
  });
  report = (outcome) => scene.failover?.report(outcome);
  const servers = new Map<Place, ChildProcess>();
  for (const place of ENDPOINTS) servers.set(place, await start('child-serve', topology.namespace(place)));
  await scene.setEndpoints(ENDPOINTS);
  return {
    scene,
    servers,
    /** Begins the load in a separate process; `done` resolves to all its connections. */
    async load(how: string[]): Promise<{ readonly done: Promise<Connection[]> }> {
      const child = await start('child-load', topology.namespace(from), ...how);
      writeFileSync(join(cgroup, 'cgroup.procs'), String(child.pid));
      const connections: Connection[] = [];
      child.on('message', (part: Connection[]) => connections.push(...part));
      child.send('go');
      const ended = once(child, 'exit').then(() => {
        children.delete(child);
        return connections;
      });
      return { done: ended };
    },
    async [Symbol.asyncDispose]() {
      for (const child of children) child.kill('SIGKILL');
      await scene.close();
      timers?.close();
      await dataplane.remove();
      await dataplane.close();
      topology.close();
      await removeTestGroup(cgroup);
    },
  };
}

function serve(netns: string): void {
  for (const wildcard of ['0.0.0.0', '::']) {
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.end('.');
    });
    server.listen({ fd: listenTcpIn(netns, wildcard, TARGET) });
  }
  process.send?.('ready');
  process.on('disconnect', () => process.exit(0));
}

async function load([netns = '', how, amount, duration]: string[]): Promise<void> {
  process.send?.('ready');
  await once(process, 'message');
  const until = Date.now() + Number(duration);
  const done: Connection[] = [];
  const flush = () => process.send?.(done.splice(0));
  const flushing = setInterval(flush, 1000);
  const one = async () => done.push(await connect(netns));
  if (how === 'paced') {
    const started = performance.now();
    const all: Promise<unknown>[] = [];
    while (Date.now() < until) {
      const due = ((performance.now() - started) * Number(amount)) / 1000;
      while (all.length < due) all.push(one());
      await pause(1);
    }
    await Promise.all(all);
  } else {
    const worker = async () => {
      while (Date.now() < until) await one();
    };
    await Promise.all(Array.from({ length: Number(amount) }, worker));
  }
  clearInterval(flushing);
  process.send?.(done, () => process.exit(0));
}

function connect(netns: string): Promise<Connection> {
  return new Promise((resolve) => {
    const at = Date.now();
    const began = performance.now();
    const socket = new Socket({ fd: openTcpIn(netns, 'ipv4') });
    let connected = false;
    const finish = (failure: string | null) => {
      clearTimeout(timer);
      // A reset leaves no TIME_WAIT: ports would run out.
      socket.resetAndDestroy();
      resolve({ at, ms: performance.now() - began, connected, failure });
    };
    const timer = setTimeout(() => finish('silence'), PATIENCE_MS);
    socket.on('connect', () => {
      connected = true;
    });
    socket.on('data', () => finish(null));
    socket.on('error', (error: NodeJS.ErrnoException) => finish(error.code ?? 'error'));
    socket.connect(PORT, CLUSTER_IP.ipv4);
  });
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function printSoak(cells: readonly string[]): void {
  console.log(
    cells
      .map((cell) => cell.padEnd(11))
      .join(' ')
      .trimEnd(),
  );
}

function print(cells: readonly string[]): void {
  const widths = [10, 13, 9, 7, 22, 8, 6, 15, 10, 7];
  console.log(
    cells
      .map((cell, i) => cell.padEnd(widths[i] ?? 12))
      .join(' ')
      .trimEnd(),
  );
}
