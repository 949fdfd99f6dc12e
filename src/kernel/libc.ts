import { constants as os } from 'node:os';
import { errorCode } from '../lib/error-codes.ts';
import { errorOf, FairleadError } from '../lib/errors.ts';
import { loadKoffi } from './koffi.ts';

/** Functions of the C library that Node.js does not have. Synchronous unless named `…Async`. */
export interface Libc {
  socket(family: number, type: number, protocol: number): number;
  bind(fd: number, address: Uint8Array, length: number): number;
  connect(fd: number, address: Uint8Array, length: number): number;
  listen(fd: number, backlog: number): number;
  setsockopt(fd: number, level: number, option: number, value: Uint8Array, length: number): number;
  getsockopt(fd: number, level: number, option: number, value: Uint8Array, length: Uint8Array): number;
  /** `setsockopt` on a thread of libuv's pool; the caller keeps the memory of its buffers. */
  setsockoptAsync(
    fd: number,
    level: number,
    option: number,
    value: Uint8Array,
    length: number,
  ): Promise<CallResult>;
  /** `getsockopt` on a thread of libuv's pool; the caller keeps the memory of its buffers. */
  getsockoptAsync(
    fd: number,
    level: number,
    option: number,
    value: Uint8Array,
    length: Uint8Array,
  ): Promise<CallResult>;
  getsockname(fd: number, address: Uint8Array, length: Uint8Array): number;
  send(fd: number, data: Uint8Array, length: number, flags: number): number;
  recv(fd: number, data: Uint8Array, length: number, flags: number): number;
  /** `messages`: an array of struct mmsghdr; the caller keeps the memory that its pointers refer to. */
  recvmmsg(fd: number, messages: Uint8Array, count: number, flags: number, timeout: null): number;
  sendmmsg(fd: number, messages: Uint8Array, count: number, flags: number): number;
  open(path: string, flags: number, mode: number): number;
  close(fd: number): number;
  /** `close` on a thread of libuv's pool, for descriptors whose end waits for a lock of the kernel. */
  closeAsync(fd: number): Promise<number>;
  ioctl(fd: number, request: number, argument: Uint8Array): number;
  flock(fd: number, operation: number): number;
  setns(fd: number, kind: number): number;
  unshare(flags: number): number;
  sethostname(name: Uint8Array, length: number): number;
  mount(source: string, target: string, type: string | null, flags: number, data: string | null): number;
  umount2(target: string, flags: number): number;
  prctl(option: number, a: number, b: number, c: number, d: number): number;
  syscall(number: number, a: number, b: Uint8Array, c: number): number;
  pidfd_open(pid: number): number;
  /** Duplicates a descriptor of another process (Linux 5.6). */
  pidfd_getfd(pidfd: number, fd: number): number;
  pipe2(ends: Int32Array, flags: number): number;
  /** Makes a file, device or FIFO; `mode`: its type and permissions. `device`: the kernel's encoding (linux/kdev_t.h). */
  mknod(path: string, mode: number, device: number): number;
  /** Opens a path relative to a folder; `how`: struct open_how (openat2(2), Linux 5.6). */
  openat2(folder: number, path: string, how: Uint8Array): number;
  waitpid(pid: number, status: Int32Array, options: number): number;
  // posix_spawn(3): these return an errno, and their structs are opaque memory.
  posix_spawnp(
    pid: Int32Array,
    file: string,
    actions: Uint8Array,
    attributes: Uint8Array,
    args: readonly (string | null)[],
    env: readonly (string | null)[],
  ): number;
  /** `posix_spawnp` on a thread of libuv's pool; the caller keeps the memory of its buffers. */
  posix_spawnpAsync(
    pid: Int32Array,
    file: string,
    actions: Uint8Array,
    attributes: Uint8Array,
    args: readonly (string | null)[],
    env: readonly (string | null)[],
  ): Promise<number>;
  posix_spawn_file_actions_init(actions: Uint8Array): number;
  posix_spawn_file_actions_destroy(actions: Uint8Array): number;
  posix_spawn_file_actions_adddup2(actions: Uint8Array, from: number, to: number): number;
  posix_spawn_file_actions_addopen(
    actions: Uint8Array,
    fd: number,
    path: string,
    flags: number,
    mode: number,
  ): number;
  posix_spawnattr_init(attributes: Uint8Array): number;
  posix_spawnattr_destroy(attributes: Uint8Array): number;
  posix_spawnattr_setflags(attributes: Uint8Array, flags: number): number;
  posix_spawnattr_setsigdefault(attributes: Uint8Array, signals: Uint8Array): number;
  posix_spawnattr_setsigmask(attributes: Uint8Array, signals: Uint8Array): number;
  /** `syscall` on a thread of libuv's pool, without errno; the caller keeps the memory of its buffers. */
  syscallAsync(number: number, a: number, b: Uint8Array, c: number): Promise<number>;
  /** `send` on a thread of libuv's pool; resolves to [result, errno]. */
  sendAsync(fd: number, data: Uint8Array, length: number, flags: number): Promise<CallResult>;
  /** errno of the last call that failed, on this thread. */
  errno(): number;
  /** Calls `ready` whenever `fd` is readable or in error (the next recv shows which); uses no thread. */
  poll(fd: number, ready: () => void): Poll;
}

/** The result of a call on another thread, and the errno that belongs to it. */
export interface CallResult {
  readonly result: number;
  readonly errno: number;
}

/** A descriptor watched by the event loop. */
export interface Poll {
  ref(): void;
  unref(): void;
  close(): void;
}

let loaded: Libc | undefined;

/** Returns the C library, loaded at the first call, so that commands without kernel access start faster. */
export function libc(): Libc {
  loaded ??= load();
  return loaded;
}

function load(): Libc {
  const koffi = loadKoffi();
  const library = koffi.load(null);
  const declare = (prototype: string) => library.func(prototype);
  const send = declare('long send(int fd, const uint8_t *data, size_t length, int flags)');
  const setsockopt = declare(
    'int setsockopt(int fd, int level, int option, const uint8_t *value, uint32_t length)',
  );
  const getsockopt = declare(
    'int getsockopt(int fd, int level, int option, _Inout_ uint8_t *value, _Inout_ uint8_t *length)',
  );
  const syscall = declare('long syscall(long number, long a, _Inout_ uint8_t *b, unsigned long c)');
  // The C libraries of older systems lack these; their numbers are the same on every machine (Linux 5.3 and 5.6).
  const SYS_PIDFD_OPEN = 434;
  const SYS_PIDFD_GETFD = 438;
  const plainSyscall = declare('long syscall(long number, long a, unsigned long b, unsigned long c)');
  // Not mknod(3): C libraries before 2021 have it in their headers only.
  const SYS_MKNODAT = process.arch === 'x64' ? 259 : 33;
  const AT_FDCWD = -100;
  const SYS_OPENAT2 = 437;
  const makeNode = declare(
    'long syscall(long number, long folder, const char *path, unsigned long mode, unsigned long device)',
  );
  const openIn = declare(
    'long syscall(long number, long folder, const char *path, const uint8_t *how, unsigned long size)',
  );
  const spawn = declare(
    'int posix_spawnp(_Out_ int *pid, const char *file, const uint8_t *actions, const uint8_t *attributes, const char **args, const char **env)',
  );
  const close = declare('int close(int fd)');
  const node = (koffi as unknown as { node: { poll: PollFunction } }).node;
  return {
    socket: declare('int socket(int family, int type, int protocol)'),
    bind: declare('int bind(int fd, const uint8_t *address, uint32_t length)'),
    connect: declare('int connect(int fd, const uint8_t *address, uint32_t length)'),
    listen: declare('int listen(int fd, int backlog)'),
    setsockopt,
    getsockopt,
    setsockoptAsync: (...parameters) =>
      new Promise((resolve) => {
        setsockopt.async(...parameters, (error: unknown, result: number) => {
          resolve({ result: error ? -1 : result, errno: koffi.errno() });
        });
      }),
    getsockoptAsync: (...parameters) =>
      new Promise((resolve) => {
        getsockopt.async(...parameters, (error: unknown, result: number) => {
          resolve({ result: error ? -1 : result, errno: koffi.errno() });
        });
      }),
    getsockname: declare('int getsockname(int fd, _Inout_ uint8_t *address, _Inout_ uint8_t *length)'),
    send,
    recv: declare('long recv(int fd, _Out_ uint8_t *data, size_t length, int flags)'),
    recvmmsg: declare(
      'int recvmmsg(int fd, _Inout_ uint8_t *messages, unsigned int count, int flags, void *timeout)',
    ),
    sendmmsg: declare('int sendmmsg(int fd, _Inout_ uint8_t *messages, unsigned int count, int flags)'),
    open: declare('int open(const char *path, int flags, int mode)'),
    close,
    closeAsync: (fd) =>
      new Promise((resolve) => {
        close.async(fd, (error: unknown, result: number) => resolve(error ? -1 : result));
      }),
    ioctl: declare('int ioctl(int fd, unsigned long request, _Inout_ uint8_t *argument)'),
    flock: declare('int flock(int fd, int operation)'),
    setns: declare('int setns(int fd, int kind)'),
    unshare: declare('int unshare(int flags)'),
    sethostname: declare('int sethostname(const uint8_t *name, size_t length)'),
    mount: declare(
      'int mount(const char *source, const char *target, const char *type, unsigned long flags, const char *data)',
    ),
    umount2: declare('int umount2(const char *target, int flags)'),
    prctl: declare(
      'int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)',
    ),
    syscall,
    pidfd_open: (pid) => Number(plainSyscall(SYS_PIDFD_OPEN, pid, 0, 0)),
    pidfd_getfd: (pidfd, fd) => Number(plainSyscall(SYS_PIDFD_GETFD, pidfd, fd, 0)),
    mknod: (path, mode, device) => Number(makeNode(SYS_MKNODAT, AT_FDCWD, path, mode, device)),
    openat2: (folder, path, how) => Number(openIn(SYS_OPENAT2, folder, path, how, how.length)),
    pipe2: declare('int pipe2(_Out_ int *ends, int flags)'),
    waitpid: declare('int waitpid(int pid, _Out_ int *status, int options)'),
    posix_spawnp: spawn,
    posix_spawnpAsync: (...parameters) =>
      new Promise((resolve, reject) => {
        spawn.async(...parameters, (error: unknown, errno: number) => {
          if (error) reject(errorOf(error));
          else resolve(errno);
        });
      }),
    posix_spawn_file_actions_init: declare('int posix_spawn_file_actions_init(_Inout_ uint8_t *actions)'),
    posix_spawn_file_actions_destroy: declare(
      'int posix_spawn_file_actions_destroy(_Inout_ uint8_t *actions)',
    ),
    posix_spawn_file_actions_adddup2: declare(
      'int posix_spawn_file_actions_adddup2(_Inout_ uint8_t *actions, int from, int to)',
    ),
    posix_spawn_file_actions_addopen: declare(
      'int posix_spawn_file_actions_addopen(_Inout_ uint8_t *actions, int fd, const char *path, int flags, uint32_t mode)',
    ),
    posix_spawnattr_init: declare('int posix_spawnattr_init(_Inout_ uint8_t *attributes)'),
    posix_spawnattr_destroy: declare('int posix_spawnattr_destroy(_Inout_ uint8_t *attributes)'),
    posix_spawnattr_setflags: declare(
      'int posix_spawnattr_setflags(_Inout_ uint8_t *attributes, short flags)',
    ),
    posix_spawnattr_setsigdefault: declare(
      'int posix_spawnattr_setsigdefault(_Inout_ uint8_t *attributes, const uint8_t *signals)',
    ),
    posix_spawnattr_setsigmask: declare(
      'int posix_spawnattr_setsigmask(_Inout_ uint8_t *attributes, const uint8_t *signals)',
    ),
    syscallAsync: (number, a, b, c) =>
      new Promise((resolve) => {
        syscall.async(number, a, b, c, (error: unknown, result: number | bigint) => {
          resolve(error ? -1 : Number(result));
        });
      }),
    sendAsync: (fd, data, length, flags) =>
      new Promise((resolve) => {
        send.async(fd, data, length, flags, (error: unknown, result: number) => {
          resolve({ result: error ? -1 : result, errno: koffi.errno() });
        });
      }),
    errno: () => koffi.errno(),
    poll(fd, ready) {
      const handle = node.poll(fd, { readable: true }, () => ready());
      return { ref: () => handle.ref(), unref: () => handle.unref(), close: () => handle.close() };
    },
  };
}

type PollFunction = (
  fd: number,
  events: { readable: boolean },
  callback: (status: number) => void,
) => { ref(): void; unref(): void; close(): void };

const ERRNO_NAMES = new Map(Object.entries(os.errno).map(([name, value]) => [value, name]));
// Linux values (asm-generic/errno.h) that Node.js does not list, or lists under two names.
const MORE_ERRNO_NAMES: Readonly<Record<number, string>> = {
  11: 'EAGAIN',
  85: 'ERESTART',
  95: 'EOPNOTSUPP',
  524: 'ENOTSUPP',
};

/** Returns "EEXIST" for 17, "errno 4711" for a number without a name. */
export function errnoName(errno: number): string {
  return MORE_ERRNO_NAMES[errno] ?? ERRNO_NAMES.get(errno) ?? `errno ${errno}`;
}

/** Returns an error for a call that just failed, with the errno of this thread. */
export function systemError(op: string, object?: string, hint?: string): FairleadError {
  return errnoError(libc().errno(), op, object, hint);
}

/** Returns an error for an errno value. */
export function errnoError(errno: number, op: string, object?: string, hint?: string): FairleadError {
  const code = errnoName(errno);
  const what = object === undefined ? op : `${op} ${object}`;
  return new FairleadError(`${what}: ${code}`, {
    op,
    code: errorCode(code),
    ...(object === undefined ? {} : { object }),
    ...(hint === undefined ? {} : { hint }),
  });
}
