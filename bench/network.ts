/**
 * What pods' network costs between nodes: throughput of one TCP connection, and round trips of small requests, over
 * plain routes and over VXLAN, beside a bare veth pair between two namespaces and beside two pods of one node. Each
 * row is measured in turn with the others, several times; the median is shown. Needs root and iperf3.
 * Run: node bench/network.ts [runs] [seconds] (default 5 runs of 1 second). Results: bench/results/network.md.
 */
import { execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { cpus, release, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createNetns, removeNetns } from '../src/kernel/netns.ts';
import { NodeNetwork } from '../src/network/node-network.ts';
import { openPodNetwork } from '../src/network/pod-network.ts';
import { createTopology, nodeNetns, removeTopology } from '../src/network/topology.ts';

const runs = Number(process.argv[2] ?? 5);
const seconds = Number(process.argv[3] ?? 1);
const median = (values: readonly number[]) =>
  values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
const FAMILIES = ['ipv4', 'ipv6'] as const;
const undo: (() => unknown)[] = [];

const ECHO_ONE = `require('net').createServer((s) => { s.setNoDelay(); s.on('error', () => {}); s.pipe(s); }).listen(7000, '::', () => console.log('up'))`;
const ASK = `const [host, ms] = process.argv.slice(1);
const s = require('net').connect({ host, port: 7000 }); s.setNoDelay(); let n = 0;
s.on('connect', () => s.write('x')); s.on('data', () => { n++; s.write('x'); });
setTimeout(() => { console.log(n * 1000 / ms); process.exit(); }, Number(ms));`;

/** A client's and a server's namespace, and the server's addresses, one per family. */
interface Path {
  readonly name: string;
  readonly mtu: number;
  readonly client: string;
  readonly server: string;
  readonly addresses: readonly string[];
}

try {
  await main();
} finally {
  for (const step of undo.reverse()) await step();
}

async function main(): Promise<void> {
  const paths = [bareVeth(), ...(await pods('routes')), ...(await pods('vxlan'))].filter(
    (path, i, all) => all.findIndex((other) => other.name === path.name) === i,
  );
  const samples = new Map<string, { throughput: number[]; trips: number[] }>();
  for (let run = 0; run < runs; run++) {
    for (const family of FAMILIES) {
      for (const path of paths) {
        const key = `${path.name} ${family}`;
        const sample = samples.get(key) ?? { throughput: [], trips: [] };
        samples.set(key, sample);
        sample.throughput.push(await throughput(path, family));
        sample.trips.push(await roundTrips(path, family));
      }
    }
  }
  const rows = [['path', 'family', 'MTU', 'Gbit/s', 'of veth', 'round trips/s', 'of veth']];
  for (const family of FAMILIES) {
    const of = (path: Path) => samples.get(`${path.name} ${family}`) ?? { throughput: [], trips: [] };
    const [veth] = paths;
    for (const path of paths) {
      const [mine, base] = [of(path), of(veth ?? path)];
      const [rate, trips] = [median(mine.throughput), median(mine.trips)];
      rows.push([
        path.name,
        family,
        String(path.mtu),
        (rate / 1e9).toFixed(1),
        `${Math.round((100 * rate) / median(base.throughput))} %`,
        String(Math.round(trips)),
        `${Math.round((100 * trips) / median(base.trips))} %`,
      ]);
    }
  }
  console.log(`${cpus().length} processors, Linux ${release()}, median of ${runs} runs of ${seconds} s\n`);
  console.log(
    rows
      .map((row) => `| ${row.join(' | ')} |`)
      .toSpliced(1, 0, `|${' --- |'.repeat(7)}`)
      .join('\n'),
  );
}

function netns(): string {
  const name = `flt-${randomBytes(4).toString('hex')}`;
  createNetns(name);
  undo.push(() => removeNetns(name));
  return name;
}

/** Creates a path without a pod network: two namespaces and a pair of devices. */
function bareVeth(): Path {
  const [client, server] = [netns(), netns()];
  const ip = (...args: string[]) => execFileSync('ip', args);
  ip('-n', client, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', server);
  for (const [i, name] of [client, server].entries()) {
    ip('-n', name, 'addr', 'add', `10.0.0.${i + 1}/24`, 'dev', 'eth0');
    ip('-n', name, 'addr', 'add', `fd00::${i + 1}/64`, 'dev', 'eth0', 'nodad');
    ip('-n', name, 'link', 'set', 'eth0', 'up');
  }
  return { name: 'bare veth', mtu: 1500, client, server, addresses: ['10.0.0.2', 'fd00::2'] };
}

/** Creates two nodes on a wire with two pods on the first and one on the second. */
async function pods(overlay: 'routes' | 'vxlan'): Promise<Path[]> {
  const cluster = `flt${randomBytes(3).toString('hex')}`;
  const nodes = [1, 2].map((n) => ({
    name: `node-${n}`,
    addresses: [`172.30.9.1${n}`, `fd00:172:30:9::1${n}`],
  }));
  undo.push(() => removeTopology(cluster));
  createTopology({
    cluster,
    wireCidrs: ['172.30.9.0/24', 'fd00:172:30:9::/64'],
    controlPlaneAddresses: ['172.30.9.1', 'fd00:172:30:9::1'],
    outsideAddresses: ['172.30.9.2', 'fd00:172:30:9::2'],
    nodes,
  });
  const peers = nodes.map((node, i) => ({
    ...node,
    podCidrs: [`10.244.${i}.0/24`, `fd00:10:244:${i}::/64`],
  }));
  const networks = peers.map((peer) => {
    const network = new NodeNetwork({
      node: peer.name,
      addresses: peer.addresses,
      podCidrs: peer.podCidrs,
      overlay,
      netns: nodeNetns(cluster, peer.name),
    });
    undo.push(() => network.close());
    network.syncRoutes(peers);
    return network;
  });
  const [first, second] = networks;
  if (!first || !second) throw new Error('two nodes are needed');
  const stateDirs = networks.map(() => mkdtempSync(join(tmpdir(), 'flt-bench-')));
  for (const folder of stateDirs) undo.push(() => rmSync(folder, { recursive: true }));
  const [here, there] = networks.map((network, i) => {
    const opened = openPodNetwork({ network, stateDir: stateDirs[i] ?? '' });
    undo.push(() => opened.close());
    return opened;
  });
  const start = async (uid: string, on: typeof here) => {
    const sandbox = netns();
    const { ips } = (await on?.attach({ uid, namespace: 'bench', name: uid }, sandbox)) ?? { ips: [] };
    return { sandbox, ips };
  };
  const [client, neighbour, far] = [await start('a', here), await start('b', here), await start('c', there)];
  const path = (name: string, to: { sandbox: string; ips: string[] }): Path => ({
    name,
    mtu: first.mtu,
    client: client.sandbox,
    server: to.sandbox,
    addresses: to.ips,
  });
  return [path('pods of one node', neighbour), path(`pods of two nodes, ${overlay}`, far)];
}

/** Measures the bits per second of one TCP connection. */
async function throughput(path: Path, family: (typeof FAMILIES)[number]): Promise<number> {
  const address = path.addresses[FAMILIES.indexOf(family)] ?? '';
  const server = spawn('ip', ['netns', 'exec', path.server, 'iperf3', '-s', '-1', '--forceflush'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(server.stdout, 'data');
  const command = ['netns', 'exec', path.client, 'iperf3', '-c', address, '-t', String(seconds), '-J'];
  const report = JSON.parse(execFileSync('ip', command, { encoding: 'utf8' })) as {
    end: { sum_received: { bits_per_second: number } };
  };
  if (server.exitCode === null) await once(server, 'exit');
  return report.end.sum_received.bits_per_second;
}

/** Measures the round trips per second of one byte on one connection, one after the other. */
async function roundTrips(path: Path, family: (typeof FAMILIES)[number]): Promise<number> {
  const address = path.addresses[FAMILIES.indexOf(family)] ?? '';
  const server = spawn('ip', ['netns', 'exec', path.server, process.execPath, '-e', ECHO_ONE], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(server.stdout, 'data');
  try {
    const command = [
      'netns',
      'exec',
      path.client,
      process.execPath,
      '-e',
      ASK,
      address,
      String(seconds * 1000),
    ];
    return Number(execFileSync('ip', command, { encoding: 'utf8' }));
  } finally {
    server.kill('SIGKILL');
    await once(server, 'exit');
  }
}
