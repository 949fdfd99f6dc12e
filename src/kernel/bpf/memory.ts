import { createRequire } from 'node:module';
import { systemError } from '../libc.ts';

// sys/mman.h
const PROT_READ = 1;
const PROT_WRITE = 2;
const MAP_SHARED = 1;
const SC_PAGESIZE = 30;

interface Calls {
  map(address: null, length: number, protection: number, flags: number, fd: number, offset: number): unknown;
  unmap(address: unknown, length: number): number;
  pageSize: number;
  view(address: unknown, length: number): ArrayBuffer;
  address(address: unknown): bigint;
}

let loaded: Calls | undefined;

function calls(): Calls {
  if (loaded) return loaded;
  const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
  const library = koffi.load(null);
  const sysconf = library.func('long sysconf(int name)');
  loaded = {
    map: library.func(
      'void *mmap(void *address, size_t length, int protection, int flags, int fd, long offset)',
    ),
    unmap: library.func('int munmap(void *address, size_t length)'),
    pageSize: Number(sysconf(SC_PAGESIZE)),
    view: (address, length) => koffi.view(address, length),
    address: (address) => koffi.address(address),
  };
  return loaded;
}

/** Returns the size of a memory page in bytes. */
export function pageSize(): number {
  return calls().pageSize;
}

/** Memory of a BPF map. */
export interface SharedMemory {
  /** Must not be accessed after `unmap`: the process would crash. */
  readonly bytes: ArrayBuffer;
  unmap(): void;
}

/**
 * Maps `length` bytes of a BPF map into this process, starting at a page boundary. Throws FairleadError
 * (mmap(2)).
 */
export function shareMemory(
  fd: number,
  length: number,
  { offset = 0, writable }: { readonly offset?: number; readonly writable: boolean },
): SharedMemory {
  const { map, unmap, view, address } = calls();
  const protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  const at = map(null, length, protection, MAP_SHARED, fd, offset);
  if (at === null || address(at) === 0xffff_ffff_ffff_ffffn) throw systemError('map memory of a BPF map');
  return { bytes: view(at, length), unmap: () => void unmap(at, length) };
}
