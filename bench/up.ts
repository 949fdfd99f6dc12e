/**
 * How long `fairlead up --detach -f examples/hello.yaml` takes until the Service answers, step by step, and `down`
 * after it: the median of several runs. Needs root. Run: node bench/up.ts [runs] (default 5).
 */
import { execFile } from 'node:child_process';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const root = join(import.meta.dirname, '..');
const launcher = join(root, 'fairlead');
const manifest = join(root, 'examples', 'hello.yaml');
const runs = Number(process.argv[2] ?? 5);
const exec = promisify(execFile);
const STEPS = ['wire and nodes', 'control plane', 'nodes ready', 'pods ready', 'Services answer'];
const CASES = [
  { nodes: '1', family: 'ipv4' },
  { nodes: '3', family: 'ipv4' },
  { nodes: '3', family: 'dual' },
];

const median = (values: number[]) => values.sort((a, b) => a - b)[values.length >> 1] ?? Number.NaN;

// The first run builds the bundle and fills the page cache: it is not representative of later starts.
await measure({ nodes: '1', family: 'ipv4' });
console.log(
  `${cpus().length} processors, ${runs} runs each, median, milliseconds since the command was typed\n`,
);
const header = ['nodes', 'family', ...STEPS, 'command returns', 'down'];
const rows: string[][] = [header];
for (const one of CASES) {
  const samples: number[][] = [];
  for (let run = 0; run < runs; run++) samples.push(await measure(one));
  const medians = header
    .slice(2)
    .map((_, column) => median(samples.map((sample) => sample[column] ?? Number.NaN)));
  rows.push([one.nodes, one.family, ...medians.map((value) => value.toFixed(0))]);
}
const widths = header.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
for (const row of rows) console.log(row.map((cell, column) => cell.padStart(widths[column] ?? 0)).join('  '));

/** Measures milliseconds of each step, of the whole command, and of `down`. */
async function measure({ nodes, family }: { nodes: string; family: string }): Promise<number[]> {
  const name = ['--name', `bench-${process.pid}`];
  const started = performance.now();
  const up = await exec(launcher, [
    'up',
    '--detach',
    ...name,
    '--nodes',
    nodes,
    '--ip-family',
    family,
    '-f',
    manifest,
  ]);
  const total = performance.now() - started;
  // The times of the steps count from the program's start; the launcher's time comes before.
  const inner = Number(/ready in ([0-9.]+) s/.exec(up.stderr)?.[1]) * 1000;
  const steps = STEPS.map((step) => Number(new RegExp(`✓ ${step} +([0-9]+) ms`).exec(up.stderr)?.[1]));
  const before = performance.now();
  await exec(launcher, ['down', ...name]);
  const down = performance.now() - before;
  return [...steps.map((value) => value + Math.max(0, total - inner)), total, down];
}
