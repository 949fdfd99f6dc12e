/**
 * How long programming takes, and what it keeps: N Services with 10 endpoints each, in a network namespace made for
 * it. Fairlead's nftables and iptables modes, and IPVS where the kernel has it; the map elements of the nftables mode
 * alone, which is the least that its design can take; and kube-proxy's layouts (a chain per Service and per endpoint)
 * by `nft -f` and `iptables-restore`.
 *
 * node bench/programming.ts [--services 1000,10000,30000] [--only SUBJECT,…] [--slow-up-to 1000]
 * tests/vm/run-in-vm --kernel uml-6.12 -- node bench/programming.ts --only nftables,ipvs
 *
 * Subjects whose cold start takes seconds to minutes run up to `--slow-up-to` Services only.
 */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { parseArgs } from 'node:util';
import type { Dataplane } from '../src/dataplane/dataplane.ts';
import { createIptables } from '../src/dataplane/iptables/iptables.ts';
import { createIpvs } from '../src/dataplane/ipvs/ipvs.ts';
import { createNftables } from '../src/dataplane/nftables/nftables.ts';
import { createNetns, removeNetns } from '../src/kernel/netns.ts';
import { NftConnection } from '../src/kernel/nftables/connection.ts';
import { DATA_TYPE, NFPROTO } from '../src/kernel/nftables/constants.ts';
import { createServiceTable } from '../src/service/service-table.ts';
import { network, testNode } from '../src/service/testing/test-node.ts';
import { ebpfMaps, ebpfMode } from './ebpf-maps.ts';
import { feedCommand } from './feed-command.ts';
import { clusterIP, largeCluster, largeService, largeSlice, podAddress } from './large-cluster.ts';
import { printTable } from './print-table.ts';
import {
  iptablesRestore,
  type NumberedService,
  nftService,
  nftServiceGone,
  nftTable,
} from './upstream-layout.ts';

const PER_SERVICE = 10;
/** Medians are of this many changes, or of as many as fit into the time. */
const CHANGES = 300;
const CHANGES_MS = 3000;
/** A cold start that takes less than this is repeated. */
const REPEATED_MS = 3000;
const REPEATS = 6;

/** Milliseconds. */
interface Step {
  /** From API object to committed; for kube-proxy's layouts from text to committed. */
  readonly total: number;
  readonly encode: number;
  readonly kernel: number;
  /** Processor time of this process meanwhile, which other work on the machine does not add to; null: not its own. */
  readonly processor: number | null;
}

interface Measurement {
  /** API objects to ServiceMap. */
  readonly compile: number | null;
  /** In a process that has just started; null where that makes no difference. */
  readonly first: Step | null;
  /** From no table to a full one: the fastest of several, where one takes no more than moments. */
  readonly cold: Step;
  /** In place of the table that is there. */
  readonly again: Step | null;
  readonly endpointAdded: Step | null;
  readonly endpointRemoved: Step | null;
  readonly serviceAdded: Step | null;
  readonly serviceRemoved: Step | null;
  readonly verify: number | null;
  /** Bytes. */
  readonly rss: number | null;
  readonly heap: number | null;
  readonly kernelMemory: number;
}

interface Subject {
  readonly title: string;
  readonly slow: boolean;
  /** Left out where the kernel lacks it, unless it is named. */
  readonly isAvailable?: () => boolean;
  measure(netns: string, services: number): Promise<Measurement>;
}

const SUBJECTS: Readonly<Record<string, Subject>> = {
  nftables: {
    title: 'Fairlead, nftables',
    slow: false,
    measure: (netns, n) => measureMode(createNftables({ families: ['ipv4'], netns }), n),
  },
  ipvs: {
    title: 'Fairlead, IPVS',
    slow: false,
    // Few kernels have it: tests/vm/run-in-vm runs this in one that does.
    isAvailable: () => existsSync('/proc/net/ip_vs'),
    measure: (netns, n) => measureMode(createIpvs({ families: ['ipv4'], netns }), n),
  },
  elements: { title: '· its map elements alone', slow: false, measure: measureElements },
  ebpf: {
    title: 'Fairlead, eBPF (and its nftables)',
    slow: false,
    measure: (netns, n) => measureMode(ebpfMode(netns), n),
  },
  'ebpf-maps': {
    title: '· its BPF maps alone',
    slow: false,
    measure: (_netns, n) => measureMode(ebpfMaps(), n),
  },
  'iptables-legacy': {
    title: 'Fairlead, iptables (legacy)',
    slow: true,
    measure: (netns, n) => measureMode(createIptables({ families: ['ipv4'], variant: 'legacy', netns }), n),
  },
  'iptables-nft': {
    title: 'Fairlead, iptables (nft)',
    slow: true,
    measure: (netns, n) => measureMode(createIptables({ families: ['ipv4'], variant: 'nft', netns }), n),
  },
  'nft-f': { title: 'kube-proxy’s layout, nft -f', slow: true, measure: measureNftText },
  'restore-legacy': {
    title: 'kube-proxy’s, iptables-legacy-restore',
    slow: true,
    measure: (netns, n) => measureRestoreText('iptables-legacy-restore', netns, n),
  },
  'restore-nft': {
    title: 'kube-proxy’s, iptables-nft-restore',
    slow: true,
    measure: (netns, n) => measureRestoreText('iptables-nft-restore', netns, n),
  },
};

/** What the prototype of the nftables design took (kernel 6.18, two cores): encode and kernel, milliseconds. */
const PROTOTYPE: Readonly<Record<number, string>> = {
  1000: '5 + 7.6 ms cold, 0.01 ms an endpoint, 1.2 MB',
  10000: '33 + 94 ms cold, 0.013 ms an endpoint, 13.3 MB',
};

async function measureMode(dataplane: Dataplane, n: number): Promise<Measurement> {
  const cluster = largeCluster(n, PER_SERVICE);
  const node = testNode({
    name: 'node-0',
    ipv6: null,
    serviceCidrs: [network('11.0.0.0/8')],
    localDetection: { mode: 'ClusterCIDR', ipv4: network('10.0.0.0/8'), ipv6: null },
  });
  const table = createServiceTable(node);
  const before = kernelMemory();
  const started = performance.now();
  for (const service of cluster.services) table.setService(service);
  for (const slice of cluster.slices) table.setSlice(slice);
  let { map } = table.commit();
  const compiled = performance.now();
  const sync = async (): Promise<Step> => {
    const start = performance.now();
    const before = process.cpuUsage();
    const { encodeMs, kernelMs, failed } = await dataplane.sync(map);
    if (failed[0]) throw failed[0].error;
    const total = performance.now() - start;
    return { total, encode: encodeMs, kernel: kernelMs, processor: processorSince(before) };
  };
  const first = await sync();
  const kept = kernelMemory() - before;
  const again = await sync();
  const commit = async (edit: () => void): Promise<Step> => {
    const start = performance.now();
    edit();
    const { map: next, change } = table.commit();
    const { encodeMs, kernelMs, failed } = await dataplane.apply(change, next);
    if (failed[0]) throw failed[0].error;
    map = next;
    return { total: performance.now() - start, encode: encodeMs, kernel: kernelMs, processor: null };
  };
  const pods = (i: number) => Array.from({ length: PER_SERVICE }, (_, e) => i * PER_SERVICE + e);
  const [endpointAdded, endpointRemoved] = await alternate(
    (k) => {
      const i = (k * 7919) % n;
      return commit(() => table.setSlice(largeSlice(i, [...pods(i), n * PER_SERVICE + k])));
    },
    (k) => {
      const i = (k * 7919) % n;
      return commit(() => table.setSlice(largeSlice(i, pods(i))));
    },
  );
  const [serviceAdded, serviceRemoved] = await alternate(
    (k) =>
      commit(() => {
        table.setService(largeService(n + k));
        table.setSlice(largeSlice(n + k, pods(n + k)));
      }),
    (k) =>
      commit(() => {
        table.deleteService(`team-${(n + k) % 50}`, `service-${n + k}`);
        table.deleteSlice(`team-${(n + k) % 50}`, `service-${n + k}-a`);
      }),
  );
  globalThis.gc?.();
  const { rss, heapUsed: heap } = process.memoryUsage();
  const checking = performance.now();
  const drifts = await dataplane.verify();
  if (drifts[0]) throw new Error(`${drifts.length} differences, the first: ${drifts[0].object}`);
  const verify = performance.now() - checking;
  let cold = first;
  for (let i = 0; i < REPEATS && first.total < REPEATED_MS; i++) {
    await dataplane.remove();
    const step = await sync();
    if (step.total < cold.total) cold = step;
  }
  await dataplane.close();
  return {
    compile: compiled - started,
    first,
    cold,
    again,
    endpointAdded,
    endpointRemoved,
    serviceAdded,
    serviceRemoved,
    verify,
    rss,
    heap,
    kernelMemory: kept,
  };
}

/** The same elements in two maps, from arrays of numbers: the prototype's load. */
async function measureElements(netns: string, n: number): Promise<Measurement> {
  const { ipv4Address, protocol, port, mark } = DATA_TYPE;
  const room = (count: number) => 2 ** Math.ceil(Math.log2(count * 1.5));
  const before = kernelMemory();
  const heads = Array.from({ length: n }, (_, i) => Uint32Array.of(wordOf(clusterIP(i)), 6, 80 << 8));
  const data = new Uint32Array(n * PER_SERVICE * 2);
  for (let i = 0; i < n * PER_SERVICE; i++) {
    data[2 * i] = wordOf(podAddress(i));
    data[2 * i + 1] = 0x901f;
  }
  const connection = new NftConnection(netns);
  const load = async (): Promise<Step> => {
    const started = performance.now();
    const before = process.cpuUsage();
    const batch = connection.batch(NFPROTO.ipv4, { capacity: 1 << 20 });
    batch.reserve(n * PER_SERVICE * 64);
    batch.addTable('t');
    batch.addChain('t', 'pick');
    batch.addSet('t', { name: 's', key: [ipv4Address, protocol, port], data: 'verdict', size: room(n) });
    batch.addSet('t', {
      name: 'e',
      key: [ipv4Address, protocol, port, mark],
      data: [ipv4Address, port],
      size: room(n * PER_SERVICE),
    });
    for (const [i, head] of heads.entries()) {
      for (let slot = 0; slot < PER_SERVICE; slot++) {
        batch.addMapElement('t', 'e', head, slot, data, (i * PER_SERVICE + slot) * 2, 2);
      }
    }
    for (const key of heads) batch.addElement('t', 's', { key, verdict: { goto: 'pick' } });
    const encoded = performance.now();
    await connection.commit(batch);
    const done = performance.now();
    const processor = processorSince(before);
    return { total: done - started, encode: encoded - started, kernel: done - encoded, processor };
  };
  const first = await load();
  const kept = kernelMemory() - before;
  let cold = first;
  for (let i = 0; i < REPEATS; i++) {
    const removal = connection.batch(NFPROTO.ipv4);
    removal.deleteTable('t');
    await connection.commit(removal);
    const step = await load();
    if (step.total < cold.total) cold = step;
  }
  const [endpointAdded, endpointRemoved] = await alternate(
    (k) => one(k, true),
    (k) => one(k, false),
  );
  async function one(k: number, on: boolean): Promise<Step> {
    const start = performance.now();
    const change = connection.batch(NFPROTO.ipv4);
    const key = [...(heads[(k * 7919) % n] ?? []), PER_SERVICE];
    if (on) change.addElement('t', 'e', { key, data: data.subarray(0, 2) });
    else change.deleteElement('t', 'e', { key });
    const ready = performance.now();
    connection.commitSync(change);
    const end = performance.now();
    return { total: end - start, encode: ready - start, kernel: end - ready, processor: null };
  }
  connection.close();
  return {
    compile: null,
    first,
    cold,
    again: null,
    endpointAdded,
    endpointRemoved,
    serviceAdded: null,
    serviceRemoved: null,
    verify: null,
    rss: null,
    heap: null,
    kernelMemory: kept,
  };
}

function wordOf(address: string): number {
  const [a = 0, b = 0, c = 0, d = 0] = address.split('.').map(Number);
  return (a | (b << 8) | (c << 16) | (d << 24)) >>> 0;
}

const numbered = (n: number): NumberedService[] =>
  Array.from({ length: n }, (_, index) => ({
    index,
    pods: Array.from({ length: PER_SERVICE }, (_, e) => index * PER_SERVICE + e),
  }));

async function measureNftText(netns: string, n: number): Promise<Measurement> {
  const services = numbered(n);
  const more = (k: number) => {
    const service = services[(k * 7919) % n];
    if (!service) throw new RangeError();
    return { ...service, pods: [...service.pods, n * PER_SERVICE + k] };
  };
  const feedNft = (text: () => string) => feed(netns, 'nft', ['-f', '-'], text);
  return measureText(
    () => feedNft(() => nftTable(services)),
    (k) => feedNft(() => lines(nftService(more(k)))),
    (k) => {
      const { index, pods } = more(k);
      return feedNft(() => lines(nftService({ index, pods: pods.slice(0, -1) }, pods.at(-1))));
    },
    (k) => feedNft(() => lines(nftService({ index: n + k, pods: services[k % n]?.pods ?? [] }))),
    (k) => feedNft(() => lines(nftServiceGone({ index: n + k, pods: services[k % n]?.pods ?? [] }))),
  );
}

async function measureRestoreText(tool: string, netns: string, n: number): Promise<Measurement> {
  const services = numbered(n);
  const at = (k: number) => {
    const service = services[(k * 7919) % n];
    if (!service) throw new RangeError();
    return service;
  };
  const feedTool = (text: () => string) => feed(netns, tool, ['--noflush'], text);
  const extra = (k: number) => ({ index: n + k, pods: at(k).pods });
  return measureText(
    () => feedTool(() => iptablesRestore(services, services, { hooks: true })),
    (k) =>
      feedTool(() =>
        iptablesRestore(services, [{ ...at(k), pods: [...at(k).pods, n * PER_SERVICE + k] }], {
          hooks: false,
        }),
      ),
    (k) =>
      feedTool(() => {
        const gone = { service: at(k).index, pods: [n * PER_SERVICE + k], whole: false };
        return iptablesRestore(services, [at(k)], { hooks: false, gone });
      }),
    (k) => feedTool(() => iptablesRestore([...services, extra(k)], [extra(k)], { hooks: false })),
    (k) =>
      feedTool(() => {
        const gone = { service: n + k, pods: extra(k).pods, whole: true };
        return iptablesRestore(services, [], { hooks: false, gone });
      }),
  );
}

type TextStep = (k: number) => Promise<Step>;

async function measureText(
  load: () => Promise<Step>,
  addEndpoint: TextStep,
  removeEndpoint: TextStep,
  addService: TextStep,
  removeService: TextStep,
): Promise<Measurement> {
  const before = kernelMemory();
  const cold = await load();
  const kept = kernelMemory() - before;
  const [endpointAdded, endpointRemoved] = await alternate(addEndpoint, removeEndpoint);
  const [serviceAdded, serviceRemoved] = await alternate(addService, removeService);
  return {
    compile: null,
    first: null,
    cold,
    again: null,
    endpointAdded,
    endpointRemoved,
    serviceAdded,
    serviceRemoved,
    verify: null,
    rss: null,
    heap: null,
    kernelMemory: kept,
  };
}

const lines = (all: readonly string[]): string => `${all.join('\n')}\n`;

/** A command's whole time counts as the kernel's. */
async function feed(netns: string, file: string, args: readonly string[], text: () => string): Promise<Step> {
  const started = performance.now();
  const input = text();
  const encoded = performance.now();
  await feedCommand(netns, file, args, input);
  const done = performance.now();
  return { total: done - started, encode: encoded - started, kernel: done - encoded, processor: null };
}

/** Medians of doing and undoing, in turns. The first tenth warms up. */
async function alternate(
  make: (k: number) => Promise<Step>,
  undo: (k: number) => Promise<Step>,
): Promise<[Step, Step]> {
  const [made, undone]: [Step[], Step[]] = [[], []];
  const end = performance.now() + CHANGES_MS;
  for (let k = 1; k <= CHANGES && (performance.now() < end || k <= 3); k++) {
    made.push(await make(k));
    undone.push(await undo(k));
  }
  return [medians(made), medians(undone)];
}

function medians(steps: readonly Step[]): Step {
  const warm = steps.slice(Math.floor(steps.length / 10));
  const median = (of: (step: Step) => number) =>
    warm.map(of).sort((a, b) => a - b)[warm.length >> 1] ?? Number.NaN;
  return {
    total: median((s) => s.total),
    encode: median((s) => s.encode),
    kernel: median((s) => s.kernel),
    processor: null,
  };
}

/** Milliseconds, of all threads. */
function processorSince(before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

/** Of the whole machine: other work on it shows. Bytes. */
function kernelMemory(): number {
  const text = readFileSync('/proc/meminfo', 'utf8');
  const kib = (name: string) => Number(new RegExp(`^${name}: +(\\d+)`, 'm').exec(text)?.[1] ?? 0);
  return (kib('Slab') + kib('VmallocUsed') + kib('Percpu')) * 1024;
}

/** Measures one subject in a process and a namespace of its own. */
async function inProcess(subject: string, services: number): Promise<Measurement> {
  const child = spawn(
    process.execPath,
    [
      ...process.execArgv,
      '--expose-gc',
      import.meta.filename,
      '--measure',
      subject,
      '--services',
      String(services),
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => {
    output += chunk;
  });
  const status = await new Promise<number | null>((resolve) => child.once('close', resolve));
  // Left behind only by a process that was killed.
  removeNetns(namespaceOf(child.pid ?? 0));
  if (status !== 0) throw new Error(`${subject} with ${services} Services ended with status ${status}`);
  return JSON.parse(output) as Measurement;
}

const namespaceOf = (pid: number): string => `flb-${pid}-programming`;

async function measureHere(subject: string, services: number): Promise<void> {
  const netns = namespaceOf(process.pid);
  createNetns(netns);
  try {
    const measurement = await SUBJECTS[subject]?.measure(netns, services);
    process.stdout.write(JSON.stringify(measurement ?? null));
  } finally {
    removeNetns(netns);
  }
}

const ms = (value: number | null | undefined): string => {
  if (value === null || value === undefined) return '';
  return value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(3);
};
const mb = (value: number | null): string => (value === null ? '' : (value / 2 ** 20).toFixed(0));
const ratio = (value: number | undefined, base: number | undefined): string =>
  value === undefined || !base ? '' : `${(value / base).toPrecision(3).replace(/\.0+$/, '')}x`;

function print(services: number, results: ReadonlyMap<string, Measurement>): void {
  const base = results.get('nftables');
  console.log(`\n${services} Services x ${PER_SERVICE} endpoints, IPv4; milliseconds`);
  const header = [
    '',
    'compile',
    'first',
    'encode',
    'kernel',
    'cold',
    '',
    'of it CPU',
    'again',
    '+1 endpoint',
    '(kernel)',
    '',
    '-1 endpoint',
    '+1 Service',
    '(kernel)',
    '-1 Service',
    'verify',
    'RSS MB',
    'heap MB',
    'kernel MB',
  ];
  const rows = [...results].map(([subject, m]) => [
    SUBJECTS[subject]?.title ?? subject,
    ms(m.compile),
    ms(m.first?.total),
    ms(m.cold.encode),
    ms(m.cold.kernel),
    ms(m.cold.total),
    ratio(m.cold.total, base?.cold.total),
    ms(m.cold.processor),
    ms(m.again?.total),
    ms(m.endpointAdded?.total),
    ms(m.endpointAdded?.kernel),
    ratio(m.endpointAdded?.total, base?.endpointAdded?.total),
    ms(m.endpointRemoved?.total),
    ms(m.serviceAdded?.total),
    ms(m.serviceAdded?.kernel),
    ms(m.serviceRemoved?.total),
    ms(m.verify),
    mb(m.rss),
    mb(m.heap),
    mb(m.kernelMemory),
  ]);
  printTable([header, ...rows]);
  const prototype = PROTOTYPE[services];
  if (prototype) console.log(`the design’s prototype, on kernel 6.18: encode + kernel ${prototype}`);
}

const { values: args } = parseArgs({
  options: {
    services: { type: 'string', default: '1000,10000,30000' },
    only: { type: 'string' },
    'slow-up-to': { type: 'string', default: '1000' },
    measure: { type: 'string' },
  },
});

if (args.measure !== undefined) {
  await measureHere(args.measure, Number(args.services));
} else {
  console.log(
    `node ${process.version}, ${cpus().length} x ${cpus()[0]?.model ?? 'unknown processor'}; “+1 endpoint” and “+1 Service” are medians from API object to committed; kernel MB is of the whole machine`,
  );
  const only =
    args.only?.split(',') ?? Object.keys(SUBJECTS).filter((name) => SUBJECTS[name]?.isAvailable?.() ?? true);
  for (const services of args.services.split(',').map(Number)) {
    const results = new Map<string, Measurement>();
    for (const subject of only) {
      const known = SUBJECTS[subject];
      if (!known) throw new Error(`--only: ${subject} is none of ${Object.keys(SUBJECTS).join(', ')}`);
      if (known.slow && services > Number(args['slow-up-to'])) continue;
      const measurement = await inProcess(subject, services);
      results.set(subject, measurement);
      // The table comes when all are through, which may be after an hour.
      const { cold, endpointAdded } = measurement;
      console.error(
        `${services} Services, ${known.title}: cold ${ms(cold.total)}, +1 endpoint ${ms(endpointAdded?.total)}`,
      );
    }
    print(services, results);
  }
}
