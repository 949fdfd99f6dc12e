/**
 * Runs the benchmarks of what a person waits for, one after the other with small sizes, and writes one table of them
 * and of their peers: bench/results/all.md. Needs root; alone on a machine. A row whose benchmark fails says so.
 *
 *   KUBEBUILDER_ASSETS=FOLDER COREDNS=PROGRAM node bench/all.ts [PART OF A BENCHMARK'S NAME…]
 *
 * kube-apiserver, etcd and kube-proxy are measured where KUBEBUILDER_ASSETS has them, CoreDNS where COREDNS names it.
 */
import { spawn } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { cpus, loadavg, release } from 'node:os';
import { join } from 'node:path';
import { type Place, readCell } from './printed-table.ts';

/** One benchmark, and the rows that it gives: what is measured, where its table has it, and where it has the peer's. */
interface Benchmark {
  readonly words: readonly string[];
  /** Why it cannot run here; null: it can. */
  readonly missing?: string | null;
  readonly rows: readonly (readonly [what: string, own: Place, peer?: Place])[];
}

const assets = process.env['KUBEBUILDER_ASSETS'] ?? '/usr/local/bin';
const kubeProxy = join(assets, 'kube-proxy');
const coredns = process.env['COREDNS'];

const BENCHMARKS: readonly Benchmark[] = [
  {
    words: ['up', '5'],
    rows: [
      ['`up`, 3 nodes, hello.yaml: processor, ms', { row: /^\s*3 +ipv4 +nftables/, column: /^processor$/ }],
      ['the same in eBPF mode', { row: /^\s*3 +ipv4 +ebpf/, column: /^processor$/ }],
      ['switch of 3 nodes to eBPF, ms', { row: /^\s*3 +ipv4 +nftables/, column: /^to eBPF$/ }],
    ],
  },
  { words: ['pods', '50', '1'], rows: [['50 pods at once, each', { row: /^\| 1 /, column: /start, each/ }]] },
  {
    words: ['agent-scale', '--services', '2000', '--changes', '50', '--parts', 'proxy'],
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
        { row: /^fairlead +json/, column: /^processor s/ },
        { row: /^kube-apiserver \+ etcd +json/, column: /^processor s/ },
      ],
    ],
  },
  {
    words: ['programming', '--services', '1000', '--only', 'iptables-legacy,restore-legacy'],
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
    rows: [
      ['userspace mode: connect and request, ÷ direct', { row: /^userspace/, column: /^ratio$/, which: 1 }],
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

const wanted = process.argv.slice(2);
const chosen = BENCHMARKS.filter(
  ({ words }) => wanted.length === 0 || wanted.some((one) => words[0]?.includes(one)),
);
const lines: string[] = [];
for (const benchmark of chosen) lines.push(...(await measure(benchmark)));
const text = `# All benchmarks, small

\`node bench/all.ts\`: the benchmarks one after the other, with small sizes; the other files of this folder have larger ones and
say what is measured. ${cpus().length} processors, Linux ${release()}, Node.js ${process.versions.node}, load ${loadavg()[0]?.toFixed(0)} at the end.

| row | Fairlead | peer | by |
| --- | ---: | ---: | --- |
${lines.join('\n')}
`;
console.log(text);
writeFileSync(join(import.meta.dirname, 'results', 'all.md'), text);

async function measure({ words, missing, rows }: Benchmark): Promise<string[]> {
  const command = `\`${words.join(' ').trim()}\``;
  const line = (what: string, own: string, peer = '') => `| ${what} | ${own} | ${peer} | ${command} |`;
  if (missing) return rows.map(([what]) => line(what, `not measured: ${missing}`));
  const { status, output } = await run(words);
  return rows.map(([what, own, peer]) => {
    const value = readCell(output, own);
    const failure = status === 0 ? 'not in its output' : `failed with status ${status}`;
    return line(what, value ?? failure, peer && (readCell(output, peer) ?? 'not measured'));
  });
}

/** Runs one benchmark; shows what it prints, and returns it. */
async function run([file, ...words]: readonly string[]): Promise<{ status: number | null; output: string }> {
  const program = join(import.meta.dirname, `${file}.ts`);
  const child = spawn(process.execPath, [...process.execArgv, program, ...words], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => {
    process.stderr.write(part);
    output += part;
  });
  const status = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { status, output };
}
