import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { libc, systemError } from './libc.ts';

/** The start of a file. */
export interface FileStart {
  readonly bytes: Buffer;
  /** The file has more bytes. */
  readonly isCut: boolean;
}

/** Without O_NONBLOCK, opening a FIFO waits for its writer; O_NOFOLLOW refuses a link as the last part of the path. */
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY;
// asm-generic/fcntl.h, linux/openat2.h
const O_CLOEXEC = 0o2000000;
const O_PATH = 0o10000000;
const RESOLVE_NO_MAGICLINKS = 0x02;
const RESOLVE_BENEATH = 0x08;
const RESOLVE_IN_ROOT = 0x10;
/** A lookup that another process disturbs by renaming fails with EAGAIN: it is repeated. */
const LOOKUPS = 100;
const HOW_BYTES = 24;

/**
 * Reads at most `max` bytes from the start of a file that a pod or an image may have written. Throws the errno's code
 * (ELOOP for a symbolic link), and "not-a-file" for anything else than a regular file.
 */
export function readAtMost(path: string, max: number): FileStart {
  const fd = openSync(path, FLAGS);
  try {
    return readStart(fd, max, path);
  } finally {
    closeSync(fd);
  }
}

/** Works like readAtMost, but reads the end of the file: a sparse file of any size costs one read of `max` bytes. */
export function readEnd(path: string, max: number): Buffer {
  const fd = openSync(path, FLAGS);
  try {
    const size = sizeOf(fd, path);
    return readFrom(fd, Math.max(0, size - max), Math.min(max, size));
  } finally {
    closeSync(fd);
  }
}

/**
 * Works like readAtMost for a path inside the folder `root`, in which symbolic links are followed as if `root` were "/":
 * links of an image never lead to files of the machine (openat2(2), Linux 5.6).
 */
export function readInRoot(root: string, path: string, max: number): FileStart {
  const folder = openSync(root, constants.O_DIRECTORY);
  try {
    const flags = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;
    const fd = openResolved(folder, path, flags, RESOLVE_IN_ROOT);
    try {
      return readStart(fd, max, path);
    } finally {
      closeSync(fd);
    }
  } finally {
    closeSync(folder);
  }
}

/**
 * Returns a descriptor (O_PATH) of a file below an open folder. Links are followed, but none leads out of the folder, even if
 * they change meanwhile: else it throws "EXDEV".
 */
export const openBeneath = (folder: number, path: string): number =>
  openResolved(folder, path, O_PATH, RESOLVE_BENEATH);

function openResolved(folder: number, path: string, flags: number, resolve: number): number {
  const how = new DataView(new ArrayBuffer(HOW_BYTES));
  how.setBigUint64(0, BigInt(flags | O_CLOEXEC), true);
  how.setBigUint64(16, BigInt(resolve | RESOLVE_NO_MAGICLINKS), true);
  for (let left = LOOKUPS; ; left--) {
    const fd = libc().openat2(folder, path, new Uint8Array(how.buffer));
    if (fd >= 0) return fd;
    const error = systemError('open', path);
    if (left === 0 || !hasCode(error, 'EAGAIN')) throw error;
  }
}

function readStart(fd: number, max: number, path: string): FileStart {
  const size = sizeOf(fd, path);
  // One byte more shows whether the file is longer, even while it is written.
  const bytes = readFrom(fd, 0, Math.min(max, size) + 1);
  const end = Math.min(bytes.length, max);
  return { bytes: bytes.subarray(0, end), isCut: bytes.length > end || size > end };
}

/** Returns the size of an open regular file. */
function sizeOf(fd: number, path: string): number {
  const stat = fstatSync(fd);
  if (stat.isFile()) return stat.size;
  throw new FairleadError(`${path} is not a regular file`, { op: 'read file', code: 'not-a-file' });
}

/** Reads at most `max` bytes of an open file from `start` on. */
function readFrom(fd: number, start: number, max: number): Buffer {
  const buffer = Buffer.alloc(max);
  let length = 0;
  while (length < max) {
    const count = readSync(fd, buffer, length, max - length, start + length);
    if (count === 0) break;
    length += count;
  }
  return buffer.subarray(0, length);
}
