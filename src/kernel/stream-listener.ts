import type { Clock } from '../lib/clock.ts';
import { type Epoll, READY } from './epoll.ts';
import { systemError } from './libc.ts';
import { type AcceptedStream, acceptStream, mayAccept, setStreamOptions } from './stream-socket.ts';

/** How many connections a listener accepts in a turn of the event loop. */
const ACCEPTS_PER_TURN = 64;
/** The maximum number of connections that wait to be accepted (listen(2) in netns.ts). */
const BACKLOG = 4096;
/** How long a listener rests if there are no descriptors: clients wait in its backlog. */
const REST_MS = 100;

interface StreamListenerOptions {
  /** A listening socket; the listener closes it. */
  readonly fd: number;
  readonly epoll: Epoll;
  readonly clock: Clock;
  /** Called for each connection; it owns the descriptor. */
  readonly onStream: (stream: AcceptedStream) => void;
  /** Reports that the process or the kernel lacks descriptors or memory; the listener continues soon. */
  readonly onScarcity: (error: string) => void;
  /** Reports that the listener has failed and is closed. */
  readonly onFailure: () => void;
}

/** Accepts TCP connections, which have the options of `setStreamOptions`. */
interface StreamListener {
  readonly isOpen: boolean;
  /** Reports that there are no descriptors, and accepts nothing for a while. */
  rest(error: string): void;
  /** Accepts the connections that have arrived, then closes: the kernel would reset them. */
  finish(): void;
  close(): void;
}

export function listenToStreams(options: StreamListenerOptions): StreamListener {
  const { fd, epoll, clock, onStream, onScarcity, onFailure } = options;
  let isOpen = true;
  let cancel = () => {};

  function accept(max: number): void {
    for (let i = 0; i < max && isOpen && (i === 0 || mayAccept(fd)); i++) {
      const stream = acceptStream(fd);
      if (stream === 'none') return;
      if (typeof stream !== 'string') {
        onStream(stream);
        continue;
      }
      if (stream === 'scarce') rest(systemError('accept a connection').message);
      else {
        close();
        onFailure();
      }
      return;
    }
  }

  const listen = () => epoll.watch(fd, READY.readable, () => accept(ACCEPTS_PER_TURN));

  function rest(error: string): void {
    onScarcity(error);
    if (!isOpen) return;
    // Otherwise it would be reported as readable all the time.
    epoll.watch(fd, 0, () => {});
    cancel();
    cancel = clock.after(REST_MS, listen);
  }

  function close(): void {
    if (!isOpen) return;
    isOpen = false;
    cancel();
    epoll.close(fd);
  }

  setStreamOptions(fd);
  try {
    listen();
  } catch (error) {
    epoll.close(fd);
    throw error;
  }
  return {
    get isOpen() {
      return isOpen;
    },
    rest,
    finish() {
      accept(BACKLOG);
      close();
    },
    close,
  };
}
