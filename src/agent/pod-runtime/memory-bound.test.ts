import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { boundMemory, memoryKills, ownMemory } from './memory-bound.ts';

/** A folder with the files of a cgroup v2 hierarchy. */
let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'flt-groups-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const offer = (controllers: string) => writeFileSync(join(root, 'cgroup.controllers'), `${controllers}\n`);
const read = (...path: string[]) => readFileSync(join(root, ...path), 'utf8');

describe('the memory of a process', () => {
  test('is bounded in a group of its own, whose parents give their memory controller to it', async () => {
    offer('cpu memory pids');
    const group = await boundMemory(root, '/fairlead/node-1', 4711, 1 << 29);
    assert.equal(group, join(root, 'fairlead', 'node-1', 'runtime-4711'));
    const own = ['fairlead', 'node-1', 'runtime-4711'] as const;
    assert.equal(read(...own, 'memory.max'), String(1 << 29));
    assert.equal(read(...own, 'memory.swap.max'), '0');
    assert.equal(read(...own, 'cgroup.procs'), '4711');
    for (const parent of [[], ['fairlead'], ['fairlead', 'node-1']])
      assert.equal(read(...parent, 'cgroup.subtree_control'), '+memory', parent.join('/'));
    assert.ok(!existsSync(join(root, ...own, 'cgroup.subtree_control')), 'a group with processes has none');
  });

  test('is not, where the hierarchy has no memory controller (mixed with v1)', async () => {
    offer('hugetlb');
    assert.equal(await boundMemory(root, '/fairlead', 4711, 1), null);
    assert.ok(!existsSync(join(root, 'fairlead')));
  });

  test('groups of earlier runs are removed when they are empty', async () => {
    offer('memory');
    const [empty, inUse] = ['runtime-1', 'runtime-2'].map((name) => join(root, 'fairlead', name));
    assert.ok(empty && inUse);
    mkdirSync(empty, { recursive: true });
    mkdirSync(join(inUse, 'monitor'), { recursive: true });
    await boundMemory(root, '/fairlead', 4711, 1);
    assert.ok(!existsSync(empty));
    assert.ok(existsSync(inUse));
  });
});

test('the kernel counts the processes that it has killed for memory', () => {
  assert.equal(memoryKills(root), 0);
  writeFileSync(join(root, 'memory.events'), 'low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n');
  assert.equal(memoryKills(root), 1);
});

test('the own memory of a process grows with its buffers; that of an ended one is 0', () => {
  const before = ownMemory(process.pid);
  const buffer = Buffer.alloc(64 << 20, 1);
  assert.ok(ownMemory(process.pid) - before > 48 << 20, `${buffer.length} bytes`);
  // Beyond the largest pid of the kernel.
  assert.equal(ownMemory(2 ** 30), 0);
});
