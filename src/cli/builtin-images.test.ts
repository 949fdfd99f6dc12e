import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, closeSync, mkdtempSync, openSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { builtinImages } from './builtin-images.ts';

const folder = mkdtempSync(join(tmpdir(), 'fairlead-images-'));
after(() => rmSync(folder, { recursive: true }));

/** Returns the file that is on the PATH of containers. */
function launcher(): string {
  const mounts = builtinImages(folder, '/opt/app/dist/fairlead.mjs')['fairlead']?.mounts ?? [];
  return mounts.find(({ destination }) => destination === '/usr/local/bin/fairlead')?.source ?? '';
}

test('all users may execute the launcher', () => {
  const previous = process.umask(0o077);
  try {
    assert.equal(statSync(launcher()).mode & 0o777, 0o755);
  } finally {
    process.umask(previous);
  }
});

test('an agent that starts leaves the launcher that pods execute as it is', () => {
  const file = launcher();
  const { ino, mtimeNs } = statSync(file, { bigint: true });
  launcher();
  const now = statSync(file, { bigint: true });
  assert.deepEqual({ ino: now.ino, mtimeNs: now.mtimeNs }, { ino, mtimeNs });
});

test('another version replaces the file, while pods go on with theirs', () => {
  const file = launcher();
  execFileSync('sh', ['-c', 'echo "#!/bin/sh" > "$1"', 'sh', file]);
  chmodSync(file, 0o755);
  const held = openSync(file, 'r');
  try {
    launcher();
    assert.equal(
      execFileSync('cat', [`/proc/self/fd/0`], { stdio: [held, 'pipe', 'inherit'] }).toString(),
      '#!/bin/sh\n',
    );
  } finally {
    closeSync(held);
  }
});
