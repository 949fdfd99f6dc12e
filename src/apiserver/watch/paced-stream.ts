import { Readable } from 'node:stream';

/** The stream of a watch: the events of existing objects as fast as its client reads them, then all that came meanwhile. */
export interface PacedStream {
  readonly stream: Readable;
  /** Sends these pieces first, each made when the client has room for it. Called once, before `push`. */
  start(pieces: Iterator<Buffer>): void;
  /** Sends bytes after everything before them. A client that lags by too much is disconnected. */
  push(bytes: Buffer): void;
  /** The bytes that wait for the client, besides the pieces. */
  unread(): number;
  /** Ends the stream after what was pushed; pieces that the client has had no room for are left out, with all that follows. */
  end(): void;
}

/** `maxUnread`: bytes that may wait for the client, besides the pieces. */
export function createPacedStream(maxUnread: number): PacedStream {
  let pieces: Iterator<Buffer> | null = null;
  let held: Buffer[] = [];
  let heldBytes = 0;
  const stream = new Readable({
    read: pump,
    destroy(error, done) {
      pieces = null;
      held = [];
      done(error);
    },
  });

  /** Sends pieces while the client has room; the stream calls it again when it has room. */
  function pump(): void {
    while (pieces !== null) {
      const next = pieces.next();
      if (next.done) {
        pieces = null;
        const rest = held;
        held = [];
        heldBytes = 0;
        for (const bytes of rest) stream.push(bytes);
        return;
      }
      if (!stream.push(next.value)) return;
    }
  }

  return {
    stream,
    start(given) {
      pieces = given;
    },
    push(bytes) {
      if (stream.destroyed) return;
      if (pieces === null) stream.push(bytes);
      else {
        held.push(bytes);
        heldBytes += bytes.length;
      }
      if (heldBytes + stream.readableLength > maxUnread) stream.destroy();
    },
    unread: () => (stream.destroyed ? 0 : heldBytes + stream.readableLength),
    end() {
      pieces = null;
      held = [];
      stream.push(null);
    },
  };
}

/** Joins encoded events to pieces of at least this size, or less at the end. */
export function* joined(events: Iterable<Buffer>, bytes: number): Generator<Buffer, undefined> {
  let piece: Buffer[] = [];
  let length = 0;
  for (const event of events) {
    piece.push(event);
    length += event.length;
    if (length < bytes) continue;
    yield Buffer.concat(piece, length);
    piece = [];
    length = 0;
  }
  if (length > 0) yield Buffer.concat(piece, length);
}
