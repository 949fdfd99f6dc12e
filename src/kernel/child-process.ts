import { closeSync } from 'node:fs';
import { Socket } from 'node:net';
import { errnoError, libc, systemError } from './libc.ts';

// spawn.h: the same in glibc and musl.
const POSIX_SPAWN_SETSIGDEF = 0x04;
const POSIX_SPAWN_SETSIGMASK = 0x08;
const POSIX_SPAWN_SETSID = 0x80;
/** Larger than posix_spawnattr_t, posix_spawn_file_actions_t and sigset_t in either C library. */
const STRUCT_BYTES = 512;
// bits/fcntl-linux.h
const O_RDWR = 2;
const O_CLOEXEC = 0o2000000;
const WNOHANG = 1;

/** A child's descriptor: "ignore" (/dev/null), or one of this process. */
export type ChildDescriptor = 'ignore' | number;

export interface LightChild {
  readonly pid: number;
  /**
   * Resolves to the exit code when the process has ended; 128 plus the signal's number if a signal ended
   * it.
   */
  readonly exited: Promise<number>;
}

export interface SpawnOptions {
  /** The child's descriptors, from 0. */
  readonly descriptors: readonly ChildDescriptor[];
  /** Default: the environment of this process. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Starts a new session, led by the child (setsid(2)). */
  readonly session?: boolean;
}

/**
 * Starts a program with posix_spawn(3), without copying this process's page tables: Node's spawn forks,
 * which takes 2 ms in a small process and 40 ms in one of 400 MB. The program is looked up in PATH; signals
 * have their default actions; the child does not keep this process running. Throws FairleadError with the
 * errno's code.
 *
 * Blocks the calling thread until the program has been loaded; the child gets this thread's namespaces. See
 * spawnAsync.
 */
export function spawnLight(file: string, args: readonly string[], options: SpawnOptions): LightChild {
  const call = prepare(file, args, options);
  try {
    return finish(call, libc().posix_spawnp(...call.parameters));
  } finally {
    call.release();
  }
}

/**
 * Works like spawnLight, on another thread: the caller does not block while the kernel loads the program.
 */
export async function spawnAsync(
  file: string,
  args: readonly string[],
  options: SpawnOptions,
): Promise<LightChild> {
  const call = prepare(file, args, options);
  try {
    return finish(call, await libc().posix_spawnpAsync(...call.parameters));
  } finally {
    call.release();
  }
}

function prepare(file: string, args: readonly string[], options: SpawnOptions) {
  const c = libc();
  const struct = (byte: number) => new Uint8Array(STRUCT_BYTES).fill(byte);
  const [actions, attributes] = [struct(0), struct(0)];
  c.posix_spawn_file_actions_init(actions);
  c.posix_spawnattr_init(attributes);
  for (const [fd, descriptor] of options.descriptors.entries()) {
    if (descriptor === 'ignore') c.posix_spawn_file_actions_addopen(actions, fd, '/dev/null', O_RDWR, 0);
    else c.posix_spawn_file_actions_adddup2(actions, descriptor, fd);
  }
  // Node ignores SIGPIPE, which children would inherit: every signal is reset to its default action.
  c.posix_spawnattr_setsigdefault(attributes, struct(0xff));
  c.posix_spawnattr_setsigmask(attributes, struct(0));
  const session = options.session ? POSIX_SPAWN_SETSID : 0;
  c.posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | session);
  const env = Object.entries(options.env ?? process.env).flatMap(([name, value]) =>
    value === undefined ? [] : [`${name}=${value}`],
  );
  const pid = new Int32Array(1);
  const parameters: Parameters<ReturnType<typeof libc>['posix_spawnp']> = [
    pid,
    file,
    actions,
    attributes,
    [file, ...args, null],
    [...env, null],
  ];
  return {
    parameters,
    file,
    pid,
    release() {
      c.posix_spawn_file_actions_destroy(actions);
      c.posix_spawnattr_destroy(attributes);
    },
  };
}

function finish({ file, pid: [pid = 0] }: ReturnType<typeof prepare>, errno: number): LightChild {
  if (errno !== 0) throw errnoError(errno, 'run', file);
  return { pid, exited: reap(pid) };
}

/** Waits for a child by its pidfd, which is readable once it has ended (pidfd_open(2), Linux 5.3). */
function reap(pid: number): Promise<number> {
  const fd = libc().pidfd_open(pid);
  if (fd < 0) throw systemError('open process', String(pid));
  return new Promise((resolve) => {
    const poll = libc().poll(fd, () => {
      const status = new Int32Array(1);
      if (libc().waitpid(pid, status, WNOHANG) === 0) return;
      poll.close();
      closeSync(fd);
      // bits/waitstatus.h: the signal's number in the low 7 bits, else the exit code in the next byte.
      const word = status[0] ?? 0;
      const signal = word & 0x7f;
      resolve(signal === 0 ? (word >> 8) & 0xff : 128 + signal);
    });
    poll.unref();
  });
}

/** A pipe whose other end is for a child: call `close` here once the child has inherited it. */
export interface ChildPipe {
  readonly stream: Socket;
  readonly descriptor: number;
  close(): void;
}

/** Makes a pipe that a child writes to and this process reads. */
export function pipeFromChild(): ChildPipe {
  const ends = new Int32Array(2);
  if (libc().pipe2(ends, O_CLOEXEC) !== 0) throw systemError('make pipe');
  const [read = -1, write = -1] = ends;
  return {
    stream: new Socket({ fd: read, readable: true, writable: false }),
    descriptor: write,
    close: () => closeSync(write),
  };
}
