/**
 * Runs the benchmarks of what a person waits for, one after the other with small sizes, and writes one table of them
 * and of their peers: bench/results/all.md. Needs root; alone on a machine. A row whose benchmark fails says so.
 *
 *   KUBEBUILDER_ASSETS=FOLDER COREDNS=PROGRAM node bench/all.ts [--before FOLDER] [PART OF A BENCHMARK'S NAME…]
 *
 * kube-apiserver, etcd and kube-proxy are measured where KUBEBUILDER_ASSETS has them, CoreDNS where COREDNS names it.
 * --before: runs the benchmarks that another checkout has there, too, in turns with this one.
 */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { cpus, loadavg, release } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { type Place, readCell } from './printed-table.ts';

/** One benchmark, and the rows that it gives: what is measured, where its table has it, and where it has the peer's. */
interface Benchmark {
  readonly words: readonly string[];
  /** How often it is run, for the medians of its values; default: once, since it has medians itself. */
  readonly rounds?: number;
  /** It runs on one processor: to wake a process on another one takes some virtual machines 50 µs, ten times as long. */
  readonly isOnOne?: boolean;
  /** Why it cannot run here; null: it can. */
  readonly missing?: string | null;
  readonly rows: readonly (readonly [what: string, own: Place, peer?: Place])[];
}

const assets = process.env['KUBEBUILDER_ASSETS'] ?? '/usr/local/bin';
const kubeProxy = join(assets, 'kube-proxy');
const coredns = process.env['COREDNS'];

const BENCHMARKS: readonly Benchmark[] = [
  {
    words: ['up', '5', '--only', '3 ipv4'],
    rows: [
      ['`up`, 3 nodes, hello.yaml: processor, ms', { row: /^\s*3 +ipv4 +nftables/, column: /^processor$/ }],
      ['the same in eBPF mode', { row: /^\s*3 +ipv4 +ebpf/, column: /^processor$/ }],
      [
        'wall time of `up` in nftables mode, ms',
        { row: /^\s*3 +ipv4 +nftables/, column: /^command returns$/ },
      ],
      ['switch of 3 nodes to eBPF, ms', { row: /^\s*3 +ipv4 +nftables/, column: /^to eBPF$/ }],
    ],
  },
  {
    words: ['pods', '50', '1'],
    rounds: 5,
    rows: [['50 pods at once, each, ms', { row: /^\| 1 /, column: /start, each/ }]],
  },
  {
    words: ['agent-scale', '--services', '2000', '--changes', '50', '--parts', 'proxy'],
    rounds: 5,
    rows: [
      ['agent, 2,000 × 10, start to programmed: processor, s', { row: /^proxy/, column: /of it CPU/ }],
      ['its memory after programming, MiB', { row: /^proxy/, column: /RSS at start/ }],
      ['endpoint change → kernel, median, ms', { row: /^proxy/, column: /p50/ }],
    ],
  },
  {
    words: ['proxy-scale', '--services', '1000', '--endpoints', '10000', '--rates', '20', '--seconds', '5'],
    missing: existsSync(kubeProxy) ? null : `no ${kubeProxy}`,
    rows: [
      [
        '1,000 × 10, from start to programmed: processor, s',
        { row: /^Fairlead/, column: /^CPU, s$/ },
        { row: /^kube-proxy/, column: /^CPU, s$/ },
      ],
      [
        'endpoint change → kernel under churn, median, ms',
        { row: /^Fairlead/, column: /^lag p50/ },
        { row: /^kube-proxy/, column: /^lag p50/ },
      ],
    ],
  },
  {
    words: ['watch-fan-out', '100', '100'],
    rows: [
      [
        'API server, 100 watchers × 100 events: processor, s',
        { row: /^fairlead +3 +json/, column: /^processor s/ },
        { row: /^kube-apiserver \+ etcd +3 +json/, column: /^processor s/ },
      ],
    ],
  },
  {
    words: ['programming', '--services', '1000', '--only', 'iptables-legacy,restore-legacy'],
    rounds: 5,
    rows: [
      [
        'iptables (legacy), 1,000 Services, cold, ms',
        { row: /^Fairlead, iptables \(legacy\)/, column: /^cold/ },
        { row: /^kube-proxy’s, iptables-legacy-restore/, column: /^cold/ },
      ],
    ],
  },
  {
    words: ['dns-beside-coredns', coredns ?? 'COREDNS', '6', '3'],
    missing: coredns === undefined ? 'COREDNS names no program' : null,
    rows: [
      [
        'DNS on a busy processor, mean, ms (round 1)',
        { row: /^\| 1 /, column: /fairlead mean/ },
        { row: /^\| 1 /, column: /CoreDNS mean/ },
      ],
    ],
  },
  {
    words: ['connect', '--services', '1', '--only', 'userspace', '--rounds', '5'],
    isOnOne: true,
    rows: [
      ['userspace mode: connect and request, ÷ direct', { row: /^userspace/, column: /^ratio$/, which: 1 }],
      ['userspace mode: open connection, ÷ direct', { row: /^userspace/, column: /^ratio$/, which: 2 }],
    ],
  },
  {
    words: ['failover', 'nftables', 'iptables'],
    rows: ['nftables', 'iptables'].map((mode) => [
      `${mode}, one of four endpoints dead, longest connect, ms`,
      { row: new RegExp(`^${mode} +address gone +yes`), column: /^max ms$/ },
    ]),
  },
];

const { values: options, positionals: wanted } = parseArgs({
  options: { before: { type: 'string' } },
  allowPositionals: true,
});
const here = import.meta.dirname;
const before = options.before === undefined ? null : join(resolve(options.before), 'bench');
const chosen = BENCHMARKS.filter(
  ({ words }) => wanted.length === 0 || wanted.some((one) => words[0]?.includes(one)),
);
const lines: string[] = [];
for (const benchmark of chosen) lines.push(...(await measure(benchmark)));
const text = `# All benchmarks, small

\`node bench/all.ts\`: the benchmarks one after the other, with small sizes; the other files of this folder have larger ones and
say what is measured. ${cpus().length} processors, Linux ${release()}, Node.js ${process.versions.node}, load ${loadavg()[0]?.toFixed(0)} at the end.${before === null ? '' : ` “before” is commit ${commitOf(before)}, in turns with this one.`}

| row | before | now | now ÷ before | peer | by |
| --- | ---: | ---: | ---: | ---: | --- |
${lines.join('\n')}
`;
console.log(text);
writeFileSync(join(here, 'results', 'all.md'), text);

function commitOf(folder: string): string {
  return execFileSync('git', ['-C', folder, 'rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim();
}

/** Runs a benchmark of this version, and of the one before in turns with it; returns its lines of the table. */
async function measure({ words, rounds = 1, isOnOne = false, missing, rows }: Benchmark): Promise<string[]> {
  const [file, ...others] = words;
  const shown = [file, ...others.map((word) => (word === coredns ? 'COREDNS' : word))].join(' ');
  const command = `\`${shown}\`${rounds > 1 ? `, ${rounds} times` : ''}${isOnOne ? ', on one processor' : ''}`;
  const line = (what: string, ...cells: readonly string[]) => `| ${[what, ...cells, command].join(' | ')} |`;
  if (missing) return rows.map(([what]) => line(what, '', `not measured: ${missing}`, '', ''));
  const outputs: { readonly now: string[]; readonly before: string[] } = { now: [], before: [] };
  for (let round = 0; round < rounds; round++) {
    if (before !== null && existsSync(join(before, `${words[0]}.ts`)))
      outputs.before.push(await run(before, words, isOnOne));
    outputs.now.push(await run(here, words, isOnOne));
  }
  return rows.map(([what, own, peer]) => {
    const was = outputs.before.length === 0 ? '' : medianCell(outputs.before, own);
    const now = medianCell(outputs.now, own);
    const ratio = Number(now) / Number(was);
    return line(
      what,
      ...[was, now, was !== '' && Number.isFinite(ratio) ? ratio.toFixed(2) : ''],
      peer ? medianCell(outputs.now, peer) : '',
    );
  });
}

/** Returns the median of a cell's values, without their unit, or why there is none. */
function medianCell(outputs: readonly string[], place: Place): string {
  const values = outputs.map((output) => Number.parseFloat(readCell(output, place) ?? ''));
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
  return sorted.length < values.length ? 'not in its output' : String(sorted[sorted.length >> 1] ?? '');
}

/** Runs one benchmark of a folder; shows what it prints, and returns it. */
async function run(folder: string, [file, ...words]: readonly string[], isOnOne: boolean): Promise<string> {
  const program = join(folder, `${file}.ts`);
  const [command = '', ...others] = [
    ...(isOnOne ? ['taskset', '-c', '0'] : []),
    ...[process.execPath, ...process.execArgv, program, ...words],
  ];
  const child = spawn(command, others, { stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => {
    process.stderr.write(part);
    output += part;
  });
  const status = await new Promise<number | null>((resolve) => child.once('close', resolve));
  if (status !== 0) process.stderr.write(`${program} failed with status ${status}\n`);
  return status === 0 ? output : '';
}
