import { closeSync } from 'node:fs';
import { libc, systemError } from './libc.ts';

/** Duplicates descriptors of another process of this user namespace (pidfd_getfd(2)); the caller closes the copies. */
export function copyDescriptors(pid: number, descriptors: readonly number[]): number[] {
  const pidfd = libc().pidfd_open(pid);
  if (pidfd < 0) throw systemError('open process', String(pid));
  const copies: number[] = [];
  try {
    for (const fd of descriptors) {
      const own = libc().pidfd_getfd(pidfd, fd);
      if (own < 0) throw systemError('copy a socket of process', String(pid));
      copies.push(own);
    }
    return copies;
  } catch (error) {
    for (const fd of copies) closeSync(fd);
    throw error;
  } finally {
    closeSync(pidfd);
  }
}
