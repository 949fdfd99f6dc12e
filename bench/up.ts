/**
 * How long `fairlead up --detach -f examples/hello.yaml` takes until the Service answers, step by step, the processor
 * seconds of all its processes and pods until then, a switch to eBPF mode, and `down` after it: the medians of several
 * runs. Needs root. Run: node bench/up.ts [runs] (default 5).
 */
import { execFile } from 'node:child_process';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { openProcessorGroup } from './processor-group.ts';

const root = join(import.meta.dirname, '..');
const launcher = join(root, 'fairlead');
const manifest = join(root, 'examples', 'hello.yaml');
const runs = Number(process.argv[2] ?? 5);
const exec = promisify(execFile);
const STEPS = ['wire and nodes', 'control plane', 'nodes ready', 'pods ready', 'Services answer'];
const CASES = [
  { nodes: '1', family: 'ipv4', mode: 'nftables' },
  { nodes: '3', family: 'ipv4', mode: 'nftables' },
  { nodes: '3', family: 'dual', mode: 'nftables' },
  { nodes: '3', family: 'ipv4', mode: 'ebpf' },
];
const MEASURED = ['command returns', 'processor', 'to eBPF', 'its processor', 'down'];

const median = (values: number[]) => values.sort((a, b) => a - b)[values.length >> 1] ?? Number.NaN;

// The first run builds the bundle and fills the page cache: it is not representative of later starts.
await measure({ nodes: '1', family: 'ipv4', mode: 'nftables' });
console.log(
  `${cpus().length} processors, ${runs} runs each, median, milliseconds since the command was typed\n`,
);
const header = ['nodes', 'family', 'mode', ...STEPS, ...MEASURED];
const rows: string[][] = [header];
for (const one of CASES) {
  const samples: number[][] = [];
  for (let run = 0; run < runs; run++) samples.push(await measure(one));
  const medians = header
    .slice(3)
    .map((_, column) => median(samples.map((sample) => sample[column] ?? Number.NaN)));
  rows.push([
    one.nodes,
    one.family,
    one.mode,
    ...medians.map((value) => (Number.isNaN(value) ? '-' : value.toFixed(0))),
  ]);
}
const widths = header.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
for (const row of rows) console.log(row.map((cell, column) => cell.padStart(widths[column] ?? 0)).join('  '));

/** Measures milliseconds of each step, of the whole command, of a switch, and of `down`. */
async function measure({ nodes, family, mode }: (typeof CASES)[number]): Promise<number[]> {
  const cluster = `bench-${process.pid}`;
  const name = ['--name', cluster];
  const group = openProcessorGroup(cluster);
  const processor = () => group.seconds([`fairlead-${cluster}`]) * 1000;
  try {
    const started = performance.now();
    const words = ['up', '--detach', ...name, '--nodes', nodes, '--ip-family', family, '--mode', mode];
    const up = await exec(...group.inside(launcher, [...words, '-f', manifest]));
    const total = performance.now() - started;
    const upProcessor = processor();
    // The times of the steps count from the program's start; the launcher's time comes before.
    const inner = Number(/ready in ([0-9.]+) s/.exec(up.stderr)?.[1]) * 1000;
    const steps = STEPS.map((step) => Number(new RegExp(`✓ ${step} +([0-9]+) ms`).exec(up.stderr)?.[1]));
    const switched = performance.now();
    if (mode !== 'ebpf') await exec(...group.inside(launcher, ['mode', 'ebpf', ...name]));
    const toEbpf = mode === 'ebpf' ? Number.NaN : performance.now() - switched;
    const switchProcessor = mode === 'ebpf' ? Number.NaN : processor() - upProcessor;
    const before = performance.now();
    await exec(launcher, ['down', ...name]);
    const down = performance.now() - before;
    const late = Math.max(0, total - inner);
    return [...steps.map((value) => value + late), total, upProcessor, toEbpf, switchProcessor, down];
  } finally {
    await group.close();
  }
}
