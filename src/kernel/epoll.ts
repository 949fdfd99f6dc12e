import { loadKoffi } from './koffi.ts';
import { libc, type Poll, systemError } from './libc.ts';

// sys/epoll.h
const EPOLL_CLOEXEC = 0o2000000;
const EPOLL_CTL_ADD = 1;
const EPOLL_CTL_MOD = 3;
/** struct epoll_event is packed on x86-64 only. */
const EVENT = process.arch === 'x64' ? { bytes: 12, data: 4 } : { bytes: 16, data: 8 };
const MAX_EVENTS = 128;
/** How often one turn of Node's event loop asks for more events, so that many busy descriptors do not block it. */
const ROUNDS_PER_TURN = 8;

/** Kinds of readiness (enum EPOLL_EVENTS). Errors are always reported. */
export const READY = {
  readable: 1,
  /** The peer has sent urgent data, at which a read ends early. */
  urgent: 2,
  writable: 4,
  error: 8,
  /** The peer has ended its data. */
  ended: 0x2000,
  /** Only changes are reported: the descriptor must be used until it would block, or continued with `again`. */
  changes: 0x8000_0000,
} as const;

/** Called with the kinds of readiness. What it throws is an uncaught exception of the process. */
type OnReady = (ready: number) => void;

/**
 * Reports when descriptors are ready (epoll(7)), in Node's event loop but without its objects for each descriptor and
 * operation. Uses a descriptor of its own while it watches any.
 */
export interface Epoll {
  /** Watches a descriptor, or changes how it is watched: what is ready already is reported too. */
  watch(fd: number, kinds: number, onReady: OnReady): void;
  /** Calls the descriptor's `onReady` in the next turn, after others had theirs. */
  again(fd: number, ready: number): void;
  /** Forgets a descriptor, watched or not, that the caller closes right after. */
  forget(fd: number): void;
  /** Forgets a descriptor, watched or not, and closes it. */
  close(fd: number): void;
}

/** Throws outside of the callback from native code, in which an exception would stay pending. */
function call(onReady: OnReady | undefined, ready: number): void {
  try {
    onReady?.(ready);
  } catch (error) {
    setImmediate(() => {
      throw error;
    });
  }
}

interface Calls {
  create(flags: number): number;
  control(epoll: number, operation: number, fd: number, event: Uint8Array): number;
  wait(epoll: number, events: Uint8Array, count: number, timeoutMs: number): number;
}

let loaded: Calls | undefined;

function calls(): Calls {
  if (loaded) return loaded;
  const library = loadKoffi().load(null);
  loaded = {
    create: library.func('int epoll_create1(int flags)'),
    control: library.func('int epoll_ctl(int epoll, int operation, int fd, const uint8_t *event)'),
    wait: library.func('int epoll_wait(int epoll, _Inout_ uint8_t *events, int count, int timeout)'),
  };
  return loaded;
}

export function createEpoll(): Epoll {
  const { create, control, wait } = calls();
  /** By number of the watch, which the kernel returns: the number of a closed descriptor may be in use again. */
  const watches = new Map<number, OnReady>();
  const numbers = new Map<number, number>();
  const events = new Uint8Array(EVENT.bytes * MAX_EVENTS);
  const view = new DataView(events.buffer);
  const event = new Uint8Array(EVENT.bytes);
  const eventView = new DataView(event.buffer);
  let lastNumber = 0;
  let open: { readonly fd: number; readonly poll: Poll } | null = null;
  /** Watches to continue, and what is ready. */
  let continued = new Map<number, number>();

  function run(): void {
    for (let round = 0; round < ROUNDS_PER_TURN && open; round++) {
      const count = wait(open.fd, events, MAX_EVENTS, 0);
      for (let i = 0; i < count; i++) {
        const at = i * EVENT.bytes;
        call(watches.get(view.getUint32(at + EVENT.data, true)), view.getUint32(at, true));
      }
      if (count < MAX_EVENTS) return;
    }
  }

  function runContinued(): void {
    const due = continued;
    continued = new Map();
    for (const [number, ready] of due) call(watches.get(number), ready);
  }

  function opened(): { readonly fd: number; readonly poll: Poll } {
    if (open) return open;
    const fd = create(EPOLL_CLOEXEC);
    if (fd < 0) throw systemError('open epoll');
    open = { fd, poll: libc().poll(fd, run) };
    return open;
  }

  function unusedNumber(): number {
    do lastNumber = (lastNumber + 1) >>> 0;
    while (watches.has(lastNumber));
    return lastNumber;
  }

  function forget(fd: number): void {
    const number = numbers.get(fd);
    if (number === undefined) return;
    numbers.delete(fd);
    watches.delete(number);
    if (numbers.size > 0 || !open) return;
    open.poll.close();
    libc().close(open.fd);
    open = null;
  }

  return {
    watch(fd, kinds, onReady) {
      const epoll = opened();
      const known = numbers.get(fd);
      const number = known ?? unusedNumber();
      eventView.setUint32(0, kinds, true);
      eventView.setUint32(EVENT.data, number, true);
      if (control(epoll.fd, known === undefined ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, event) !== 0)
        throw systemError('watch a descriptor');
      numbers.set(fd, number);
      watches.set(number, onReady);
    },
    again(fd, ready) {
      const number = numbers.get(fd);
      if (number === undefined) return;
      if (continued.size === 0) setImmediate(runContinued);
      continued.set(number, (continued.get(number) ?? 0) | ready);
    },
    forget,
    close(fd) {
      forget(fd);
      libc().close(fd);
    },
  };
}
