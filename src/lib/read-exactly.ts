import { once } from 'node:events';
import type { Readable } from 'node:stream';

/**
 * Reads this many bytes; those that follow stay in the stream. Returns null if the stream ends before; rejects with its
 * error.
 */
export async function readExactly(stream: Readable, length: number): Promise<Buffer | null> {
  let held = Buffer.alloc(0);
  for (;;) {
    // All of it: a stream that holds some bytes would report at once, and again, that it is readable.
    const bytes: Buffer | null = stream.read();
    if (bytes) held = Buffer.concat([held, bytes]);
    if (held.length >= length) {
      if (held.length > length) stream.unshift(held.subarray(length));
      return held.subarray(0, length);
    }
    if (bytes) continue;
    if (stream.readableEnded) return null;
    const ended = new AbortController();
    const { signal } = ended;
    try {
      await Promise.race([once(stream, 'readable', { signal }), once(stream, 'end', { signal })]);
    } finally {
      ended.abort();
    }
  }
}
