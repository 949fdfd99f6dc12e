import { createRequire } from 'node:module';
import { libc, type Poll, systemError } from '../libc.ts';

// sys/mman.h
const PROT_READ = 1;
const PROT_WRITE = 2;
const MAP_SHARED = 1;
const SC_PAGESIZE = 30;
// linux/bpf.h: bits of a record's length
const BUSY = 0x8000_0000;
const DISCARDED = 0x4000_0000;
const HEADER_SIZE = 8;

interface Memory {
  map(address: null, length: number, protection: number, flags: number, fd: number, offset: number): unknown;
  unmap(address: unknown, length: number): number;
  pageSize(): number;
  view(address: unknown, length: number): ArrayBuffer;
  address(address: unknown): bigint;
}

let loaded: Memory | undefined;

function memory(): Memory {
  if (loaded) return loaded;
  const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
  const library = koffi.load(null);
  const sysconf = library.func('long sysconf(int name)');
  loaded = {
    map: library.func(
      'void *mmap(void *address, size_t length, int protection, int flags, int fd, long offset)',
    ),
    unmap: library.func('int munmap(void *address, size_t length)'),
    pageSize: () => Number(sysconf(SC_PAGESIZE)),
    view: (address, length) => koffi.view(address, length),
    address: (address) => koffi.address(address),
  };
  return loaded;
}

/** The reader of a BPF ring buffer; there may be one at a time. */
export interface RingReader {
  /** Hands over what has come, oldest first, without waiting; the bytes are valid during the call only. */
  drain(): void;
  close(): void;
}

/**
 * Reads a BPF_MAP_TYPE_RINGBUF of `size` bytes (kernel 5.8): `onRecord` is called with each record as programs submit
 * them, from the event loop. A reader does not keep the process alive. (Documentation/bpf/ringbuf.rst)
 */
export function readRing(fd: number, size: number, onRecord: (record: Uint8Array) => void): RingReader {
  const { map, unmap, pageSize, view, address } = memory();
  const page = pageSize();
  const mapped: [unknown, number][] = [];
  const share = (length: number, protection: number, offset: number): ArrayBuffer => {
    const at = map(null, length, protection, MAP_SHARED, fd, offset);
    if (at === null || address(at) === 0xffff_ffff_ffff_ffffn) throw systemError('map BPF ring buffer');
    mapped.push([at, length]);
    return view(at, length);
  };
  const release = () => {
    for (const [at, length] of mapped.splice(0)) unmap(at, length);
  };
  let consumer: BigUint64Array;
  let producer: BigUint64Array;
  let data: ArrayBuffer;
  try {
    consumer = new BigUint64Array(share(page, PROT_READ | PROT_WRITE, 0), 0, 1);
    // The data stand there twice in a row, so that no record is cut at the end.
    data = share(page + 2 * size, PROT_READ, page);
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
