import { Readable, Writable } from 'node:stream';
import type { RawData, WebSocket } from 'ws';

/** Half-closes the channel that the second byte names (v5.channel.k8s.io). */
const CLOSE_CHANNEL = 255;
const MAX_DATA_BYTES = 32 * 1024;
/** Interval of the signs of life to a client whose input waits. */
const PING_MS = 1000;

export interface ChannelOptions {
  /** Channels on which the client writes. */
  readonly inputs: readonly number[];
  /** Messages are text: the channel as a digit, then base64. */
  readonly base64: boolean;
}

/**
 * The channels of a WebSocket whose messages begin with the number of their channel (`*.channel.k8s.io`). An input that
 * is not read blocks the connection, which is written to meanwhile: only so is a client's end noticed without reading. All
 * inputs end with the connection.
 */
export class WebSocketChannels {
  readonly #socket: WebSocket;
  readonly #base64: boolean;
  readonly #inputs = new Map<number, Readable>();
  readonly #full = new Set<number>();
  #pings: NodeJS.Timeout | null = null;
  /** Aborts when the connection is closed. */
  readonly closed: AbortSignal;

  constructor(socket: WebSocket, options: ChannelOptions) {
    this.#socket = socket;
    this.#base64 = options.base64;
    for (const channel of options.inputs) {
      this.#inputs.set(channel, new Readable({ read: () => this.#resume(channel) }));
    }
    const closing = new AbortController();
    this.closed = closing.signal;
    socket.on('message', (data, isBinary) => this.#message(data, isBinary));
    // The 'close' event that follows is sufficient.
    socket.on('error', () => {});
    socket.on('close', () => {
      this.#stopPings();
      for (const input of this.#inputs.values()) if (!input.readableEnded) input.push(null);
      closing.abort();
    });
  }

  /** Returns the client's data on a channel; empty unless the channel is among the inputs. */
  input(channel: number): Readable {
    return this.#inputs.get(channel) ?? Readable.from([]);
  }

  output(channel: number): Writable {
    const output = new Writable({
      write: (chunk: Buffer, _encoding, callback) => this.send(channel, chunk, callback),
    });
    // Writers receive errors in their callbacks; a disconnected client must not end the process.
    return output.on('error', () => {});
  }

  /** Sends bytes; also an empty message, which clients interpret as a sign of life. */
  send(channel: number, bytes: Buffer, callback: (error?: Error | null) => void): void {
    let at = 0;
    do {
      const part = bytes.subarray(at, at + MAX_DATA_BYTES);
      at += MAX_DATA_BYTES;
      const last = at >= bytes.length;
      const message = this.#base64
        ? `${channel}${part.toString('base64')}`
        : Buffer.concat([Uint8Array.of(channel), part]);
      this.#socket.send(message, (error) => {
        if (last || error) callback(error);
      });
    } while (at < bytes.length);
  }

  /** Closes the connection after the written data is sent. */
  close(): void {
    this.#socket.close(1000);
  }

  #message(data: RawData, isBinary: boolean): void {
    const bytes = Buffer.isBuffer(data)
      ? data
      : Buffer.concat(Array.isArray(data) ? data : [Buffer.from(data)]);
    const first = bytes[0];
    if (first === undefined) return;
    if (this.#base64 && !isBinary) {
      this.#take(first - 0x30, Buffer.from(bytes.toString('latin1', 1), 'base64'));
    } else if (first === CLOSE_CHANNEL) {
      this.#end(bytes[1]);
    } else {
      this.#take(first, bytes.subarray(1));
    }
  }

  #take(channel: number, bytes: Buffer): void {
    const input = this.#inputs.get(channel);
    if (!input || input.destroyed || bytes.length === 0) return;
    if (!input.push(bytes)) {
      this.#full.add(channel);
      this.#socket.pause();
      this.#pings ??= setInterval(() => this.#ping(), PING_MS);
    }
  }

  /** A client that does not read either gets none that would wait for it. */
  #ping(): void {
    if (this.#socket.bufferedAmount === 0) this.#socket.ping();
  }

  #end(channel: number | undefined): void {
    const input = channel === undefined ? undefined : this.#inputs.get(channel);
    if (!input) return;
    this.#inputs.delete(channel ?? -1);
    this.#resume(channel ?? -1);
    input.push(null);
  }

  #resume(channel: number): void {
    if (!this.#full.delete(channel) || this.#full.size > 0) return;
    this.#stopPings();
    this.#socket.resume();
  }

  #stopPings(): void {
    clearInterval(this.#pings ?? undefined);
    this.#pings = null;
  }
}
