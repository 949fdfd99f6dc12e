import {
  closeSync,
  constants,
  type Dir,
  fchmodSync,
  fchownSync,
  fstatSync,
  lchownSync,
  lstatSync,
  opendirSync,
  openSync,
  renameSync,
  rmdirSync,
  unlinkSync,
} from 'node:fs';
import { FairleadError, hasCode } from '../../lib/errors.ts';

// These functions block, and run in a thread of their own (file-thread.ts). Names are bytes, as in the kernel: a pod's need
// not be UTF-8. They are kept as Latin-1 text.

/** Entries of folders that are read at once: a folder of millions of files is not held in memory. */
const BATCH = 256;
/** Longer paths are beyond the kernel's limit (PATH_MAX, 4,096 bytes) with one more name. */
const MAX_PATH_BYTES = 3000;
/** Each level holds a descriptor. */
const MAX_DEPTH = 512;

const bytes = (path: string): Buffer => Buffer.from(path, 'latin1');
const latin1 = (path: string): string => Buffer.from(path).toString('latin1');

/**
 * Removes a folder or file with everything below it, of any depth: folders whose path is too long for the kernel are moved up
 * first. Succeeds if it does not exist.
 */
export function removeWholeTree(path: string): void {
  const top = latin1(path);
  let moved = 0;
  const remove = (folder: string): void => {
    for (const { name, isFolder } of entriesOf(folder)) {
      const below = `${folder}/${name}`;
      if (!isFolder) unlinkIfThere(below);
      else if (below.length < MAX_PATH_BYTES) remove(below);
      else renameSync(bytes(below), bytes(`${top}/.removed-${process.pid}-${moved++}`));
    }
    removeFolder(folder);
  };
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (stat && !stat.isDirectory()) unlinkIfThere(top);
  // Again for folders that were moved up.
  else while (lstatSync(path, { throwIfNoEntry: false })) remove(top);
}

function removeFolder(folder: string): void {
  try {
    rmdirSync(bytes(folder));
  } catch (error) {
    // ENOTEMPTY: a folder was moved up to this one; its parent is read again, at last `removeWholeTree` does.
    if (!hasCode(error, 'ENOENT', 'ENOTEMPTY')) throw error;
  }
}

function unlinkIfThere(path: string): void {
  try {
    unlinkSync(bytes(path));
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error;
  }
}

/**
 * Returns the bytes on disk of a folder or file and everything below it (st_blocks, as du counts; a file with several links
 * counts once for each). Infinity: folders are nested more than 512 deep. Entries that vanish meanwhile count as zero.
 */
export function measureTree(path: string): number {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (!stat) return 0;
  return stat.blocks * 512 + (stat.isDirectory() ? measureFolder(latin1(path), 1) : 0);
}

/** The path of a folder is that of its parent's descriptor: it never becomes too long. */
function measureFolder(path: string, depth: number): number {
  if (depth > MAX_DEPTH) return Number.POSITIVE_INFINITY;
  let fd: number;
  try {
    fd = openSync(bytes(path), constants.O_DIRECTORY | constants.O_NOFOLLOW);
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENOTDIR', 'ELOOP')) return 0;
    throw error;
  }
  try {
    const folder = `/proc/self/fd/${fd}`;
    let sum = 0;
    for (const { name } of entriesOf(folder)) {
      const below = `${folder}/${name}`;
      const stat = lstatSync(bytes(below), { throwIfNoEntry: false });
      if (!stat) continue;
      sum += stat.blocks * 512 + (stat.isDirectory() ? measureFolder(below, depth + 1) : 0);
      if (sum === Number.POSITIVE_INFINITY) break;
    }
    return sum;
  } finally {
    closeSync(fd);
  }
}

/**
 * Gives a folder and everything below it to a group, like upstream's SetVolumeOwnership: the group can read and write
 * everything, and owns new files too. Symbolic links are neither followed nor changed, even if they replace a file
 * meanwhile. Throws FairleadError "ENAMETOOLONG" for folders nested more than 512 deep.
 */
export function giveTreeToGroup(path: string, group: number): void {
  giveToGroup(latin1(path), group, 0);
}

function giveToGroup(path: string, group: number, depth: number): void {
  const stat = lstatSync(bytes(path), { throwIfNoEntry: false });
  if (!stat || stat.isSymbolicLink()) return;
  if (depth > MAX_DEPTH) {
    throw new FairleadError(`folders are nested more than ${MAX_DEPTH} deep`, {
      op: 'change group',
      code: 'ENAMETOOLONG',
    });
  }
  // Opening a device has effects.
  if (!stat.isFile() && !stat.isDirectory()) {
    lchownSync(bytes(path), stat.uid, group);
    return;
  }
  let fd: number;
  try {
    fd = openSync(bytes(path), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ELOOP')) return;
    throw error;
  }
  try {
    const { uid, mode } = fstatSync(fd);
    fchownSync(fd, uid, group);
    fchmodSync(fd, (mode & 0o7777) | (stat.isDirectory() ? 0o2770 : 0o660));
    if (!stat.isDirectory()) return;
    const folder = `/proc/self/fd/${fd}`;
    for (const { name } of entriesOf(folder)) giveToGroup(`${folder}/${name}`, group, depth + 1);
  } finally {
    closeSync(fd);
  }
}

function* entriesOf(path: string): Generator<{ readonly name: string; readonly isFolder: boolean }> {
  let folder: Dir;
  try {
    folder = opendirSync(bytes(path) as unknown as string, { encoding: 'latin1', bufferSize: BATCH });
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return;
    throw error;
  }
  try {
    for (let entry = folder.readSync(); entry; entry = folder.readSync()) {
      yield { name: entry.name, isFolder: entry.isDirectory() };
    }
  } finally {
    folder.closeSync();
  }
}
