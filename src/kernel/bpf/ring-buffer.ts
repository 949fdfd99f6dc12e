import { libc, type Poll } from '../libc.ts';
import { pageSize, type SharedMemory, shareMemory } from '../mapped-memory.ts';

// linux/bpf.h: bits of a record's length
const BUSY = 0x8000_0000;
const DISCARDED = 0x4000_0000;
const HEADER_SIZE = 8;

/** The reader of a BPF ring buffer; a ring buffer has at most one reader at a time. */
export interface RingReader {
  /** Handles the records that have arrived, oldest first, without waiting. */
  drain(): void;
  close(): void;
}

/**
 * Reads a BPF_MAP_TYPE_RINGBUF of `size` bytes (kernel 5.8): `onRecord` is called with each record as programs submit
 * them, from the event loop. A reader does not keep the process alive. (Documentation/bpf/ringbuf.rst)
 */
export function readRing(fd: number, size: number, onRecord: (record: Uint8Array) => void): RingReader {
  const page = pageSize();
  const mapped: SharedMemory[] = [];
  const share = (length: number, offset: number, writable: boolean): ArrayBuffer => {
    const memory = shareMemory(fd, length, { offset, writable });
    mapped.push(memory);
    return memory.bytes;
  };
  const release = () => {
    for (const memory of mapped.splice(0)) memory.unmap();
  };
  let consumer: BigUint64Array;
  let producer: BigUint64Array;
  let data: ArrayBuffer;
  try {
    consumer = new BigUint64Array(share(page, 0, true), 0, 1);
    // The data pages are mapped twice in a row, so that every record is contiguous.
    data = share(page + 2 * size, page, false);
    producer = new BigUint64Array(data, 0, 1);
  } catch (error) {
    release();
    throw error;
  }
  const lengths = new Uint32Array(data);
  let closed = false;

  function drain(): void {
    while (!closed) {
      const at = Atomics.load(consumer, 0);
      if (at >= Atomics.load(producer, 0)) return;
      const offset = page + Number(at & BigInt(size - 1));
      const length = Atomics.load(lengths, offset / 4);
      if ((length & BUSY) !== 0) return;
      const bytes = length & ~DISCARDED;
      try {
        if ((length & DISCARDED) === 0) onRecord(new Uint8Array(data, offset + HEADER_SIZE, bytes));
      } finally {
        if (!closed) Atomics.store(consumer, 0, at + BigInt((HEADER_SIZE + bytes + 7) & ~7));
      }
    }
  }

  const poll: Poll = libc().poll(fd, drain);
  poll.unref();
  return {
    drain,
    close() {
      if (closed) return;
      closed = true;
      poll.close();
      release();
    },
  };
}
