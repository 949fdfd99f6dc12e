import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

const SETUP = join(import.meta.dirname, 'setup.sh');
/** Notes that it ran, and writes the bundle after the others have begun to wait. */
const BUILD = `
import { appendFileSync, writeFileSync } from 'node:fs';
const root = process.argv[1].replace(/\\/tools\\/build.mjs$/, '');
appendFileSync(root + '/built', 'x');
if (process.env.FAILS) process.exit(3);
await new Promise((resolve) => setTimeout(resolve, 300));
writeFileSync(root + '/dist/fairlead.mjs', '');
`;

/** Runs `setup_bundle` of a clone with a build of its own in several shells at once; returns their statuses and its runs. */
async function bundle(shells: number, env: Readonly<Record<string, string>> = {}) {
  const root = mkdtempSync(join(tmpdir(), 'flt-bundle-'));
  try {
    for (const folder of ['src', 'tools', 'dist']) mkdirSync(join(root, folder));
    writeFileSync(join(root, 'src', 'main.ts'), '');
    writeFileSync(join(root, 'package-lock.json'), '{}');
    writeFileSync(join(root, 'tools', 'build.mjs'), BUILD);
    for (const file of ['src', 'src/main.ts', 'package-lock.json', 'tools/build.mjs'])
      utimesSync(join(root, file), 1, 1);
    const script = `set -eu; root=$1 node=$2; . "$3"; setup_bundle; echo ready`;
    const ended = await Promise.all(
      Array.from({ length: shells }, async () => {
        const words = ['-c', script, 'sh', root, process.execPath, SETUP];
        const child = spawn('sh', words, { stdio: 'ignore', env: { ...process.env, ...env } });
        const [status] = (await once(child, 'close')) as [number | null];
        return status;
      }),
    );
    return { ended, builds: readFileSync(join(root, 'built'), 'utf8').length };
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

test('commands that start at the same moment bundle a changed source once', async () => {
  assert.deepEqual(await bundle(5), { ended: [0, 0, 0, 0, 0], builds: 1 });
});

test('a bundle that cannot be built fails each command', async () => {
  assert.deepEqual(await bundle(2, { FAILS: '1' }), { ended: [3, 3], builds: 2 });
});
