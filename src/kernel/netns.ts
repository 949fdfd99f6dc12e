import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { closeSync, mkdirSync, openSync, statSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { addressBytes } from '../lib/address.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { errnoError, libc, systemError } from './libc.ts';
import { MNT_DETACH, MS_BIND, MS_REC, MS_SHARED } from './mount-flags.ts';
import { readOptionalFolder, removeOptionalFile } from './optional-file.ts';
import { AF_INET, AF_INET6, SOCK_CLOEXEC, SOL_SOCKET } from './socket-numbers.ts';
import { setSocketOption } from './socket-option.ts';

/**
 * A network namespace: the name under /run/netns, a process inside it, or a path such as /proc/1/ns/net.
 */
export type NetnsRef = string | { readonly pid: number } | { readonly path: string };

/** Where named namespaces are mounted, as iproute2 does (ip-netns(8)). */
export const NETNS_DIR = '/run/netns';

// linux/sched.h
const CLONE_NEWUTS = 0x04000000;
const CLONE_NEWIPC = 0x08000000;
const CLONE_NEWNET = 0x40000000;

/** Returns the path of a namespace's file. */
export function netnsPath(ref: NetnsRef): string {
  if (typeof ref === 'string') return join(NETNS_DIR, ref);
  return 'pid' in ref ? `/proc/${ref.pid}/ns/net` : ref.path;
}

/** Opens a namespace; the caller closes the descriptor. Throws if it does not exist. */
export function openNetns(ref: NetnsRef): number {
  try {
    return openSync(netnsPath(ref), 'r');
  } catch (error) {
    throw new FairleadError(`no such network namespace: ${netnsPath(ref)}`, {
      op: 'open network namespace',
      code: hasCode(error, 'ENOENT') ? 'ENOENT' : 'EIO',
      cause: error,
    });
  }
}

/**
 * Runs `work` with this thread inside a namespace (null or undefined: where it is), and switches back. A
 * descriptor or child process made inside stays there. `work` must be synchronous, because the whole event
 * loop runs in the thread's namespace.
 */
export function inNetns<T>(ref: NetnsRef | null | undefined, work: () => T): T {
  if (ref === null || ref === undefined) return work();
  const target = openNetns(ref);
  try {
    return withNamespaces(['net'], () => {
      if (libc().setns(target, CLONE_NEWNET) !== 0)
        throw systemError('enter network namespace', netnsPath(ref));
      return refusePromise(work());
    });
  } finally {
    closeSync(target);
  }
}

/**
 * Runs `work` in new network, IPC and UTS namespaces, and switches back. They exist as long as a process
 * started inside them, a mount or a descriptor refers to them.
 */
export function inNewNamespaces<T>(kinds: readonly ('net' | 'ipc' | 'uts')[], work: () => T): T {
  const flags = kinds.reduce((sum, kind) => sum | KINDS[kind], 0);
  return withNamespaces(kinds, () => {
    if (libc().unshare(flags) !== 0) throw systemError('make namespaces', kinds.join(', '));
    return refusePromise(work());
  });
}

const KINDS = { net: CLONE_NEWNET, ipc: CLONE_NEWIPC, uts: CLONE_NEWUTS } as const;

/** Runs `work` and restores this thread's namespaces of these kinds. */
function withNamespaces<T>(kinds: readonly (keyof typeof KINDS)[], work: () => T): T {
  // /proc/self refers to the thread group's leader, the thread that runs JavaScript's main loop; a worker
  // thread has its own namespaces, hence thread-self.
  const saved = kinds.map((kind) => ({ kind, fd: openSync(`/proc/thread-self/ns/${kind}`, 'r') }));
  try {
    return work();
  } finally {
    for (const { kind, fd } of saved) {
      if (libc().setns(fd, KINDS[kind]) !== 0) {
        // Continuing in the wrong namespace would change the network of another machine.
        console.error(`fairlead: cannot return to the ${kind} namespace: ${systemError('setns').message}`);
        process.abort();
      }
      closeSync(fd);
    }
  }
}

function refusePromise<T>(value: T): T {
  if (value instanceof Promise) throw new TypeError('work inside a namespace must be synchronous');
  return value;
}

/** Creates a named namespace, as `ip netns add` does. */
export function createNetns(name: string): void {
  mkdirSync(NETNS_DIR, { recursive: true, mode: 0o755 });
  const path = join(NETNS_DIR, name);
  try {
    writeFileSync(path, '', { flag: 'wx', mode: 0o444 });
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error;
    throw new FairleadError(`the network namespace ${name} already exists`, {
      op: 'create network namespace',
      code: 'EEXIST',
      object: name,
      hint: `ip netns delete ${name}`,
    });
  }
  try {
    shareNetnsDir();
    inNewNamespaces(['net'], () => {
      if (libc().mount('/proc/thread-self/ns/net', path, null, MS_BIND, null) !== 0) {
        throw systemError('mount network namespace', name);
      }
    });
  } catch (error) {
    unlinkSync(path);
    throw error;
  }
}

/**
 * iproute2 makes /run/netns a shared mount so that namespaces are visible and removable in every mount
 * namespace.
 */
function shareNetnsDir(): void {
  const shared = () => libc().mount('', NETNS_DIR, 'none', MS_SHARED | MS_REC, null) === 0;
  if (shared()) return;
  if (libc().mount(NETNS_DIR, NETNS_DIR, 'none', MS_BIND | MS_REC, null) !== 0 || !shared()) {
    throw systemError('share', NETNS_DIR);
  }
}

/**
 * Removes a named namespace. Returns true if it existed. Its devices are removed when the last process or
 * socket in it has ended.
 */
export function removeNetns(name: string): boolean {
  const path = join(NETNS_DIR, name);
  const unmounted = libc().umount2(path, MNT_DETACH) === 0;
  // EINVAL: a file without a mount, left by a crash between the two steps.
  if (!unmounted && !['ENOENT', 'EINVAL'].includes(errnoCode()))
    throw systemError('unmount network namespace', name);
  return removeOptionalFile(path);
}

function errnoCode(): string {
  return systemError('').code;
}

/** Returns the names of the namespaces under /run/netns. */
export function listNetns(): string[] {
  return readOptionalFolder(NETNS_DIR).sort();
}

export function netnsExists(name: string): boolean {
  return statSync(join(NETNS_DIR, name), { throwIfNoEntry: false }) !== undefined;
}

/** Starts a program inside a namespace (`inNetns`): a child inherits the namespace of the thread that forks it. */
export function spawnInNetns(
  ref: NetnsRef | null | undefined,
  file: string,
  args: readonly string[],
  options: SpawnOptions,
): ChildProcess {
  return inNetns(ref, () => spawn(file, args, options));
}

/** Starts a program in new network, IPC and UTS namespaces: the pause process of a pod. */
export function spawnInNewNamespaces(
  file: string,
  args: readonly string[],
  options: SpawnOptions,
): ChildProcess {
  return inNewNamespaces(['net', 'ipc', 'uts'], () => spawn(file, args, options));
}

// bits/socket.h, netinet/in.h
const SOCK_STREAM = 1;
const SOCK_DGRAM = 2;
const SOCK_NONBLOCK = 0o4000;
const SO_REUSEADDR = 2;
const IPPROTO_IP = 0;
const IP_FREEBIND = 15;
const IP_TRANSPARENT = 19;
const IPPROTO_IPV6 = 41;
const IPV6_V6ONLY = 26;
const IPV6_TRANSPARENT = 75;

/** Returns a struct sockaddr_in or sockaddr_in6 (ip(7), ipv6(7)). Throws for other text. */
export function socketAddress(address: string, port: number): Uint8Array {
  const bytes = addressBytes(address);
  if (!bytes)
    throw new FairleadError(`${JSON.stringify(address)} is not an IP address`, {
      op: 'make socket',
      code: 'EINVAL',
    });
  const out = new Uint8Array(bytes.length === 4 ? 16 : 28);
  const view = new DataView(out.buffer);
  view.setUint16(0, bytes.length === 4 ? AF_INET : AF_INET6, true);
  view.setUint16(2, port);
  out.set(bytes, bytes.length === 4 ? 4 : 8);
  return out;
}

export interface BindOptions {
  /** Whether the address may be added to the namespace later. Default: no. */
  readonly mayBeAbsent?: boolean;
  /** Whether it is an address of another host, from which the socket sends; needs CAP_NET_RAW. Default: no. */
  readonly isForeign?: boolean;
}

/**
 * Returns a TCP socket listening inside a namespace; `server.listen({ fd })` takes ownership. `null`: this
 * namespace. Port 0 lets the kernel choose: see `localPort`.
 */
export function listenTcpIn(
  ref: NetnsRef | null,
  address: string,
  port: number,
  options: BindOptions = {},
): number {
  return boundSocket(ref, SOCK_STREAM, address, port, options, (fd) => libc().listen(fd, 4096));
}

/** Returns a UDP socket bound inside a namespace; `dgramSocket.bind({ fd })` takes ownership. */
export function bindUdpIn(
  ref: NetnsRef | null,
  address: string,
  port: number,
  options: BindOptions = {},
): number {
  return boundSocket(ref, SOCK_DGRAM, address, port, options, () => 0);
}

/** Returns an unconnected TCP socket bound inside a namespace; `new net.Socket({ fd }).connect(port, address)` uses it. */
export function bindTcpIn(ref: NetnsRef | null, address: string, port: number): number {
  return boundSocket(ref, SOCK_STREAM, address, port, {}, () => 0);
}

/**
 * Returns an unconnected TCP socket inside a namespace (null: this thread's); `new net.Socket({ fd
 * }).connect(port, address)` uses it.
 */
export function openTcpIn(ref: NetnsRef | null, family: 'ipv4' | 'ipv6'): number {
  const open = () => {
    const fd = libc().socket(
      family === 'ipv4' ? AF_INET : AF_INET6,
      SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
      0,
    );
    if (fd < 0) throw systemError('open socket');
    return fd;
  };
  return inNetns(ref, open);
}

function boundSocket(
  ref: NetnsRef | null,
  type: number,
  address: string,
  port: number,
  { mayBeAbsent = false, isForeign = false }: BindOptions,
  finish: (fd: number) => number,
): number {
  const open = () => {
    const sockaddr = socketAddress(address, port);
    const v6 = sockaddr.length === 28;
    const fd = libc().socket(v6 ? AF_INET6 : AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) throw systemError('open socket');
    const failed =
      (type === SOCK_STREAM && !setSocketOption(fd, SOL_SOCKET, SO_REUSEADDR, 1)) ||
      (v6 && !setSocketOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1)) ||
      (mayBeAbsent && !setSocketOption(fd, IPPROTO_IP, IP_FREEBIND, 1)) ||
      (isForeign &&
        !(v6
          ? setSocketOption(fd, IPPROTO_IPV6, IPV6_TRANSPARENT, 1)
          : setSocketOption(fd, IPPROTO_IP, IP_TRANSPARENT, 1))) ||
      libc().bind(fd, sockaddr, sockaddr.length) !== 0 ||
      finish(fd) !== 0;
    if (!failed) return fd;
    const errno = libc().errno();
    libc().close(fd);
    throw errnoError(errno, type === SOCK_STREAM ? 'listen on' : 'bind', `${address} port ${port}`);
  };
  return inNetns(ref, open);
}

/** Returns the port that a socket is bound to. */
export function localPort(fd: number): number {
  const address = new Uint8Array(28);
  const length = Uint8Array.of(28, 0, 0, 0);
  if (libc().getsockname(fd, address, length) !== 0) throw systemError('read socket address');
  return new DataView(address.buffer).getUint16(2);
}

/** The node's network: agents use it. */
export const OWN_NETNS: NetnsRef = { path: '/proc/self/ns/net' };
