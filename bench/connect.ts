/**
 * New connections per second and how long connect() waits, through one Service among N, beside the bare address of the
 * pod in the same run: for each mode, for kube-proxy's layouts, and for a node without any rules. Client, node and pods
 * are network namespaces made for it; the client opens one connection after the other.
 *
 * node bench/connect.ts [--services 1,1000,10000,30000] [--only SUBJECT,…] [--rounds 15] [--slow-up-to 1000]
 *
 * The userspace mode relays in a process of its own inside the node's namespace, as an agent does (connect-relay.ts).
 *
 * Rates are those of one client, by the median time that one connection or request takes. Service and pod take turns
 * within milliseconds, and ratios are medians of the turns', so that other work on the machine touches both. Subjects that take minutes to program many Services run up to `--slow-up-to` only.
 */
import { mkdirSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { Dataplane } from '../src/dataplane/dataplane.ts';
import { controlGroupRoot } from '../src/kernel/control-group.ts';
import { messageOf } from '../src/lib/errors.ts';
import type { Task } from './connect-peer.ts';
import { removeGroup } from './control-group.ts';
import { feedCommand } from './feed-command.ts';
import { clusterIP, podAddress } from './large-cluster.ts';
import { printTable } from './print-table.ts';
import { programCluster } from './program-cluster.ts';
import { type RoutedPods, routePods } from './routed-pods.ts';
import { iptablesRestore, nftTable } from './upstream-layout.ts';

/** Services that connections go to, distributed over all. */
const TARGETS = 500;
const CONNECTS = 500;
const REQUESTS = 1000;

const { values: options } = parseArgs({
  options: {
    services: { type: 'string', default: '1,1000,10000,30000' },
    only: { type: 'string' },
    rounds: { type: 'string', default: '15' },
    'slow-up-to': { type: 'string', default: '1000' },
  },
});
const ROUNDS = Math.min(200, Number(options.rounds));

interface Place {
  readonly netns: string;
  readonly group: string | null;
  readonly pinPath: string;
}

interface Subject {
  readonly title: string;
  /** With more Services than this, programming takes minutes or is impossible. */
  readonly most?: number;
  /** Programs N Services of one endpoint each; the result reverts that. */
  program(place: Place, services: number): Promise<() => Promise<void>>;
}

const mode =
  (make: (place: Place) => Promise<Dataplane>): Subject['program'] =>
  async (place, services) =>
    programCluster(await make(place), services);

const numbered = (n: number) => Array.from({ length: n }, (_, index) => ({ index, pods: [index] }));
const SLOW = Number(options['slow-up-to']);
const families = ['ipv4'] as const;

// Each subject loads its modules: a mode that cannot be loaded does not prevent the others from being
// measured.
const SUBJECTS: Readonly<Record<string, Subject>> = {
  none: { title: 'no rules at all', program: async () => async () => {} },
  nftables: {
    title: 'nftables',
    program: mode(async ({ netns }) => {
      const { createNftables } = await import('../src/dataplane/nftables/nftables.ts');
      return createNftables({ families, netns });
    }),
  },
  ebpf: {
    title: 'eBPF',
    program: mode(async ({ netns, group, pinPath }) => {
      const { openEbpf } = await import('../src/dataplane/testing/open-ebpf.ts');
      return openEbpf({ families, netns, pinPath, ...(group === null ? {} : { cgroup: group }) });
    }),
  },
  ipvs: {
    title: 'IPVS',
    program: mode(async ({ netns }) => {
      const { createIpvs } = await import('../src/dataplane/ipvs/ipvs.ts');
      return createIpvs({ families, netns });
    }),
  },
  'iptables-legacy': { title: 'iptables (legacy)', program: iptables('legacy') },
  'iptables-nft': { title: 'iptables (nft)', most: SLOW, program: iptables('nft') },
  userspace: {
    title: 'userspace',
    // A listener for each Service; this is the limit of open files of a process.
    most: 10_000,
    async program({ netns }, n) {
      const { startRelay } = await import('./relay-process.ts');
      return startRelay(netns, n);
    },
  },
  'nft-f': {
    title: 'kube-proxy’s layout, nft',
    most: SLOW,
    async program({ netns }, n) {
      await feedCommand(netns, 'nft', ['-f', '-'], nftTable(numbered(n)));
      return async () => {};
    },
  },
  'restore-legacy': {
    title: 'kube-proxy’s, iptables (legacy)',
    async program({ netns }, n) {
      const text = iptablesRestore(numbered(n), numbered(n), { hooks: true });
      await feedCommand(netns, 'iptables-legacy-restore', ['--noflush'], text);
      return async () => {};
    },
  },
};

function iptables(variant: 'legacy' | 'nft'): Subject['program'] {
  return mode(async ({ netns }) => {
    const { createIptables } = await import('../src/dataplane/iptables/iptables.ts');
    return createIptables({ families, netns, variant });
  });
}

/** Medians over the rounds. */
interface Comparison {
  readonly service: number;
  readonly pod: number;
  readonly ratio: number;
}

interface Measurement {
  /** Per second. */
  readonly connects: Comparison;
  readonly requests: Comparison;
  readonly open: Comparison;
  /** Microseconds of connect(). */
  readonly p50: Comparison;
  readonly p99: Comparison;
}

const quantile = (values: readonly number[], q: number): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length * q)] ?? Number.NaN;
const median = (values: readonly number[]): number => quantile(values, 0.5);

async function compare(pods: RoutedPods, services: number, viaService: boolean): Promise<Measurement> {
  const picked = Array.from({ length: TARGETS }, (_, i) => (i * 7919) % services);
  const targets = {
    service: picked.map((i) => [clusterIP(i), 80] as const),
    pod: picked.map((i) => [podAddress(i), 8080] as const),
  };
  const via = viaService ? targets.service : targets.pod;
  const rates: Record<Task['what'], { service: number[]; pod: number[] }> = {
    connect: { service: [], pod: [] },
    request: { service: [], pod: [] },
    open: { service: [], pod: [] },
  };
  const waits = { service: [] as number[], pod: [] as number[] };
  for (let round = -1; round < ROUNDS; round++) {
    for (const what of ['connect', 'request', 'open'] as const) {
      // The order alternates, since the first of a turn finds cold caches.
      for (const side of round % 2 === 0 ? (['service', 'pod'] as const) : (['pod', 'service'] as const)) {
        const times = what === 'open' ? REQUESTS : CONNECTS;
        const timing = await pods.ask({ what, targets: side === 'service' ? via : targets.pod, times });
        if (round < 0) continue;
        rates[what][side].push(1_000_000 / median(timing.each));
        if (what === 'connect') waits[side].push(...timing.waits);
      }
    }
  }
  const of = ({ service, pod }: { service: number[]; pod: number[] }): Comparison => ({
    service: median(service),
    pod: median(pod),
    ratio: median(service.map((rate, i) => rate / (pod[i] ?? Number.NaN))),
  });
  const at = (q: number): Comparison => {
    const [service, pod] = [quantile(waits.service, q), quantile(waits.pod, q)];
    return { service, pod, ratio: service / pod };
  };
  return {
    connects: of(rates.connect),
    requests: of(rates.request),
    open: of(rates.open),
    p50: at(0.5),
    p99: at(0.99),
  };
}

async function measure(key: string, subject: Subject, services: number): Promise<Measurement> {
  const prefix = `flb-${process.pid}-${key}`;
  const root = controlGroupRoot();
  const group = root === null ? null : join(root, prefix);
  if (group !== null) mkdirSync(group);
  try {
    const pods = await routePods(prefix, '192.168.0.1', group);
    try {
      const place = { netns: pods.node, group, pinPath: `/run/${prefix}-bpf` };
      const undo = await subject.program(place, services);
      try {
        return await compare(pods, services, key !== 'none');
      } finally {
        await undo();
      }
    } finally {
      await pods.close();
    }
  } finally {
    if (group !== null) await removeGroup(group);
  }
}

const HEADER = [
  '',
  'connect+reset/s',
  'pod',
  'ratio',
  'connect µs p50',
  'pod',
  'p99',
  'pod',
  'connect+request/s',
  'pod',
  'ratio',
  'requests/s, open',
  'pod',
  'ratio',
];

function row(title: string, m: Measurement): string[] {
  const whole = (value: number) => value.toFixed(0);
  const tenth = (value: number) => value.toFixed(1);
  const ratio = (value: number) => value.toFixed(3);
  return [
    title,
    whole(m.connects.service),
    whole(m.connects.pod),
    ratio(m.connects.ratio),
    tenth(m.p50.service),
    tenth(m.p50.pod),
    tenth(m.p99.service),
    tenth(m.p99.pod),
    whole(m.requests.service),
    whole(m.requests.pod),
    ratio(m.requests.ratio),
    whole(m.open.service),
    whole(m.open.pod),
    ratio(m.open.ratio),
  ];
}

console.log(
  `node ${process.version}, ${cpus().length} x ${cpus()[0]?.model}; medians of ${ROUNDS} rounds; “pod”: the bare address in the same round`,
);
const wanted = options.only?.split(',') ?? Object.keys(SUBJECTS);
for (const services of options.services.split(',').map(Number)) {
  const rows = [HEADER];
  for (const key of wanted) {
    const subject = SUBJECTS[key];
    if (!subject) throw new Error(`--only ${key}: use ${Object.keys(SUBJECTS).join(', ')}`);
    if (services > (subject.most ?? Number.POSITIVE_INFINITY)) continue;
    try {
      rows.push(row(subject.title, await measure(key, subject, services)));
    } catch (error) {
      rows.push([subject.title, `not here: ${messageOf(error).slice(0, 100)}`]);
    }
  }
  console.log(`\n${services} Services`);
  printTable(rows);
}
