import { closeSync, constants, fchmodSync, fstatSync, mkdirSync, openSync } from 'node:fs';
import { normalize } from 'node:path';
import { openBeneath } from '../kernel/bounded-file.ts';
import { hasCode } from '../lib/errors.ts';

/** A subPath cannot be mounted: a link leads out of the volume, or the file does not exist. */
export type SubPathProblem = 'outside' | 'missing';

/**
 * Opens the folder or file `path` inside a volume, and creates missing folders if `mayCreate`. The pod's running containers may
 * replace any part of the path with a link at any time, so that a path that was checked does not stay safe: mount the descriptor.
 */
export function openSubPath(volume: string, path: string, mayCreate: boolean): number | SubPathProblem {
  const parts = normalize(path)
    .split('/')
    .filter((part) => part !== '' && part !== '.');
  let at = openSync(volume, constants.O_DIRECTORY | constants.O_RDONLY);
  const top = at;
  const mode = fstatSync(top).mode & 0o7777;
  try {
    for (let i = 0; i < parts.length; i++) {
      const inside = parts.slice(0, i + 1).join('/');
      let next = openPart(top, inside);
      if (next === 'missing' && mayCreate) {
        makeFolder(at, parts[i] ?? '', mode);
        next = openPart(top, inside);
      }
      if (typeof next !== 'number') return next;
      if (at !== top) closeSync(at);
      at = next;
    }
    const found = at;
    at = top;
    return found === top ? openBeneath(top, '.') : found;
  } finally {
    if (at !== top) closeSync(at);
    closeSync(top);
  }
}

function openPart(top: number, path: string): number | SubPathProblem {
  try {
    return openBeneath(top, path);
  } catch (error) {
    if (hasCode(error, 'EXDEV', 'ELOOP')) return 'outside';
    if (hasCode(error, 'ENOENT', 'ENOTDIR')) return 'missing';
    throw error;
  }
}

/** Makes a folder with the mode of the volume, so that the same users can write it. */
function makeFolder(parent: number, name: string, mode: number): void {
  const path = `/proc/self/fd/${parent}/${name}`;
  try {
    mkdirSync(path);
  } catch (error) {
    // A link to a missing file; or a container made it meanwhile.
    if (hasCode(error, 'EEXIST', 'ENOTDIR')) return;
    throw error;
  }
  let fd: number;
  try {
    fd = openSync(path, constants.O_DIRECTORY | constants.O_NOFOLLOW | constants.O_RDONLY);
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ELOOP', 'ENOTDIR')) return;
    throw error;
  }
  try {
    fchmodSync(fd, mode);
  } finally {
    closeSync(fd);
  }
}
