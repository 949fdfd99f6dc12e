import { closeSync, fstatSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { libc, systemError } from '../kernel/libc.ts';
import { MNT_DETACH, MS_BIND, MS_REC } from '../kernel/mount-flags.ts';
import { readOptionalFolder } from '../kernel/optional-file.ts';

const folderOf = (bundle: string): string => join(bundle, 'pinned');

/** Files that a run of a container mounts, at paths that no pod can change. */
export interface PinnedFiles {
  /** Mounts an open file at a path of its own, closes the descriptor, and returns the path. Throws the kernel's error. */
  pin(fd: number): string;
  /** Unmounts the files; the container's own mounts of them stay. */
  release(): void;
}

/**
 * Mounts open files in the folder of a run while its container is created: the OCI runtime takes paths, and opens them in a
 * mount namespace of its own, in which descriptors of this process cannot be mounted.
 */
export function pinFiles(bundle: string): PinnedFiles {
  const folder = folderOf(bundle);
  let count = 0;
  return {
    pin(fd) {
      const path = join(folder, String(count++));
      try {
        mkdirSync(folder, { recursive: true, mode: 0o700 });
        if (fstatSync(fd).isDirectory()) mkdirSync(path, { recursive: true });
        else writeFileSync(path, '');
        if (libc().mount(`/proc/self/fd/${fd}`, path, null, MS_BIND | MS_REC, null) !== 0)
          throw systemError('mount', path);
      } finally {
        closeSync(fd);
      }
      return path;
    },
    release: () => releasePinned(bundle),
  };
}

/** Unmounts the pinned files of a run, also those of a process that was killed. */
export function releasePinned(bundle: string): void {
  const folder = folderOf(bundle);
  for (const name of readOptionalFolder(folder)) {
    const path = join(folder, name);
    while (libc().umount2(path, MNT_DETACH) === 0);
    const error = systemError('unmount', path);
    // EINVAL: not mounted.
    if (error.code !== 'EINVAL' && error.code !== 'ENOENT') throw error;
  }
}
