import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { reserveCluster } from './testing/cluster.ts';
import { type PackedProject, packedProject } from './testing/packed-package.ts';

// The npm package in an empty project; npm checks that its dependencies are complete.

const manifest = JSON.parse(readFileSync(join(import.meta.dirname, '..', 'package.json'), 'utf8')) as {
  readonly version: string;
};
const folder = mkdtempSync(join(tmpdir(), 'npm-package-'));
const { name, stateRoot } = reserveCluster();
let project: PackedProject;

const run = (file: string, ...words: readonly string[]) => project.run(file, ...words);
const npx = (...words: readonly string[]) => run('npx', '--no-install', 'fairlead', ...words);

before(async () => {
  project = await packedProject(folder, { FAIRLEAD_STATE: stateRoot });
});
after(async () => {
  if (existsSync(join(stateRoot, name))) await npx('down', '--name', name);
  for (const path of [folder, stateRoot]) rmSync(path, { recursive: true, force: true });
});

test('it has what it needs to run, and no sources or tests', () => {
  for (const path of [
    'fairlead',
    'tools/setup.sh',
    'dist/fairlead.mjs',
    'dist/agent.cjs',
    'dist/testing.mjs',
    'dist/testing.d.ts',
    'LICENSE',
    'README.md',
  ])
    assert.ok(project.packed.includes(path), path);
  assert.deepEqual(
    project.packed.filter((path) => /^(src|tests|bench|cni|bpf)\/|\.map$|\.test\./.test(path)),
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
