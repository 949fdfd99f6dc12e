import { closeSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import { FairleadError } from '../../lib/errors.ts';
import { errnoName, libc, systemError } from '../libc.ts';

/** XT_LOCK_NAME of iptables, which takes another path from the variable XTABLES_LOCKFILE. */
const LOCK_FILE = '/run/xtables.lock';

// sys/file.h, bits/fcntl-linux.h
const LOCK_EX = 2;
const LOCK_NB = 4;
const O_CREAT = 0o100;
const O_CLOEXEC = 0o2000000;

/** The interval of attempts while another program has the lock. */
const RETRY_MS = 10;

/** The last holder within this process, whose release the next one awaits. */
let previous: Promise<void> = Promise.resolve();

/**
 * Runs `work` with the lock that programs of iptables-legacy share. Throws FairleadError EAGAIN if another program keeps
 * it for longer than `waitMs`.
 */
export async function withXtablesLock<T>(waitMs: number, work: () => Promise<T>): Promise<T> {
  const turn = previous;
  const { promise, resolve } = Promise.withResolvers<void>();
  previous = promise;
  await turn;
  try {
    const fd = await acquire(waitMs);
    try {
      return await work();
    } finally {
      closeSync(fd);
    }
  } finally {
    resolve();
  }
}

async function acquire(waitMs: number): Promise<number> {
  const path = process.env['XTABLES_LOCKFILE'] || LOCK_FILE;
  const fd = libc().open(path, O_CREAT | O_CLOEXEC, 0o600);
  if (fd < 0) throw systemError('open the lock of iptables', path);
  const end = performance.now() + waitMs;
  while (libc().flock(fd, LOCK_EX | LOCK_NB) !== 0) {
    const errno = libc().errno();
    if (errnoName(errno) !== 'EAGAIN' || performance.now() > end) {
      closeSync(fd);
      throw new FairleadError(
        `another program has held the iptables lock ${path} for more than ${waitMs / 1000} s`,
        {
          op: 'lock iptables',
          code: 'EAGAIN',
          object: path,
        },
      );
    }
    await setTimeout(RETRY_MS);
  }
  return fd;
}
