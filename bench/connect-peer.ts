// A client or a server of bench/connect.ts, in a separate process and network namespace: plain blocking
// system calls, one after the other, so that the kernel is measured and not an event loop.
import { createRequire } from 'node:module';
import { socketAddress } from '../src/kernel/netns.ts';

/** The client's task, received over IPC. */
export interface Task {
  /**
   * `connect`: open a connection and reset it; `request`: open one, send a byte, wait for its answer, reset it;
   * `open`: bytes and answers on one connection.
   */
  readonly what: 'connect' | 'request' | 'open';
  /** Used in turn; `open` uses the first. */
  readonly targets: readonly (readonly [address: string, port: number])[];
  readonly times: number;
}

/** Microseconds. */
export interface Timing {
  /** For each connection from socket() to close() or, on an open connection, for each request. */
  readonly each: readonly number[];
  /** For each connect(). */
  readonly waits: readonly number[];
}

const AF_INET = 2;
const SOCK_STREAM = 1;
const SOL_SOCKET = 1;
const SO_REUSEADDR = 2;
const SO_LINGER = 13;
const IPPROTO_TCP = 6;
const TCP_NODELAY = 1;

const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
const library = koffi.load(null);
const socket = library.func('int socket(int family, int type, int protocol)');
const bind = library.func('int bind(int fd, const uint8_t *address, uint32_t length)');
const listen = library.func('int listen(int fd, int backlog)');
const accept = library.func('int accept(int fd, void *address, void *length)');
const connect = library.func('int connect(int fd, const uint8_t *address, uint32_t length)');
const send = library.func('long send(int fd, const uint8_t *data, size_t length, int flags)');
const recv = library.func('long recv(int fd, _Out_ uint8_t *data, size_t length, int flags)');
const close = library.func('int close(int fd)');
const setsockopt = library.func(
  'int setsockopt(int fd, int level, int option, const uint8_t *value, uint32_t length)',
);
const one = Uint8Array.of(1, 0, 0, 0);
/** On, with a timeout of zero: close() resets, so that neither side keeps the port for a minute. */
const resetAtClose = Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0);
const byte = new Uint8Array(1);

function check(result: number, call: string): number {
  if (result < 0) throw new Error(`${call}: errno ${koffi.errno()}`);
  return result;
}

function perform({ what, targets, times }: Task): Timing {
  const addresses = targets.map(([address, port]) => socketAddress(address, port));
  const each = new Array<number>(times);
  const waits: number[] = [];
  const open = (): number => {
    const fd = check(socket(AF_INET, SOCK_STREAM, 0), 'socket');
    setsockopt(fd, SOL_SOCKET, SO_LINGER, resetAtClose, 8);
    return fd;
  };
  const exchange = (fd: number) => {
    check(send(fd, byte, 1, 0), 'send');
    if (check(recv(fd, byte, 1, 0), 'recv') !== 1) throw new Error('the server hung up');
  };
  const at = (i: number) => addresses[i % addresses.length] as Uint8Array;
  if (what === 'open') {
    const fd = open();
    check(connect(fd, at(0), at(0).length), 'connect');
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, one, 4);
    exchange(fd);
    let before = performance.now();
    for (let i = 0; i < times; i++) {
      exchange(fd);
      const now = performance.now();
      each[i] = (now - before) * 1000;
      before = now;
    }
    close(fd);
    return { each, waits };
  }
  for (let i = 0; i < times; i++) {
    const address = at(i);
    const started = performance.now();
    const fd = open();
    const before = performance.now();
    check(connect(fd, address, address.length), 'connect');
    waits.push((performance.now() - before) * 1000);
    if (what === 'request') exchange(fd);
    close(fd);
    each[i] = (performance.now() - started) * 1000;
  }
  return { each, waits };
}

/** Answers each byte with a byte, one connection at a time, until it is killed. */
function serve(port: number): never {
  const listener = check(socket(AF_INET, SOCK_STREAM, 0), 'socket');
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, one, 4);
  const address = socketAddress('0.0.0.0', port);
  check(bind(listener, address, address.length), 'bind');
  check(listen(listener, 4096), 'listen');
  process.send?.('ready');
  for (;;) {
    const fd = check(accept(listener, null, null), 'accept');
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, one, 4);
    while (recv(fd, byte, 1, 0) === 1) send(fd, byte, 1, 0);
    close(fd);
  }
}

const [role, port] = process.argv.slice(2);
if (role === 'server') serve(Number(port));
process.on('message', (task: Task) => process.send?.(perform(task)));
process.on('disconnect', () => process.exit(0));
process.send?.('ready');
