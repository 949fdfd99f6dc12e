import assert from 'node:assert/strict';
import { test } from 'node:test';
import { manualClock } from '../lib/clock.ts';
import { createLogOutput } from './log-output.ts';

/** A disk whose writes are completed by the test. */
function createDisk() {
  let text = '';
  let pending: (() => void) | null = null;
  let fault: string | null = null;
  let room = Number.POSITIVE_INFINITY;
  const clock = manualClock();
  const step = () => {
    const write = pending;
    pending = null;
    write?.();
    return write !== null;
  };
  const output = createLogOutput({
    write(bytes, done) {
      pending = () => {
        if (fault !== null) return done(Object.assign(new Error(fault), { code: fault }), 0);
        const part = bytes.subarray(0, room);
        text += part;
        done(null, part.length);
      };
    },
    writeSync(bytes) {
      if (fault !== null) throw new Error(fault);
      text += bytes;
      return bytes.length;
    },
    clock,
    maxWaitingBytes: 20,
  });
  return {
    output,
    clock,
    fail: (code: string | null) => {
      fault = code;
    },
    limit: (bytes: number) => {
      room = bytes;
    },
    step,
    /** Completes the write in progress and the work that follows. */
    run() {
      while (step());
    },
    text: () => text,
  };
}

test('lines are written in order, written together while the disk is busy', () => {
  const disk = createDisk();
  for (const line of ['a\n', 'b\n', 'c\n']) disk.output.write(line);
  disk.run();
  assert.equal(disk.text(), 'a\nb\nc\n');
});

test('a full disk loses lines, and the log says how many once there is room', () => {
  const disk = createDisk();
  disk.fail('ENOSPC');
  disk.output.write('a\n');
  disk.run();
  disk.output.write('b\n');
  disk.run();
  disk.fail(null);
  disk.output.write('c\n');
  disk.run();
  const [notice = '', last] = disk.text().split('\n');
  assert.equal(JSON.parse(notice).msg, '2 lines of this log were lost: ENOSPC');
  assert.equal(last, 'c');
});

test('a line truncated by a full disk does not run into the next one', () => {
  const disk = createDisk();
  disk.limit(3);
  disk.output.write('abcdef\n');
  disk.step();
  disk.fail('ENOSPC');
  disk.step();
  disk.fail(null);
  disk.limit(1000);
  disk.output.write('next\n');
  disk.run();
  const lines = disk.text().split('\n');
  assert.deepEqual([lines[0], lines[2]], ['abc', 'next']);
});

test('a reader that does not read does not block: lines beyond the limit are dropped', () => {
  const disk = createDisk();
  for (let i = 0; i < 100; i++) disk.output.write(`line ${i}\n`);
  disk.run();
  assert.ok(disk.text().startsWith('line 0\n'));
  assert.ok(disk.text().split('\n').length < 10);
  assert.match(
    disk.text(),
    /lines of this log were lost: they were logged faster than they could be written/,
  );
});

test('writing to a full pipe is retried', () => {
  const disk = createDisk();
  disk.fail('EAGAIN');
  disk.output.write('a\n');
  disk.run();
  disk.fail(null);
  disk.clock.advance(20);
  disk.run();
  assert.equal(disk.text(), 'a\n');
});

test('at the end of the process pending lines are written at once', () => {
  const disk = createDisk();
  disk.output.write('a\n');
  disk.output.write('b\n');
  disk.output.flush();
  assert.equal(disk.text(), 'b\n');
});
