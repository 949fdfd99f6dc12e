import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmdirSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { spreadFolders } from './spread-folders.ts';

// linux/magic.h
const EXT4 = 0xef53;

for (const parent of [tmpdir(), '/dev/shm']) {
  const isExt4 = statfsSync(parent).type === EXT4;
  test(`a folder in ${parent} ${isExt4 ? 'gets the attribute of ext4' : 'stays as it is'}`, () => {
    const folder = mkdtempSync(join(parent, 'spread-'));
    try {
      spreadFolders(folder);
      spreadFolders(folder);
      if (isExt4) assert.match(execFileSync('lsattr', ['-d', folder], { encoding: 'utf8' }), /^[-a-zA-Z]*T/);
    } finally {
      rmdirSync(folder);
    }
  });
}
