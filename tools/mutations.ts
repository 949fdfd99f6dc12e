// Measures what the tests find: makes the changes of tools/testing/mutations.ts one at a time in a clone, and runs tests
// there until one fails. `node tools/mutations.ts [NUMBER…]`. Needs root, as packet tests do, and takes minutes for each.
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { MUTATIONS, type Mutation, mutate } from './testing/mutations.ts';

const root = resolve(import.meta.dirname, '..');
const clone = join(root, '.cache', 'mutations');
/** In the order in which they run; the first one that fails has found the mutation. The last has what `./test` leaves out. */
const STAGES: readonly (readonly [name: string, words: readonly string[]])[] = [
  ['./test changed', ['changed', 'HEAD']],
  ['./test', []],
  ['./test all', ['all']],
];

function prepare(): void {
  rmSync(clone, { recursive: true, force: true });
  run('git', ['clone', '--quiet', '--no-hardlinks', root, clone], root);
  for (const folder of ['.runtime', 'node_modules', '.cache/compiled'])
    if (existsSync(join(root, folder))) cpSync(join(root, folder), join(clone, folder), { recursive: true });
  // It finds each mutation by its text.
  rmSync(join(clone, 'tools/testing/mutations.test.ts'));
}

function run(program: string, words: readonly string[], cwd: string): void {
  const { status, error } = spawnSync(program, words, { cwd, stdio: ['ignore', 'inherit', 'inherit'] });
  if (status !== 0) throw error ?? new Error(`${program} ${words.join(' ')} ended with status ${status}`);
}

/** Returns the stage that found a mutation, and the tests that failed. */
function measure(mutation: Mutation): string {
  const path = join(clone, mutation.file);
  const before = readFileSync(path, 'utf8');
  writeFileSync(path, mutate(mutation, before));
  try {
    for (const [name, words] of STAGES) {
      const { status, stdout } = spawnSync('./test', words, {
        cwd: clone,
        encoding: 'utf8',
        maxBuffer: 1 << 28,
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const failed = stdout.split('\n').filter((line) => line.startsWith('failed: '));
      if (status !== 0) return `${name}\t${failed.at(-1) ?? 'ended early'}`;
    }
    return 'not found\t';
  } finally {
    writeFileSync(path, before);
  }
}

const wanted = process.argv.slice(2).map(Number);
prepare();
for (const [i, mutation] of MUTATIONS.entries()) {
  if (wanted.length > 0 && !wanted.includes(i + 1)) continue;
  process.stdout.write(`${i + 1}\t${mutation.file}\t${mutation.effect}\t${measure(mutation)}\n`);
}
rmSync(clone, { recursive: true, force: true });
