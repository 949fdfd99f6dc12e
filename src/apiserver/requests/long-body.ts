/** Bytes of a buffer. */
const BUFFER_BYTES = 128 * 1024;

/** A body that is put together while it is sent, so that the list of thousands of objects is never in memory as a whole. */
export class LongBody {
  readonly #pieces: Iterator<string | Buffer>;
  /** The rest of a piece that was begun; empty: none. */
  #rest: string | Buffer = '';
  readonly #encoder = new TextEncoder();

  /** `pieces` are sent one after the other, texts in UTF-8, and read when they are needed. */
  constructor(pieces: Iterable<string | Buffer>) {
    this.#pieces = pieces[Symbol.iterator]();
  }

  /** Writes the next bytes into a buffer of at least four bytes; returns their number, 0 at the end. */
  fill(buffer: Buffer): number {
    let used = 0;
    for (;;) {
      const next = this.#rest.length === 0 ? this.#pieces.next() : { done: false, value: this.#rest };
      if (next.done) return used;
      const piece: string | Buffer = next.value;
      this.#rest = '';
      const room = buffer.length - used;
      // A UTF-16 unit takes at most three bytes: such a text fits whole.
      if (typeof piece === 'string' && piece.length * 3 <= room) {
        used += buffer.write(piece, used);
        continue;
      }
      const { read, written } =
        typeof piece === 'string'
          ? this.#encoder.encodeInto(piece, buffer.subarray(used))
          : copied(piece, buffer, used);
      used += written;
      if (read === piece.length) continue;
      this.#rest = typeof piece === 'string' ? piece.slice(read) : piece.subarray(read);
      return used;
    }
  }

  /** Returns the bytes that were not written yet. */
  whole(): Buffer {
    const pieces: Buffer[] = [];
    for (;;) {
      const buffer = Buffer.allocUnsafe(BUFFER_BYTES);
      const length = this.fill(buffer);
      if (length === 0) return Buffer.concat(pieces);
      pieces.push(buffer.subarray(0, length));
    }
  }
}

function copied(from: Buffer, to: Buffer, at: number): { read: number; written: number } {
  const written = from.copy(to, at);
  return { read: written, written };
}

/** Buffers for long bodies on their way. */
export interface BufferPool {
  take(): Buffer;
  /** Returns a buffer that is no longer used. */
  give(buffer: Buffer): void;
}

/** Buffers that are kept without use. */
const MAX_KEPT = 8;

/** Makes a pool. Without it, each list of a large cluster would leave megabytes outside the heap to the collector. */
export function createBufferPool(): BufferPool {
  const free: Buffer[] = [];
  return {
    take: () => free.pop() ?? Buffer.allocUnsafeSlow(BUFFER_BYTES),
    give(buffer) {
      if (free.length < MAX_KEPT) free.push(buffer);
    },
  };
}

/** Something that a body is written to: a response or a compressor. */
export interface BodySink {
  write(bytes: Buffer, done: (error?: Error | null) => void): unknown;
  end(): unknown;
}

/**
 * Writes a body piece by piece, each when the one before it has been taken, and ends the sink. Rejects if a write fails, or
 * when `closed` is aborted.
 */
export async function writeLongBody(
  body: LongBody,
  sink: BodySink,
  pool: BufferPool,
  closed: AbortSignal,
): Promise<void> {
  for (;;) {
    const buffer = pool.take();
    const length = body.fill(buffer);
    // After a failure the buffer may still be read, and is left to the collector.
    if (length > 0) await written(sink, buffer.subarray(0, length), closed);
    pool.give(buffer);
    if (length === 0) break;
  }
  sink.end();
}

function written(sink: BodySink, bytes: Buffer, closed: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    closed.throwIfAborted();
    const fail = () => reject(closed.reason);
    closed.addEventListener('abort', fail, { once: true });
    sink.write(bytes, (error) => {
      closed.removeEventListener('abort', fail);
      if (error) reject(error);
      else resolve();
    });
  });
}
