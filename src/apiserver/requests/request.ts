import type { IncomingMessage } from 'node:http';
import type { Duplex, Readable } from 'node:stream';
import type { User } from '../authentication/user.ts';
import type { LongBody } from './long-body.ts';

/** A request, independent of its transport. */
export interface IncomingRequest {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly user: User;
  /** Made by this process. */
  readonly internal: boolean;
  /** Aborts when the client disconnects. */
  readonly signal: AbortSignal;
  /** Reads the whole body. Throws StatusError 413 if it is too long, 408 if it arrives too slowly. */
  body(): Promise<Buffer>;
  /** Returns the body as a stream, for proxies; used instead of `body`. */
  stream(): Readable;
  /** The connection of a request for another protocol (WebSocket, SPDY); null for all others. */
  readonly upgrade: Upgrade | null;
}

/** An HTTP/1.1 connection whose client requests a protocol upgrade. */
export interface Upgrade {
  readonly message: IncomingMessage;
  readonly socket: Duplex;
  /** Bytes received after the head. */
  readonly head: Buffer;
}

export interface PlainResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly body: string | Buffer | LongBody | Readable;
}

/** A response; "upgraded": the handler has taken over the connection. */
export type OutgoingResponse = PlainResponse | 'upgraded';
