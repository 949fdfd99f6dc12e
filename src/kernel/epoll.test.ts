import assert from 'node:assert/strict';
import { writeSync } from 'node:fs';
import { test } from 'node:test';
import { eventually } from '../lib/testing/eventually.ts';
import { createEpoll, READY } from './epoll.ts';
import { libc } from './libc.ts';

// bits/socket.h
const SOCK_NONBLOCK = 0o4000;

/** Returns the ends of a pipe: one to read, one to write. */
function openPipe(): [number, number] {
  const ends = new Int32Array(2);
  assert.equal(libc().pipe2(ends, SOCK_NONBLOCK), 0);
  return [ends[0] ?? -1, ends[1] ?? -1];
}

const write = (fd: number) => void writeSync(fd, 'x');

test('readiness is reported until it is used, or once for each change', async () => {
  const epoll = createEpoll();
  const pipes = [openPipe(), openPipe()] as const;
  const seen = { always: 0, changes: 0 };
  epoll.watch(pipes[0][0], READY.readable, () => seen.always++);
  epoll.watch(pipes[1][0], READY.readable | READY.changes, () => seen.changes++);
  for (const [, to] of pipes) write(to);
  await eventually(() => seen.always > 3);
  assert.equal(seen.changes, 1);
  write(pipes[1][1]);
  await eventually(() => seen.changes === 2);
  // A descriptor that is ready already is reported to the next callback too.
  epoll.watch(pipes[1][0], READY.readable | READY.changes, () => (seen.changes += 10));
  await eventually(() => seen.changes === 12);
  for (const pipe of pipes) for (const fd of pipe) epoll.close(fd);
});

test('a descriptor with the number of a closed one gets no events of that one', async () => {
  const epoll = createEpoll();
  const seen: string[] = [];
  const [from, to] = openPipe();
  epoll.watch(from, READY.readable | READY.changes, () => seen.push('first'));
  epoll.again(from, READY.readable);
  epoll.close(from);
  epoll.close(to);
  const [next, nextTo] = openPipe();
  assert.equal(next, from);
  epoll.watch(next, READY.readable | READY.changes, () => seen.push('second'));
  write(nextTo);
  await eventually(() => seen.length > 0);
  assert.deepEqual(seen, ['second']);
  epoll.close(next);
  epoll.close(nextTo);
});

test('a descriptor that is continued is reported again, without a change', async () => {
  const epoll = createEpoll();
  const [from, to] = openPipe();
  let seen = 0;
  epoll.watch(from, READY.readable | READY.changes, (ready) => {
    if (++seen < 5) epoll.again(from, ready);
  });
  write(to);
  await eventually(() => seen === 5);
  epoll.close(from);
  epoll.close(to);
});
