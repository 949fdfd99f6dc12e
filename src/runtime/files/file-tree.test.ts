import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, describe, test } from 'node:test';
import { removeTree, treeUsage } from './file-tree.ts';

const folder = mkdtempSync(join(tmpdir(), 'flt-tree-'));
const tree = join(folder, 'tree');
const outside = join(folder, 'outside');
after(async () => await removeTree(folder));
beforeEach(async () => {
  await removeTree(tree);
  rmSync(outside, { recursive: true, force: true });
  mkdirSync(tree);
  mkdirSync(outside);
  writeFileSync(join(outside, 'kept'), 'x'.repeat(100_000));
});

/** Nests folders, each below the next: their path is longer than the kernel's limit in the end. */
function nest(depth: number): void {
  for (let i = 0; i < depth; i++) {
    const upper = join(folder, 'upper');
    mkdirSync(upper);
    renameSync(tree, join(upper, 'd'.repeat(60)));
    renameSync(upper, tree);
  }
}

const ROWS: readonly {
  readonly what: string;
  readonly make: () => void;
  /** Bounds of the bytes on disk. */
  readonly atLeast: number;
  readonly atMost: number;
}[] = [
  {
    what: 'a small folder',
    make: () => writeFileSync(join(tree, 'file'), 'x'.repeat(50_000)),
    ...{ atLeast: 50_000, atMost: 70_000 },
  },
  {
    what: 'more files than are measured on the event loop',
    make: () => {
      for (let i = 0; i < 1000; i++) writeFileSync(join(tree, `file-${i}`), 'x'.repeat(4096));
    },
    ...{ atLeast: 4_096_000, atMost: 4_600_000 },
  },
  {
    what: 'folders whose path is longer than the kernel’s limit',
    make: () => {
      writeFileSync(join(tree, 'file'), 'x'.repeat(50_000));
      nest(100);
    },
    ...{ atLeast: 50_000, atMost: 1_000_000 },
  },
  {
    what: 'folders nested without end',
    make: () => nest(600),
    ...{ atLeast: Number.POSITIVE_INFINITY, atMost: Number.POSITIVE_INFINITY },
  },
  {
    what: 'names that are not UTF-8',
    make: () => {
      const name = Buffer.concat([Buffer.from(`${tree}/`), Buffer.of(0xff, 0xfe)]);
      mkdirSync(name);
      for (let i = 0; i < 500; i++) {
        writeFileSync(Buffer.concat([name, Buffer.from(`/f${i}`), Buffer.of(0xff)]), 'x'.repeat(4096));
      }
    },
    ...{ atLeast: 2_048_000, atMost: 2_400_000 },
  },
  {
    what: 'links to the outside and to themselves',
    make: () => {
      symlinkSync(outside, join(tree, 'out'));
      symlinkSync('.', join(tree, 'loop'));
      for (let i = 0; i < 500; i++) symlinkSync(outside, join(tree, `link-${i}`));
    },
    ...{ atLeast: 0, atMost: 60_000 },
  },
];

describe('a tree that a pod wrote is measured and removed:', () => {
  for (const { what, make, atLeast, atMost } of ROWS) {
    test(what, async () => {
      make();
      const bytes = await treeUsage(tree);
      assert.ok(bytes >= atLeast && bytes <= atMost, `${bytes} bytes`);
      await removeTree(tree);
      assert.ok(!existsSync(tree));
      assert.ok(existsSync(join(outside, 'kept')));
    });
  }
  test('one that does not exist', async () => {
    await removeTree(join(folder, 'missing'));
    assert.equal(await treeUsage(join(folder, 'missing')), 0);
  });
});
