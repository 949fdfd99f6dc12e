/**
 * How long `fairlead up --detach -f examples/hello.yaml` takes until the Service answers, step by step, the processor
 * seconds of all its processes and pods until then, a switch to eBPF mode, and `down` after it: the medians of several
 * runs. Needs root.
 *
 *   node bench/up.ts [RUNS] [--beside FOLDER] [--only PATTERN]
 *
 * RUNS: default 5. --beside: measures another checkout, too, in turns with this one. --only: the cases whose "NODES FAMILY MODE"
 * match.
 */
import { execFile } from 'node:child_process';
import { cpus } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { openProcessorGroup } from './processor-group.ts';

const { values: options, positionals } = parseArgs({
  options: { beside: { type: 'string' }, only: { type: 'string', default: '' } },
  allowPositionals: true,
});
const runs = Number(positionals[0] ?? 5);
const exec = promisify(execFile);
const STEPS = ['wire and nodes', 'control plane', 'nodes ready', 'pods ready', 'Services answer'];
const CASES = [
  { nodes: '1', family: 'ipv4', mode: 'nftables' },
  { nodes: '3', family: 'ipv4', mode: 'nftables' },
  { nodes: '3', family: 'dual', mode: 'nftables' },
  { nodes: '3', family: 'ipv4', mode: 'ebpf' },
];
type Case = (typeof CASES)[number];
const MEASURED = ['command returns', 'processor', 'to eBPF', 'its processor', 'down'];
const COLUMNS = [...STEPS, ...MEASURED];

/** A checkout of Fairlead. */
interface Version {
  readonly name: string;
  readonly root: string;
}

const here: Version = { name: 'this', root: join(import.meta.dirname, '..') };
const versions: readonly Version[] =
  options.beside === undefined ? [here] : [{ name: 'beside', root: resolve(options.beside) }, here];
const cases = CASES.filter(({ nodes, family, mode }) =>
  new RegExp(options.only).test(`${nodes} ${family} ${mode}`),
);

const median = (values: number[]) => values.sort((a, b) => a - b)[values.length >> 1] ?? Number.NaN;

// The first run builds the bundle and fills the page cache: it is not representative of later starts.
for (const version of versions) await measure(version, { nodes: '1', family: 'ipv4', mode: 'nftables' });
console.log(
  `${cpus().length} processors, ${runs} runs each, median, milliseconds since the command was typed\n`,
);
const header = [...(versions.length > 1 ? ['version'] : []), 'nodes', 'family', 'mode', ...COLUMNS];
const rows: string[][] = [header];
for (const one of cases) {
  const samples = versions.map((): number[][] => []);
  for (let run = 0; run < runs; run++)
    for (const [index, version] of versions.entries()) samples[index]?.push(await measure(version, one));
  const medians = samples.map((of) =>
    COLUMNS.map((_, column) => median(of.map((sample) => sample[column] ?? Number.NaN))),
  );
  const line = (name: string, values: readonly number[], digits: number) => [
    ...(versions.length > 1 ? [name] : []),
    ...[one.nodes, one.family, one.mode],
    ...values.map((value) => (Number.isNaN(value) ? '-' : value.toFixed(digits))),
  ];
  for (const [index, { name }] of versions.entries()) rows.push(line(name, medians[index] ?? [], 0));
  const [first, second] = medians;
  if (first && second)
    rows.push(
      line(
        'ratio',
        second.map((value, column) => value / (first[column] ?? Number.NaN)),
        2,
      ),
    );
}
const widths = header.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
for (const row of rows) console.log(row.map((cell, column) => cell.padStart(widths[column] ?? 0)).join('  '));

/** Measures milliseconds of each step, of the whole command, of a switch, and of `down`. */
async function measure({ root }: Version, { nodes, family, mode }: Case): Promise<number[]> {
  const launcher = join(root, 'fairlead');
  const cluster = `bench-${process.pid}`;
  const name = ['--name', cluster];
  const group = openProcessorGroup(cluster);
  const processor = () => group.seconds([`fairlead-${cluster}`]) * 1000;
  try {
    const started = performance.now();
    const words = ['up', '--detach', ...name, '--nodes', nodes, '--ip-family', family, '--mode', mode];
    const manifest = join(root, 'examples', 'hello.yaml');
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
