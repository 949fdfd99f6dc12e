import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { reserveCluster } from './testing/cluster.ts';

// The npm package, packed and put into an empty folder with no more than its dependencies, as npm would install it. Nothing
// is downloaded: dependencies are those of this repository, and npm checks that they are complete.

const ROOT = join(import.meta.dirname, '..');
const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { readonly version: string };
const folder = mkdtempSync(join(tmpdir(), 'npm-package-'));
const { name, stateRoot } = reserveCluster();
let packed: string[] = [];

const env = {
  ...process.env,
  // The launcher would install Node.js where this machine's is too old.
  PATH: [dirname(process.execPath), process.env['PATH']].join(delimiter),
  FAIRLEAD_STATE: stateRoot,
  npm_config_offline: 'true',
  npm_config_update_notifier: 'false',
};
const run = async (file: string, ...words: readonly string[]) =>
  (await promisify(execFile)(file, words, { cwd: folder, env, maxBuffer: 1 << 24, timeout: 180_000 })).stdout;
const npx = (...words: readonly string[]) => run('npx', '--no-install', 'fairlead', ...words);

before(async () => {
  // Not by the script prepack: it would replace the bundle that other tests use.
  const output = await run('npm', 'pack', ROOT, '--ignore-scripts', '--json', '--pack-destination', folder);
  const [tarball] = Object.values(JSON.parse(output) as Record<string, Packed>);
  assert.ok(tarball);
  packed = tarball.files.map(({ path }) => path);
  const modules = join(folder, 'node_modules');
  mkdirSync(join(modules, 'fairlead'), { recursive: true });
  await run('tar', '-xzf', tarball.filename, '--strip-components=1', '-C', join(modules, 'fairlead'));
  const lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as Lock;
  for (const [path, { dev }] of Object.entries(lock.packages)) {
    if (path === '' || dev || !existsSync(join(ROOT, path))) continue;
    cpSync(join(ROOT, path), join(folder, path), { recursive: true });
  }
  const dependencies = { fairlead: manifest.version };
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ private: true, dependencies }));
  await run('npm', 'rebuild', '--ignore-scripts', 'fairlead');
});
after(async () => {
  if (existsSync(join(stateRoot, name))) await npx('down', '--name', name);
  for (const path of [folder, stateRoot]) rmSync(path, { recursive: true, force: true });
});

interface Packed {
  readonly filename: string;
  readonly files: readonly { readonly path: string }[];
}
interface Lock {
  readonly packages: Readonly<Record<string, { readonly dev?: boolean }>>;
}

test('it has what it needs to run, and no sources or tests', () => {
  for (const path of [
    'fairlead',
    'tools/setup.sh',
    'dist/fairlead.mjs',
    'dist/agent.cjs',
    'LICENSE',
    'README.md',
  ])
    assert.ok(packed.includes(path), path);
  assert.deepEqual(
    packed.filter((path) => /^(src|tests|bench|cni|bpf)\/|\.map$|\.test\./.test(path)),
    [],
  );
});

test('npm finds all of its dependencies, in the versions that it names', async () => {
  const tree = JSON.parse(await run('npm', 'ls', '--all', '--json')) as { readonly problems?: string[] };
  assert.deepEqual(tree.problems ?? [], []);
});

test('npx fairlead: the version', async () => {
  assert.match(await npx('--version'), new RegExp(`^fairlead ${manifest.version.replaceAll('.', '\\.')}\\b`));
});

test('npx fairlead: a cluster with pods, up and down', async () => {
  const example = join(folder, 'node_modules', 'fairlead', 'examples', 'hello.yaml');
  await npx('up', '--detach', '--name', name, '--nodes', '1', '--timeout', '120', '-f', example);
  assert.match(
    await npx('exec', '--name', name, 'client', '--', 'fairlead', 'request', 'http://hello'),
    /hello-/,
  );
  await npx('down', '--name', name);
  assert.equal(existsSync(join(stateRoot, name)), false);
});
