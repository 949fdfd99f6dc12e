import type { IncomingMessage } from 'node:http';
import type { Duplex, Readable } from 'node:stream';
import type { User } from '../authentication/authenticator.ts';

/** A request, however it came. */
export interface IncomingRequest {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly user: User;
  /** Made by this process itself. */
  readonly internal: boolean;
  /** Aborts when the client has gone. */
  readonly signal: AbortSignal;
  /** Reads the whole body. Throws StatusError 413 when it is too long, 408 when it comes too slowly. */
  body(): Promise<Buffer>;
  /** The body as it comes, for proxies; read instead of `body`. */
  stream(): Readable;
  /** The connection, of a request that asks for another protocol (WebSocket, SPDY); null for all others. */
  readonly upgrade: Upgrade | null;
}

/** An HTTP/1.1 connection whose client asks to change the protocol. */
export interface Upgrade {
  readonly message: IncomingMessage;
  readonly socket: Duplex;
  /** Bytes that came after the head. */
  readonly head: Buffer;
}

export interface PlainResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly body: string | Buffer | Readable;
}

/** An answer; "upgraded": the handler has taken over the connection. */
export type OutgoingResponse = PlainResponse | 'upgraded';
