import { closeSync, fstatSync, fsyncSync, ftruncateSync, openSync, statfsSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { isDiskFull } from '../lib/errors.ts';

/** Room on a disk that is given up in parts, so that deletions succeed when the disk is full. */
export interface DiskReserve {
  /** Gives up a part; false: there is nothing left. */
  release(): boolean;
  /** Takes back what was given up, if the disk has room; false: it has not, and ordinary writes must wait. */
  refill(): boolean;
  /** Tells whether the disk has room for what is missing, and some more. */
  hasRoom(): boolean;
  /** Describes the room on the disk: "0 MiB of 512 MiB free". */
  describe(): string;
  close(): void;
}

const RESERVE_BYTES = 8 * 1024 * 1024;
/** A deletion writes some pages of 4 KiB. Small, since other processes may take what is given up. */
const STEP_BYTES = 256 * 1024;
/** What must be free besides, so that the first write after a refill does not fail again. */
const MARGIN_BYTES = 1024 * 1024;
const MIB = 1024 * 1024;

/** Opens or makes the file that takes the room; a disk that is full already leaves it short. */
export function openDiskReserve(file: string, bytes = RESERVE_BYTES): DiskReserve {
  // Written zeros take blocks, which a file that is only made longer does not.
  const zeros = Buffer.alloc(STEP_BYTES);
  const folder = dirname(file);
  const fd = openSync(file, 'a', 0o600);
  let size = fstatSync(fd).size;
  const free = () => {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize;
  };
  const hasRoom = () => free() >= bytes - size + MARGIN_BYTES;
  const refill = () => {
    if (size >= bytes) return true;
    if (!hasRoom()) return false;
    const earlier = size;
    try {
      while (size < bytes) size += writeSync(fd, zeros, 0, Math.min(STEP_BYTES, bytes - size));
      fsyncSync(fd);
      return true;
    } catch (error) {
      if (!isDiskFull(error)) throw error;
      ftruncateSync(fd, earlier);
      size = earlier;
      return false;
    }
  };
  refill();
  return {
    release() {
      if (size === 0) return false;
      size = Math.max(0, size - STEP_BYTES);
      ftruncateSync(fd, size);
      return true;
    },
    refill,
    hasRoom,
    describe() {
      const { blocks, bsize } = statfsSync(folder);
      return `${Math.floor(free() / MIB)} MiB of ${Math.floor((blocks * bsize) / MIB)} MiB free`;
    },
    close: () => closeSync(fd),
  };
}
