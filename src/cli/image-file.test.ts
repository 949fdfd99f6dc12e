import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { withImageFile } from './image-file.ts';

let folder: string;
let path: string | undefined;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'flt-load-'));
  path = process.env['PATH'];
});
afterEach(() => {
  process.env['PATH'] = path;
  rmSync(folder, { recursive: true, force: true });
});

/** Puts programs in place of docker, podman and containerd's, which write what a shell script says. */
function install(programs: Readonly<Record<string, string>>): void {
  for (const [name, script] of Object.entries(programs))
    writeFileSync(join(folder, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  process.env['PATH'] = `${folder}:/nonexistent`;
}
const kept = () => join(folder, 'kept');
const contents = (subject: string) =>
  withImageFile(subject, kept(), async (file) => readFileSync(file, 'utf8'));

describe('image load', () => {
  test('a file has precedence over an image of its name', async () => {
    install({ docker: 'echo image' });
    writeFileSync(join(folder, 'app'), 'file');
    assert.equal(await contents(join(folder, 'app')), 'file');
  });
  test('an image of a program, and its temporary file is removed', async () => {
    install({ docker: 'echo "$@"' });
    assert.equal(await contents('app:1'), 'save app:1\n');
    assert.equal(existsSync(kept()), false);
  });
  test('the next program is asked when one does not have it', async () => {
    install({ docker: '/bin/echo partial; /bin/echo no such image >&2; exit 1', podman: '/bin/echo podman' });
    assert.equal(await contents('app:1'), 'podman\n');
  });
  test('containerd gets the full name, in both of its usual namespaces', async () => {
    install({ ctr: 'case "$*" in *k8s.io*) echo "$@" ;; *) exit 1 ;; esac' });
    assert.equal(await contents('app'), '--namespace k8s.io images export - docker.io/library/app:latest\n');
  });
  test('without any of them, the error names what was looked for', async () => {
    install({});
    await assert.rejects(contents('app:1'), {
      code: 'ENOENT',
      message: /no such file: app:1.*docker, podman/,
    });
    install({ docker: 'echo the daemon is down >&2; exit 1' });
    await assert.rejects(contents('app:1'), { message: /docker: the daemon is down/ });
  });
  for (const name of ['./app', 'app.tar', '/app', 'App', '--all'])
    test(`${name} is not the name of an image`, async () => {
      install({ docker: 'echo image' });
      await assert.rejects(contents(name), { code: 'ENOENT', syscall: 'open' });
    });
  test('standard input', () => {
    const script = `import { withImageFile } from ${JSON.stringify(join(import.meta.dirname, 'image-file.ts'))};
import { readFileSync } from 'node:fs';
await withImageFile('-', ${JSON.stringify(kept())}, async (file) => console.log(readFileSync(file).length));`;
    const { stdout } = spawnSync(process.execPath, ['--input-type=module', '--eval', script], {
      input: Buffer.alloc(1_000_000),
      encoding: 'utf8',
    });
    assert.equal(stdout, '1000000\n');
  });
});
