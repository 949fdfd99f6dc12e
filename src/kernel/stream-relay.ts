import { type Epoll, READY } from './epoll.ts';
import { type Direction, RELAY_BEGINS, type RelayEvent, relayStep } from './relay-state.ts';
import { endStream, FAILED, receive, resetStream, send, WOULD_BLOCK } from './stream-socket.ts';

const BUFFER_BYTES = 1 << 16;
/** Reads of one direction in a turn, so that a bulk transfer does not block others. */
const READS_PER_TURN = 8;
const WATCHED = READY.readable | READY.urgent | READY.ended | READY.changes;
/** With these, a read that returns less than asked for is not the last one. */
const MORE = READY.urgent | READY.ended | READY.error;

/** Shared by all relays: what a socket does not take is copied. */
const buffer = new Uint8Array(BUFFER_BYTES);

/** A relay between two connected sockets. */
export interface StreamRelay {
  /** Begins to copy: what the first has received already is passed on at once. */
  start(): void;
  /** Resets both sockets. */
  reset(): void;
}

interface Flow {
  readonly direction: Direction;
  readonly from: number;
  readonly to: number;
  /** Bytes that the target has not taken yet. */
  held: Uint8Array | null;
}

/**
 * Returns a relay that copies bytes between two connected sockets in both directions, with half-close, back-pressure and
 * propagation of resets, and closes both. `onClosed` is called once, right before.
 */
export function createStreamRelay(
  epoll: Epoll,
  one: number,
  other: number,
  onClosed: () => void,
): StreamRelay {
  const there: Flow = { direction: 'there', from: one, to: other, held: null };
  const back: Flow = { direction: 'back', from: other, to: one, held: null };
  let state = RELAY_BEGINS;
  let isOpen = true;

  function apply(flow: Flow, event: RelayEvent): void {
    if (!isOpen) return;
    const next = relayStep(state, flow.direction, event);
    state = next.state;
    switch (next.action) {
      case 'await':
        watch(flow.to, WATCHED | READY.writable);
        return;
      case 'read':
        // The end of its data may have been reported meanwhile.
        copy(flow, READY.ended);
        return;
      case 'shut':
        endStream(flow.to);
        return;
      case 'close':
        finish(epoll.close);
        return;
      case 'reset':
        finish((fd) => resetStream(epoll, fd));
    }
  }

  function finish(close: (fd: number) => void): void {
    isOpen = false;
    there.held = null;
    back.held = null;
    onClosed();
    close(one);
    close(other);
  }

  function watch(fd: number, kinds: number): void {
    if (!isOpen) return;
    try {
      epoll.watch(fd, kinds, fd === one ? onFirst : onSecond);
    } catch {
      // The kernel has no memory for another watch.
      apply(there, 'failure');
    }
  }

  /** Copies until there is nothing to read, or the target takes no more. */
  function copy(flow: Flow, ready: number): void {
    for (let reads = 0; isOpen && state[flow.direction] === 'copying'; reads++) {
      if (reads === READS_PER_TURN) {
        epoll.again(flow.from, ready);
        return;
      }
      const count = receive(flow.from, buffer);
      if (count === WOULD_BLOCK) return;
      if (count > 0) write(flow, buffer, count);
      else apply(flow, count === 0 ? 'end' : 'failure');
      if (count < BUFFER_BYTES && (ready & MORE) === 0) return;
    }
  }

  /** Writes the first `length` bytes, and holds those that the target does not take. */
  function write(flow: Flow, data: Uint8Array, length: number): void {
    let written = 0;
    while (written < length) {
      const rest = written === 0 ? data : data.subarray(written);
      const count = send(flow.to, rest, length - written);
      if (count === FAILED) {
        apply(flow, 'failure');
        return;
      }
      if (count === WOULD_BLOCK) {
        flow.held = data === buffer ? data.slice(written, length) : data.subarray(written, length);
        apply(flow, 'blocked');
        return;
      }
      written += count;
    }
    if (!flow.held) return;
    flow.held = null;
    apply(flow, 'flushed');
  }

  function on(incoming: Flow, outgoing: Flow, ready: number): void {
    if ((ready & READY.writable) !== 0 && outgoing.held) write(outgoing, outgoing.held, outgoing.held.length);
    if ((ready & ~READY.writable) !== 0) copy(incoming, ready);
    // Bytes that were received before the error have been passed on.
    if ((ready & READY.error) !== 0) apply(incoming, 'failure');
  }
  const onFirst = (ready: number) => on(there, back, ready);
  const onSecond = (ready: number) => on(back, there, ready);

  return {
    start() {
      copy(there, 0);
      if (!there.held) watch(other, WATCHED);
      watch(one, WATCHED);
    },
    reset: () => apply(there, 'failure'),
  };
}
