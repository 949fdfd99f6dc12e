import { Duplex } from 'node:stream';
import { FairleadError } from '../../lib/errors.ts';
import {
  controlFrame,
  dataFrame,
  FLAG_FIN,
  FrameReader,
  GOAWAY,
  HEADERS,
  PING,
  RST_STREAM,
  type SpdyFrame,
  SYN_REPLY,
  SYN_STREAM,
} from './spdy-frames.ts';
import { createHeaderEncoder, HeaderDecoder } from './spdy-headers.ts';

const PROTOCOL_ERROR = 1;
const INVALID_STREAM = 2;
const REFUSED_STREAM = 3;
const CANCEL = 5;

/** Longer writes are split, so that streams share the connection. */
const MAX_DATA_BYTES = 32 * 1024;
/** Maximum unread bytes of a stream before the connection is no longer read. */
const STREAM_BUFFER_BYTES = 256 * 1024;
/** Maximum unread bytes of all streams, before the connection is no longer read. */
const SESSION_BUFFER_BYTES = 4 << 20;
/** Streams that a client has open at the same time; a forwarded connection has two. */
const MAX_STREAMS = 1024;
/** Bytes that wait for a client that does not read, before it is no longer read. Only answers to its frames add to them. */
const MAX_UNSENT_BYTES = 1 << 20;

/** A stream that the client opened. Its 'end' is the client's half-close; end() is the server's. */
export class SpdyStream extends Duplex {
  readonly id: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly #session: SpdySession;
  remoteClosed = false;

  constructor(session: SpdySession, id: number, headers: ReadonlyMap<string, string>) {
    super({ allowHalfOpen: true, readableHighWaterMark: STREAM_BUFFER_BYTES, autoDestroy: true });
    this.#session = session;
    this.id = id;
    this.headers = headers;
  }

  override _read(): void {
    this.#session.resume(this);
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.#session.sendData(this.id, chunk, callback);
  }

  override _final(callback: (error?: Error | null) => void): void {
    this.#session.sendEnd(this.id, callback);
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#session.forget(this, this.writableFinished && this.remoteClosed);
    callback(error);
  }
}

/**
 * The server's side of a SPDY/3.1 connection as Kubernetes uses it: the client opens streams, the server answers each.
 * Flow-control windows are neither observed nor required: the Go library on the other side does not implement them, and
 * would never open one again; TCP and each stream's buffer apply backpressure instead. Closes with its carrier.
 */
export class SpdySession {
  readonly #carrier: Duplex;
  readonly #onStream: (stream: SpdyStream) => void;
  readonly #reader = new FrameReader();
  readonly #decoder = new HeaderDecoder();
  readonly #encode = createHeaderEncoder();
  readonly #streams = new Map<number, SpdyStream>();
  readonly #full = new Set<SpdyStream>();
  /** Bytes of data since the unread ones of all streams were last summed up. */
  #fresh = 0;
  #hasTooMuch = false;
  #lastStream = 0;
  #waiting: (() => void) | null = null;
  /** Resolves when the connection is closed for any reason. */
  readonly closed: Promise<void>;

  /** `head`: bytes that arrived with the upgrade. `onStream` is called for every accepted stream. */
  constructor(carrier: Duplex, head: Buffer, onStream: (stream: SpdyStream) => void) {
    this.#carrier = carrier;
    this.#onStream = onStream;
    this.closed = new Promise((resolve) => {
      carrier.once('close', () => {
        this.#teardown();
        resolve();
      });
    });
    // The 'close' event that follows is sufficient.
    carrier.on('error', () => {});
    void this.#run(head);
  }

  /**
   * Announces the end of the connection, which the client closes, as a kubelet's: older Go clients (docker/spdystream) may drop
   * the last frames of a connection that ends, and then take a missing status for success.
   */
  close(): void {
    if (this.#carrier.destroyed) return;
    this.#carrier.write(controlFrame(GOAWAY, 0, this.#lastStream, 0));
  }

  destroy(): void {
    this.#carrier.destroy();
  }

  sendData(id: number, chunk: Buffer, callback: (error?: Error | null) => void): void {
    for (let at = 0; at < chunk.length; at += MAX_DATA_BYTES) {
      const part = chunk.subarray(at, at + MAX_DATA_BYTES);
      const last = at + MAX_DATA_BYTES >= chunk.length;
      this.#send(dataFrame(id, 0, part), last ? callback : undefined);
    }
    if (chunk.length === 0) callback();
  }

  sendEnd(id: number, callback: (error?: Error | null) => void): void {
    this.#send(dataFrame(id, FLAG_FIN, Buffer.alloc(0)), callback);
  }

  resume(stream: SpdyStream): void {
    this.#full.delete(stream);
    if (this.#hasTooMuch) this.#hasTooMuch = this.#unread() > SESSION_BUFFER_BYTES;
    if (!this.#mustWait()) this.#waiting?.();
  }

  #unread(): number {
    let sum = 0;
    for (const stream of this.#streams.values()) sum += stream.readableLength;
    return sum;
  }

  #mustWait(): boolean {
    return this.#full.size > 0 || this.#hasTooMuch;
  }

  forget(stream: SpdyStream, complete: boolean): void {
    if (this.#streams.delete(stream.id) && !complete) {
      this.#send(controlFrame(RST_STREAM, 0, stream.id, CANCEL));
    }
    this.resume(stream);
  }

  #send(frame: Buffer, callback?: (error?: Error | null) => void): void {
    if (this.#carrier.destroyed || this.#carrier.writableEnded) {
      callback?.(closedByClient());
      return;
    }
    this.#carrier.write(frame, callback);
  }

  async #run(head: Buffer): Promise<void> {
    try {
      await this.#take(head);
      for await (const chunk of this.#carrier) await this.#take(chunk as Buffer);
      this.#carrier.end();
    } catch {
      this.#carrier.destroy();
    }
  }

  async #take(chunk: Buffer): Promise<void> {
    for (const frame of this.#reader.push(chunk)) {
      if (frame.type === 'data') this.#data(frame);
      else await this.#control(frame);
    }
    if (this.#carrier.writableLength > MAX_UNSENT_BYTES) await this.#drained();
    if (this.#fresh > STREAM_BUFFER_BYTES) {
      this.#fresh = 0;
      this.#hasTooMuch = this.#unread() > SESSION_BUFFER_BYTES;
    }
    if (this.#mustWait()) {
      await new Promise<void>((resolve) => {
        this.#waiting = resolve;
      });
      this.#waiting = null;
    }
  }

  async #drained(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#carrier.once('drain', resolve);
      this.#carrier.once('close', resolve);
    });
  }

  #data(frame: SpdyFrame & { type: 'data' }): void {
    const stream = this.#streams.get(frame.stream);
    if (!stream) {
      if (frame.stream > this.#lastStream)
        this.#send(controlFrame(RST_STREAM, 0, frame.stream, INVALID_STREAM));
      return;
    }
    this.#fresh += frame.payload.length;
    if (frame.payload.length > 0 && !stream.remoteClosed && !stream.push(frame.payload))
      this.#full.add(stream);
    if (frame.flags & FLAG_FIN) this.#remoteEnd(stream);
  }

  #remoteEnd(stream: SpdyStream): void {
    if (stream.remoteClosed) return;
    stream.remoteClosed = true;
    stream.push(null);
  }

  async #control(frame: SpdyFrame & { type: 'control' }): Promise<void> {
    const { payload } = frame;
    switch (frame.kind) {
      case SYN_STREAM: {
        const id = payload.readUInt32BE(0) & 0x7fffffff;
        const headers = await this.#decoder.decode(payload.subarray(10));
        if (id <= this.#lastStream || id % 2 === 0) {
          this.#send(controlFrame(RST_STREAM, 0, id, PROTOCOL_ERROR));
          return;
        }
        this.#lastStream = id;
        if (this.#streams.size >= MAX_STREAMS) {
          this.#send(controlFrame(RST_STREAM, 0, id, REFUSED_STREAM));
          return;
        }
        const stream = new SpdyStream(this, id, headers);
        // Users of a stream receive errors in their callbacks; without one, errors are irrelevant.
        stream.on('error', () => {});
        this.#streams.set(id, stream);
        this.#send(controlFrame(SYN_REPLY, 0, id, this.#encode(new Map())));
        if (frame.flags & FLAG_FIN) this.#remoteEnd(stream);
        this.#onStream(stream);
        return;
      }
      case RST_STREAM: {
        const stream = this.#streams.get(payload.readUInt32BE(0) & 0x7fffffff);
        if (!stream) return;
        this.#streams.delete(stream.id);
        this.#remoteEnd(stream);
        stream.destroy();
        return;
      }
      case HEADERS: {
        // Their content is ignored, but the compression context must be updated.
        await this.#decoder.decode(payload.subarray(4));
        return;
      }
      case PING:
        // Clients' pings are odd; an even one would answer a ping of ours.
        if (payload.readUInt32BE(0) % 2 === 1) this.#send(controlFrame(PING, 0, payload));
        return;
      case GOAWAY:
        return;
      default:
        // SETTINGS and WINDOW_UPDATE set unused parameters; unknown frames must be ignored.
        return;
    }
  }

  #teardown(): void {
    this.#waiting?.();
    this.#decoder.close();
    for (const stream of [...this.#streams.values()]) {
      this.#streams.delete(stream.id);
      this.#remoteEnd(stream);
      stream.destroy();
    }
  }
}

const closedByClient = (): FairleadError =>
  new FairleadError('the client has closed the connection', { op: 'write SPDY stream', code: 'EPIPE' });
