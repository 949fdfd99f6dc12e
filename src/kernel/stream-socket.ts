import { constants } from 'node:os';
import { formatAddress, type SocketAddress } from '../lib/address.ts';
import { type Epoll, READY } from './epoll.ts';
import { loadKoffi } from './koffi.ts';
import { libc } from './libc.ts';
import { AF_INET, SOCK_CLOEXEC, SOL_SOCKET } from './socket-numbers.ts';
import { setSocketOption } from './socket-option.ts';

// bits/socket.h, asm-generic/socket.h, linux/tcp.h
const SOCK_NONBLOCK = 0o4000;
const MSG_NOSIGNAL = 0x4000;
const SHUT_WR = 1;
const SO_KEEPALIVE = 9;
const SO_LINGER = 13;
const IPPROTO_TCP = 6;
const TCP_NODELAY = 1;
const TCP_KEEPIDLE = 4;
const TCP_KEEPINTVL = 5;
const TCP_KEEPCNT = 6;
/** struct sockaddr_in6; sockaddr_in is shorter. */
const ADDRESS_BYTES = 28;

/** Keepalive, which ends connections whose peer has disappeared without closing them: after a minute, and 10 probes. */
const KEEPALIVE = [
  [SOL_SOCKET, SO_KEEPALIVE, 1],
  [IPPROTO_TCP, TCP_KEEPIDLE, 60],
  [IPPROTO_TCP, TCP_KEEPINTVL, 1],
  [IPPROTO_TCP, TCP_KEEPCNT, 10],
] as const;
/** struct linger: on, with a timeout of zero. */
const RESET_AT_CLOSE = new Uint8Array(Uint32Array.of(1, 0).buffer);

const { EAGAIN, EINTR, EINPROGRESS, EALREADY, EISCONN, ECONNABORTED, EPROTO } = constants.errno;
const { EBADF, EINVAL, ENOTSOCK, EOPNOTSUPP } = constants.errno;
/** accept(2) fails with these for one connection, and with the others for the listener. */
const ABORTED: ReadonlySet<number> = new Set([EINTR, ECONNABORTED, EPROTO]);
const UNUSABLE: ReadonlySet<number> = new Set([EBADF, EINVAL, ENOTSOCK, EOPNOTSUPP]);
const PENDING: ReadonlySet<number> = new Set([EINPROGRESS, EALREADY, EINTR, EAGAIN]);

interface Calls {
  accept(fd: number, address: Uint8Array, length: Uint8Array, flags: number): number;
  poll(descriptors: Uint8Array, count: number, timeoutMs: number): number;
  send(fd: number, data: Uint8Array, length: number, flags: number): number;
  receive(fd: number, data: Uint8Array, length: number, flags: number): number;
  shutdown(fd: number, how: number): number;
}

let loaded: Calls | undefined;

function calls(): Calls {
  if (loaded) return loaded;
  const library = loadKoffi().load(null);
  loaded = {
    accept: library.func('int accept4(int fd, _Inout_ uint8_t *address, _Inout_ uint8_t *length, int flags)'),
    poll: library.func('int poll(_Inout_ uint8_t *descriptors, unsigned long count, int timeout)'),
    send: library.func('long send(int fd, const uint8_t *data, size_t length, int flags)'),
    receive: library.func('long recv(int fd, _Out_ uint8_t *data, size_t length, int flags)'),
    shutdown: library.func('int shutdown(int fd, int how)'),
  };
  return loaded;
}

const address = new Uint8Array(new ArrayBuffer(ADDRESS_BYTES));
const addressView = new DataView(address.buffer);
const ipv4 = address.subarray(4, 8);
const ipv6 = address.subarray(8, 24);
const addressLength = new Uint8Array(new ArrayBuffer(4));

/** Returns the address that a call has written. */
function addressRead(): SocketAddress {
  const ip = formatAddress(addressView.getUint16(0, true) === AF_INET ? ipv4 : ipv6);
  return { ip, port: addressView.getUint16(2) };
}

/** A connection that a listener has accepted, and its peer. */
export interface AcceptedStream extends SocketAddress {
  readonly fd: number;
}

/**
 * Accepts a connection. `none`: no other has arrived; `scarce`: it waits, usually because the process has no free
 * descriptor or the kernel no memory (errno); `unusable`: the listener is closed.
 */
export function acceptStream(listener: number): AcceptedStream | 'none' | 'scarce' | 'unusable' {
  for (;;) {
    addressLength[0] = ADDRESS_BYTES;
    const fd = calls().accept(listener, address, addressLength, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) return { fd, ...addressRead() };
    const errno = libc().errno();
    if (errno === EAGAIN) return 'none';
    if (UNUSABLE.has(errno)) return 'unusable';
    if (!ABORTED.has(errno)) return 'scarce';
  }
}

/** struct pollfd. */
const polled = new Uint8Array(new ArrayBuffer(8));
const polledView = new DataView(polled.buffer);

/**
 * Returns false if no other connection waits at a listener. It costs an eighth of a call of accept4(2) that finds none, which
 * makes a socket first.
 */
export function mayAccept(listener: number): boolean {
  polledView.setInt32(0, listener, true);
  polledView.setInt16(4, READY.readable, true);
  return calls().poll(polled, 1, 0) !== 0;
}

/** Returns the local address of a socket, by which the kernel identifies a connection; null: it has none yet. */
export function localAddress(fd: number): SocketAddress | null {
  addressLength[0] = ADDRESS_BYTES;
  if (libc().getsockname(fd, address, addressLength) !== 0) return null;
  const at = addressRead();
  return at.port === 0 ? null : at;
}

/** How an attempt to connect is going. */
type Attempt = 'connected' | 'pending' | 'refused';

/**
 * Begins to connect a socket to an address (`socketAddress`), or returns how an attempt that was begun is going. A connection
 * over virtual links is often established before the first call returns, which does not report it: call this twice.
 */
export function connectStream(fd: number, to: Uint8Array): Attempt {
  if (libc().connect(fd, to, to.length) === 0) return 'connected';
  const errno = libc().errno();
  if (errno === EISCONN) return 'connected';
  return PENDING.has(errno) ? 'pending' : 'refused';
}

/** Calls `onAnswer` once when an attempt has ended, unless the caller makes `epoll` forget the socket. */
export function awaitConnection(
  epoll: Epoll,
  fd: number,
  to: Uint8Array,
  onAnswer: (attempt: Exclude<Attempt, 'pending'>) => void,
): void {
  let isAnswered = false;
  epoll.watch(fd, READY.writable | READY.changes, () => {
    const answer = isAnswered ? 'pending' : connectStream(fd, to);
    if (answer === 'pending') return;
    isAnswered = true;
    onAnswer(answer);
  });
}

/** Results of `receive` and `send` other than a number of bytes. */
export const WOULD_BLOCK = -1;
export const FAILED = -2;

/** Reads into `data`. Returns the number of bytes, 0 at the end, WOULD_BLOCK or FAILED. */
export function receive(fd: number, data: Uint8Array): number {
  for (;;) {
    const count = Number(calls().receive(fd, data, data.length, 0));
    if (count >= 0) return count;
    const errno = libc().errno();
    if (errno !== EINTR) return errno === EAGAIN ? WOULD_BLOCK : FAILED;
  }
}

/** Writes the first `length` bytes of `data`. Returns the number of bytes, WOULD_BLOCK or FAILED. */
export function send(fd: number, data: Uint8Array, length: number): number {
  for (;;) {
    const count = Number(calls().send(fd, data, length, MSG_NOSIGNAL));
    if (count >= 0) return count;
    const errno = libc().errno();
    if (errno !== EINTR) return errno === EAGAIN ? WOULD_BLOCK : FAILED;
  }
}

/** Ends the data of this side; the other may still send. */
export function endStream(fd: number): void {
  calls().shutdown(fd, SHUT_WR);
}

/** Closes a connection with a reset, so that its peer does not take the end for a regular one. */
export function resetStream(epoll: Epoll, fd: number): void {
  libc().setsockopt(fd, SOL_SOCKET, SO_LINGER, RESET_AT_CLOSE, RESET_AT_CLOSE.length);
  epoll.close(fd);
}

/** Makes a socket send small writes at once. */
export function sendAtOnce(fd: number): void {
  setSocketOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

/** Makes a socket detect that its peer has disappeared. */
export function keepAlive(fd: number): void {
  for (const [level, option, value] of KEEPALIVE) setSocketOption(fd, level, option, value);
}

/** Sets both for a listener: the kernel copies them to each connection that it accepts. */
export function setStreamOptions(listener: number): void {
  sendAtOnce(listener);
  keepAlive(listener);
}
