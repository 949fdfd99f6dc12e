import { FairleadError } from '../../lib/errors.ts';

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

/** A frame, or a part of a data frame: the last part has its flags. */
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
/** More than any control frame of the supported protocols, whose headers are short. */
const MAX_CONTROL_BYTES = 64 * 1024;

interface OpenData {
  readonly stream: number;
  readonly flags: number;
  /** Bytes that follow. */
  left: number;
}

/** Splits a byte stream into frames, in linear time; data is not kept. */
export class FrameReader {
  #pending: Buffer[] = [];
  #length = 0;
  /** The bytes at which the pending ones are a head, or a whole control frame. */
  #wanted = HEAD_BYTES;
  /** The data frame whose payload follows. */
  #data: OpenData | null = null;

  /** Adds bytes and returns the frames that they complete. Throws "bad-upgrade" for a control frame that is too long. */
  push(chunk: Buffer): SpdyFrame[] {
    const frames: SpdyFrame[] = [];
    for (let rest = chunk; rest.length > 0; ) {
      const part = rest.subarray(0, this.#data ? this.#data.left : this.#wanted - this.#length);
      rest = rest.subarray(part.length);
      const frame = this.#data ? this.#payload(this.#data, part) : this.#headOrControl(part);
      if (frame) frames.push(frame);
    }
    return frames;
  }

  #payload(data: OpenData, payload: Buffer): SpdyFrame {
    data.left -= payload.length;
    const { stream, flags, left } = data;
    if (left === 0) this.#data = null;
    return { type: 'data', stream, flags: left === 0 ? flags : 0, payload };
  }

  #headOrControl(part: Buffer): SpdyFrame | null {
    this.#pending.push(part);
    this.#length += part.length;
    if (this.#length < this.#wanted) return null;
    const [only = part] = this.#pending;
    const bytes = this.#pending.length === 1 ? only : Buffer.concat(this.#pending, this.#length);
    const length = bytes.readUIntBE(5, 3);
    const flags = bytes[4] ?? 0;
    const first = bytes.readUInt32BE(0);
    if (first >>> 31 === 0) {
      this.#restart();
      if (length === 0) return { type: 'data', stream: first, flags, payload: Buffer.alloc(0) };
      this.#data = { stream: first, flags, left: length };
      return null;
    }
    if (length > MAX_CONTROL_BYTES) {
      throw new FairleadError(`a SPDY control frame of ${length} bytes is too long`, {
        op: 'read SPDY stream',
        code: 'bad-upgrade',
      });
    }
    if (bytes.length < HEAD_BYTES + length) {
      this.#pending = [bytes];
      this.#wanted = HEAD_BYTES + length;
      return null;
    }
    this.#restart();
    const payload = bytes.subarray(HEAD_BYTES);
    return { type: 'control', version: (first >>> 16) & 0x7fff, kind: first & 0xffff, flags, payload };
  }

  #restart(): void {
    this.#pending = [];
    this.#length = 0;
    this.#wanted = HEAD_BYTES;
  }
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
