/** Types of SPDY/3.1 control frames (draft-mbelshe-httpbis-spdy-00, 2.6). */
export const SYN_STREAM = 1;
export const SYN_REPLY = 2;
export const RST_STREAM = 3;
export const SETTINGS = 4;
export const PING = 6;
export const GOAWAY = 7;
export const HEADERS = 8;
export const WINDOW_UPDATE = 9;

/** The sender sends no more data on this stream. */
export const FLAG_FIN = 1;

export type SpdyFrame =
  | { readonly type: 'data'; readonly stream: number; readonly flags: number; readonly payload: Buffer }
  | {
      readonly type: 'control';
      readonly kind: number;
      readonly version: number;
      readonly flags: number;
      readonly payload: Buffer;
    };

const HEAD_BYTES = 8;

/** Splits a byte stream into frames. */
export class FrameReader {
  #pending: Buffer[] = [];
  #length = 0;

  /** Adds bytes and returns the frames that they complete. */
  push(chunk: Buffer): SpdyFrame[] {
    this.#pending.push(chunk);
    this.#length += chunk.length;
    const frames: SpdyFrame[] = [];
    while (this.#length >= HEAD_BYTES) {
      const bytes = this.#join();
      const length = bytes.readUIntBE(5, 3);
      if (bytes.length < HEAD_BYTES + length) break;
      frames.push(readFrame(bytes, length));
      const rest = bytes.subarray(HEAD_BYTES + length);
      this.#pending = rest.length > 0 ? [rest] : [];
      this.#length = rest.length;
    }
    return frames;
  }

  #join(): Buffer {
    const [only] = this.#pending;
    if (only && this.#pending.length === 1) return only;
    const joined = Buffer.concat(this.#pending, this.#length);
    this.#pending = [joined];
    return joined;
  }
}

function readFrame(bytes: Buffer, length: number): SpdyFrame {
  const payload = bytes.subarray(HEAD_BYTES, HEAD_BYTES + length);
  const flags = bytes[4] ?? 0;
  const first = bytes.readUInt32BE(0);
  if (first >>> 31 === 0) return { type: 'data', stream: first, flags, payload };
  return { type: 'control', version: (first >>> 16) & 0x7fff, kind: first & 0xffff, flags, payload };
}

export function dataFrame(stream: number, flags: number, payload: Uint8Array): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUInt32BE(stream);
  head[4] = flags;
  head.writeUIntBE(payload.length, 5, 3);
  return Buffer.concat([head, payload]);
}

export function controlFrame(kind: number, flags: number, ...parts: (number | Uint8Array)[]): Buffer {
  const payload = Buffer.concat(
    parts.map((part) => {
      if (typeof part !== 'number') return part;
      const number = Buffer.alloc(4);
      number.writeUInt32BE(part);
      return number;
    }),
  );
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUInt32BE((0x80030000 | kind) >>> 0);
  head[4] = flags;
  head.writeUIntBE(payload.length, 5, 3);
  return Buffer.concat([head, payload]);
}
