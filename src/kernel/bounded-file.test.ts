import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { readAtMost, readInRoot } from './bounded-file.ts';

const folder = mkdtempSync(join(tmpdir(), 'flt-bounded-'));
const root = join(folder, 'root');
after(() => rmSync(folder, { recursive: true, force: true }));

before(() => {
  mkdirSync(join(root, 'etc'), { recursive: true });
  writeFileSync(join(folder, 'secret'), 'secret');
  writeFileSync(join(root, 'etc', 'short'), 'short');
  writeFileSync(join(root, 'etc', 'huge'), 'huge');
  truncateSync(join(root, 'etc', 'huge'), 3 * 2 ** 30);
  execFileSync('mkfifo', [join(root, 'etc', 'pipe')]);
  symlinkSync('/etc/short', join(root, 'etc', 'absolute'));
  symlinkSync('../../../../secret', join(root, 'etc', 'up'));
  symlinkSync(join(folder, 'secret'), join(root, 'etc', 'out'));
  symlinkSync('loop', join(root, 'etc', 'loop'));
});

interface Row {
  readonly what: string;
  readonly file: string;
  readonly max?: number;
  /** The bytes, with "…" if there are more; or the error's code. */
  readonly own: string;
  readonly inRoot: string;
}

const ROWS: readonly Row[] = [
  { what: 'a short file', file: 'short', own: 'short', inRoot: 'short' },
  { what: 'a file of exactly the limit', file: 'short', max: 5, own: 'short', inRoot: 'short' },
  { what: 'a file above the limit', file: 'short', max: 4, own: 'shor…', inRoot: 'shor…' },
  { what: 'a file of 3 GiB', file: 'huge', max: 6, own: 'huge\0\0…', inRoot: 'huge\0\0…' },
  { what: 'a pipe without a writer', file: 'pipe', own: 'not-a-file', inRoot: 'not-a-file' },
  { what: 'a folder', file: '.', own: 'not-a-file', inRoot: 'not-a-file' },
  { what: 'a missing file', file: 'missing', own: 'ENOENT', inRoot: 'ENOENT' },
  { what: 'a link to an absolute path', file: 'absolute', own: 'ELOOP', inRoot: 'short' },
  { what: 'a link to a path above the root', file: 'up', own: 'ELOOP', inRoot: 'ENOENT' },
  { what: 'a link to a file of the machine', file: 'out', own: 'ELOOP', inRoot: 'ENOENT' },
  { what: 'a link to itself', file: 'loop', own: 'ELOOP', inRoot: 'ELOOP' },
];

describe('the start of a file that others wrote', () => {
  for (const { what, file, max = 100, own, inRoot } of ROWS) {
    test(what, () => {
      assert.equal(
        outcome(() => readAtMost(join(root, 'etc', file), max)),
        own,
      );
      assert.equal(
        outcome(() => readInRoot(root, `etc/${file}`, max)),
        inRoot,
      );
    });
  }
});

function outcome(read: () => { readonly bytes: Buffer; readonly isCut: boolean }): string {
  try {
    const { bytes, isCut } = read();
    return `${bytes}${isCut ? '…' : ''}`;
  } catch (error) {
    return (error as { code: string }).code;
  }
}
