import assert from 'node:assert/strict';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { libc } from '../kernel/libc.ts';
import { MS_BIND } from '../kernel/mount-flags.ts';
import { makeHostRoot } from './host-root.ts';

const folder = mkdtempSync(join(tmpdir(), 'flt-host-'));
const mounts: string[] = [];
after(() => {
  for (const path of mounts.reverse()) libc().umount2(path, 2);
  rmSync(folder, { recursive: true, force: true });
});

function mount(type: string, path: string, data: string): void {
  mkdirSync(path, { recursive: true });
  assert.equal(libc().mount(type, path, type, 0, data), 0);
  mounts.push(path);
}

test('a built-in image contains programs and world-readable files, and nothing else of the machine', () => {
  const root = join(folder, 'root');
  // As overlayfs refuses layers that lie in each other, each in a separate file system.
  for (const name of ['root', 'over']) mount('tmpfs', join(folder, name), 'mode=755');
  const files = {
    'usr/bin/tool': 0o755,
    'etc/passwd': 0o644,
    'etc/shadow': 0o640,
    'etc/ssh/ssh_config': 0o644,
    'etc/ssh/host_key': 0o600,
    'etc/ssl/private/key': 0o644,
    'root/.kube/config': 0o644,
    'home/user/file': 0o644,
    'var/lib/fairlead/default/ca.key': 0o644,
    vmlinuz: 0o644,
    'work/repository': 0o644,
  };
  for (const [path, mode] of Object.entries(files)) {
    mkdirSync(join(root, path, '..'), { recursive: true });
    writeFileSync(join(root, path), path);
    chmodSync(join(root, path), mode);
  }
  chmodSync(join(root, 'etc/ssl/private'), 0o710);
  symlinkSync('usr/bin', join(root, 'bin'));
  mounts.push(join(folder, 'layers'));
  const { layers, trees } = makeHostRoot(join(folder, 'layers'), root);
  assert.deepEqual(trees, []);
  const over = join(folder, 'over');
  for (const name of ['upper', 'work']) mkdirSync(join(over, name));
  const merged = join(folder, 'merged');
  mount('overlay', merged, `lowerdir=${layers.join(':')},upperdir=${over}/upper,workdir=${over}/work`);
  const shown = Object.keys(files).filter((path) => existsSync(join(merged, path)));
  assert.deepEqual(shown, ['usr/bin/tool', 'etc/passwd', 'etc/ssh/ssh_config']);
  assert.equal(readFileSync(join(merged, 'bin/tool'), 'utf8'), 'usr/bin/tool');
  for (const path of ['root', 'home', 'work', 'var/lib', 'var/tmp'])
    assert.ok(existsSync(join(merged, path)), path);
  writeFileSync(join(merged, 'var/lib/own'), 'x');
  writeFileSync(join(merged, 'etc/shadow'), 'own');
  assert.equal(readFileSync(join(root, 'etc/shadow'), 'utf8'), 'etc/shadow');
});

test('in a user namespace, folders with mounts below them are shown without these as layers', () => {
  const root = join(folder, 'partial-root');
  mount('tmpfs', root, 'mode=755');
  const files = {
    'usr/bin/tool': 0o755,
    'usr/readme': 0o644,
    'usr/share/data/file': 0o644,
    'etc/passwd': 0o644,
    'etc/resolv.conf': 0o644,
    'etc/shadow': 0o640,
    'etc/ssl/private/key': 0o644,
    'etc/ssl/ca.pem': 0o644,
  };
  for (const [path, mode] of Object.entries(files)) {
    mkdirSync(join(root, path, '..'), { recursive: true });
    writeFileSync(join(root, path), path);
    chmodSync(join(root, path), mode);
  }
  chmodSync(join(root, 'etc/ssl/private'), 0o710);
  symlinkSync('usr/bin', join(root, 'bin'));
  const resolv = join(root, 'etc/resolv.conf');
  assert.equal(libc().mount(join(root, 'etc/passwd'), resolv, '', MS_BIND, ''), 0);
  mounts.push(resolv);
  mount('tmpfs', join(root, 'usr/share/other'), 'mode=755');
  mounts.push(join(folder, 'partial'));
  const { layers, trees } = makeHostRoot(join(folder, 'partial'), root, true);
  assert.deepEqual(trees.map(({ path }) => path).sort(), ['usr/bin', 'usr/share/data', 'usr/share/other']);
  const [shown = ''] = layers;
  assert.equal(layers.length, 1);
  assert.equal(readFileSync(join(shown, 'etc/resolv.conf'), 'utf8'), 'etc/passwd');
  assert.equal(readFileSync(join(shown, 'etc/ssl/ca.pem'), 'utf8'), 'etc/ssl/ca.pem');
  assert.equal(readFileSync(join(shown, 'usr/readme'), 'utf8'), 'usr/readme');
  for (const path of ['etc/shadow', 'etc/ssl/private', 'usr/bin/tool'])
    assert.equal(existsSync(join(shown, path)), false, path);
});
