import { loadKoffi } from './koffi.ts';
import { systemError } from './libc.ts';

// sys/mman.h
const PROT_READ = 1;
const PROT_WRITE = 2;
const MAP_SHARED = 1;
const MAP_PRIVATE = 2;
const MAP_ANONYMOUS = 0x20;
const MAP_NORESERVE = 0x4000;
const MADV_DONTNEED = 4;
const MADV_HUGEPAGE = 14;
const SC_PAGESIZE = 30;

interface Calls {
  map(address: null, length: number, protection: number, flags: number, fd: number, offset: number): unknown;
  unmap(address: unknown, length: number): number;
  advise(address: unknown, length: number, advice: number): number;
  pageSize: number;
  view(address: unknown, length: number): ArrayBuffer;
  address(address: unknown): bigint;
}

let loaded: Calls | undefined;

function calls(): Calls {
  if (loaded) return loaded;
  const koffi = loadKoffi();
  const library = koffi.load(null);
  const sysconf = library.func('long sysconf(int name)');
  loaded = {
    map: library.func(
      'void *mmap(void *address, size_t length, int protection, int flags, int fd, long offset)',
    ),
    unmap: library.func('int munmap(void *address, size_t length)'),
    advise: library.func('int madvise(void *address, size_t length, int advice)'),
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

/** Zeroed memory outside of the heap, returned to the system at once by `free`. */
export interface ReservedMemory extends Disposable {
  /** Must not be accessed after `free`. */
  readonly bytes: Buffer;
  readonly address: bigint;
  free(): void;
}

/** Memory of less than a huge page has no use for one. */
const HUGE_PAGE = 1 << 21;
const SMALLEST = 1 << 16;

/** A reservation. Its memory may be given back while the addresses stay. */
interface Reservation {
  readonly at: unknown;
  readonly view: ArrayBuffer;
}

/**
 * Reservations without memory, for reuse: V8 counts each new view of memory as if it were on the heap, and would collect
 * garbage at every change of a large table.
 */
const idle: Reservation[] = [];
const MAX_IDLE = 3;

/**
 * Reserves `length` bytes of which only pages that are written take memory. Throws FairleadError (mmap(2)).
 */
export function reserveMemory(length: number): ReservedMemory {
  const reservation = takeIdle(length) ?? reserve(length);
  const { view } = reservation;
  const free = () => {
    if (freed) return;
    freed = true;
    giveBack(reservation);
  };
  let freed = false;
  return {
    bytes: Buffer.from(view, 0, length),
    address: calls().address(reservation.at),
    free,
    [Symbol.dispose]: free,
  };
}

/** Returns an idle reservation that has room without being twice as large. */
function takeIdle(length: number): Reservation | null {
  const wanted = Math.max(length, SMALLEST);
  const found = idle.findIndex(({ view }) => view.byteLength >= wanted && view.byteLength < 2 * wanted);
  return found < 0 ? null : (idle.splice(found, 1)[0] ?? null);
}

function reserve(length: number): Reservation {
  const { map, advise, view, address } = calls();
  // With an eighth more at most, the table of the next change has room too.
  const step = Math.max(SMALLEST, 2 ** (Math.floor(Math.log2(length)) - 3));
  const size = Math.ceil(length / step) * step;
  const at = map(null, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at === null || address(at) === 0xffff_ffff_ffff_ffffn) throw systemError('reserve memory');
  // Advice only: a kernel without huge pages refuses it.
  if (size > HUGE_PAGE) advise(at, size, MADV_HUGEPAGE);
  return { at, view: view(at, size) };
}

function giveBack(reservation: Reservation): void {
  const { advise, unmap } = calls();
  // The pages are zero again when they are used next; a locked page would not be.
  const isEmpty = advise(reservation.at, reservation.view.byteLength, MADV_DONTNEED) === 0;
  if (isEmpty) idle.push(reservation);
  else unmap(reservation.at, reservation.view.byteLength);
  const surplus = idle.length > MAX_IDLE ? idle.shift() : undefined;
  if (surplus) unmap(surplus.at, surplus.view.byteLength);
}
