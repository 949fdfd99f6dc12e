import assert from 'node:assert/strict';
import { closeSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { rotateLogs } from './log-rotation.ts';

test('a log over the limit is rotated while its process keeps writing to it', () => {
  const folder = mkdtempSync(join(tmpdir(), 'flt-logs-'));
  const fd = openSync(join(folder, 'node-1.log'), 'a');
  const read = (name: string) => readFileSync(join(folder, name), 'utf8');
  try {
    writeSync(fd, 'short\n');
    assert.deepEqual(rotateLogs(folder, 10), []);
    writeSync(fd, 'now it is long\n');
    assert.deepEqual(rotateLogs(folder, 10), ['node-1.log']);
    writeSync(fd, 'after\n');
    assert.deepEqual([read('node-1.log'), read('node-1.log.1')], ['after\n', 'short\nnow it is long\n']);
    writeSync(fd, 'long again\n');
    rotateLogs(folder, 10);
    assert.equal(read('node-1.log.1'), 'after\nlong again\n');
    assert.deepEqual(readdirSync(folder).sort(), ['node-1.log', 'node-1.log.1']);
  } finally {
    closeSync(fd);
    rmSync(folder, { recursive: true });
  }
});

test('a cluster without logs', () => {
  assert.deepEqual(rotateLogs('/nonexistent'), []);
});
