import { closeSync, fstatSync, fsyncSync, ftruncateSync, openSync, statfsSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { isDiskFull } from '../lib/errors.ts';

/** Reserved disk space that is released in steps, so that deletions succeed when the disk is full. */
export interface DiskReserve {
  /** Releases a step; returns false if the reserve is used up. */
  release(): boolean;
  /**
   * Reserves the released space again if the disk has room; returns false if it has not, and ordinary writes must wait.
   */
  refill(): boolean;
  /** Reports whether the disk has room for the released space plus a margin. */
  hasRoom(): boolean;
  /** Describes the reserved space: "0 MiB of 512 MiB free". */
  describe(): string;
  close(): void;
}

const RESERVE_BYTES = 8 * 1024 * 1024;
/** A deletion writes a few pages of 4 KiB. Small, since other processes may take the released space. */
const STEP_BYTES = 256 * 1024;
/** Additional free space, so that the first write after a refill does not fail again. */
const MARGIN_BYTES = 1024 * 1024;
const MIB = 1024 * 1024;

/** When the space is reserved: calls `fill` once; the result cancels it. */
export type Deferral = (fill: () => void) => () => void;

/**
 * Opens or creates the file that reserves the space; on a full disk it may be shorter. Writing it takes a slow disk long enough to
 * delay a start; until then, it is enough if the disk has room.
 */
export function openDiskReserve(file: string, fillLater: Deferral): DiskReserve {
  // Written zeros allocate blocks; extending the file alone does not.
  const zeros = Buffer.alloc(STEP_BYTES);
  const folder = dirname(file);
  const fd = openSync(file, 'a', 0o600);
  let size = fstatSync(fd).size;
  const free = () => {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize;
  };
  const hasRoom = () => free() >= RESERVE_BYTES - size + MARGIN_BYTES;
  let isAwaited = true;
  const refill = () => {
    if (size >= RESERVE_BYTES) return true;
    if (!hasRoom()) return false;
    if (isAwaited) return true;
    const earlier = size;
    try {
      while (size < RESERVE_BYTES)
        size += writeSync(fd, zeros, 0, Math.min(STEP_BYTES, RESERVE_BYTES - size));
      fsyncSync(fd);
      return true;
    } catch (error) {
      if (!isDiskFull(error)) throw error;
      ftruncateSync(fd, earlier);
      size = earlier;
      return false;
    }
  };
  const cancel = fillLater(() => {
    isAwaited = false;
    try {
      refill();
    } catch {
      // The next write tries again, and reports why it fails.
    }
  });
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
    close() {
      cancel();
      closeSync(fd);
    },
  };
}
