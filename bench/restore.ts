/**
 * How long a prepared cluster of three nodes with 20 pods takes to start from a file (`fairlead run --restore`) until the command
 * runs, beside the same cluster started by its manifests, and the processor seconds of all its processes and pods until then:
 * medians of several runs. Needs root.
 *
 *   node bench/restore.ts [RUNS] [--beside FOLDER] [--pods N] [--only PROGRAM]
 *
 * RUNS: default 5. --beside: measures another checkout, too, in turns with this one. Two kinds of pods: "echo" runs
 * `fairlead echo`, a Node.js process; "sleep" runs sleep(1), and so shows what a pod costs without its program.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { cpus, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { openProcessorGroup } from './processor-group.ts';

const { values: options, positionals } = parseArgs({
  options: {
    beside: { type: 'string' },
    pods: { type: 'string', default: '20' },
    only: { type: 'string', default: '' },
  },
  allowPositionals: true,
});
const runs = Number(positionals[0] ?? 5);
const exec = promisify(execFile);
const PROGRAMS: Readonly<Record<string, readonly string[]>> = {
  sleep: ['sleep', '1000000'],
  echo: ['fairlead', 'echo'],
};

/** A checkout of Fairlead. */
interface Version {
  readonly name: string;
  readonly root: string;
}

/** What a start took: milliseconds until the command ran, and of processor until then. */
interface Start {
  readonly wall: number;
  readonly processor: number;
}

const here: Version = { name: 'this', root: join(import.meta.dirname, '..') };
const versions: readonly Version[] =
  options.beside === undefined ? [here] : [{ name: 'beside', root: resolve(options.beside) }, here];
const cluster = `bench-${process.pid}`;
const folder = mkdtempSync(join(tmpdir(), 'bench-restore-'));
const median = (values: readonly number[]) =>
  [...values].sort((a, b) => a - b)[values.length >> 1] ?? Number.NaN;

console.log(`${cpus().length} processors, ${runs} runs each, median, milliseconds until the command runs\n`);
console.log('version  pods   start        wall  processor');
try {
  for (const program of Object.keys(PROGRAMS)) {
    if (!program.includes(options.only)) continue;
    const file = writeManifest(program);
    const ways = versions.flatMap((version) => [
      { version, way: 'manifests', words: ['--name', cluster, '--nodes', '3', '-f', file] },
      { version, way: 'restore', words: ['--restore', join(folder, `${program}-${version.name}.tgz`)] },
    ]);
    const samples = ways.map((): Start[] => []);
    for (const { root, name } of versions) await prepare(root, file, join(folder, `${program}-${name}.tgz`));
    for (let run = 0; run < runs; run++)
      for (const [index, { version, words }] of ways.entries())
        samples[index]?.push(await measure(version, words));
    for (const [index, { version, way }] of ways.entries()) {
      const of = samples[index] ?? [];
      const cells = [version.name.padEnd(7), program.padEnd(5), way.padEnd(9)];
      const wall = median(of.map((one) => one.wall)).toFixed(0);
      const processor = median(of.map((one) => one.processor)).toFixed(0);
      console.log(`${cells.join('  ')}  ${wall.padStart(6)}  ${processor.padStart(9)}`);
    }
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/** Writes a Deployment of the pods, and returns its file. */
function writeManifest(program: string): string {
  const labels = { app: 'prepared' };
  const container = { name: 'main', image: 'fairlead', command: PROGRAMS[program] };
  const template = {
    metadata: { labels },
    spec: { terminationGracePeriodSeconds: 0, containers: [container] },
  };
  const spec = { replicas: Number(options.pods), selector: { matchLabels: labels }, template };
  const file = join(folder, `${program}.json`);
  writeFileSync(
    file,
    JSON.stringify({ apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'prepared' }, spec }),
  );
  return file;
}

/** Writes the snapshot; so all code was run, and compiled, once before the first measurement. */
async function prepare(root: string, manifest: string, snapshot: string): Promise<void> {
  const launcher = join(root, 'fairlead');
  const name = ['--name', cluster];
  try {
    await exec(launcher, ['up', '--detach', '--no-kubeconfig', ...name, '--nodes', '3', '-f', manifest]);
    await exec(launcher, ['snapshot', snapshot, ...name]);
  } finally {
    await exec(launcher, ['down', ...name]);
  }
}

async function measure({ root }: Version, words: readonly string[]): Promise<Start> {
  const group = openProcessorGroup(cluster);
  const at = join(folder, 'started');
  const fifo = join(folder, 'fifo');
  try {
    const script = `date +%s%N > ${at}; read word < ${fifo}; exit 0`;
    await exec('mkfifo', [fifo]);
    const started = Date.now();
    const run = exec(...group.inside(join(root, 'fairlead'), ['run', ...words, '--', 'sh', '-c', script]));
    // Opens when the command reads: until then, the removal of the cluster does not begin.
    // A run that fails rejects, and ends this program.
    const file = await Promise.race([open(fifo, 'w'), run.then(() => null)]);
    const processor = group.seconds([`fairlead-${cluster}`]) * 1000;
    await file?.write('\n');
    await file?.close();
    await run;
    return { wall: Number(readFileSync(at, 'utf8')) / 1e6 - started, processor };
  } finally {
    rmSync(fifo, { force: true });
    await group.close();
  }
}
