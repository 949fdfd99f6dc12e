import { createServer, type Server, type Socket } from 'node:net';
import { sourceKey } from '../kernel/datagram-server.ts';
import type { IPFamily } from '../lib/address.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { createFairTurns, type FairTurns } from './fair-turns.ts';
import { MAX_QUERY_BYTES, MAX_UDP_BYTES, type Responder } from './responder.ts';
import type { SourceShare } from './source-share.ts';

/** The limits for a listener's clients. Durations in milliseconds. */
export interface TcpLimits {
  readonly maxConnections: number;
  readonly maxConnectionsPerClient: number;
  /** A connection without traffic is closed after this (RFC 7766, 6.2.3). */
  readonly idleMs: number;
  /** A query must be complete within this time after its first byte. */
  readonly messageMs: number;
  /** The maximum number of concurrent queries per connection; beyond it the connection is not read. */
  readonly maxPipelined: number;
  /** The maximum of unsent answers per connection; beyond it the connection is not read. */
  readonly maxUnsentBytes: number;
}

export const DEFAULT_TCP_LIMITS: TcpLimits = {
  maxConnections: 1000,
  maxConnectionsPerClient: 200,
  idleMs: 10_000,
  messageMs: 5_000,
  maxPipelined: 100,
  maxUnsentBytes: 32 << 10,
};

export type TcpBinding =
  | { readonly address: string; readonly port: number; readonly family: IPFamily }
  | { readonly fd: number; readonly family: IPFamily };

export interface TcpListener {
  readonly address: string;
  readonly port: number;
  /** Stops listening; resolves when all queries that have arrived are answered and the connections closed. */
  finish(): Promise<void>;
  /** Closes all connections. */
  close(): Promise<void>;
}

/** The pause of a connection whose client has used up its share. */
const SHARE_PAUSE_MS = 100;
/** For the queries of all connections, in one turn of the event loop: what has arrived on them takes a second or more. */
const TURN_MS = 2;

/**
 * Answers queries over TCP. `share`: bounds each client, whose connections wait if it has used it up; null: unbounded. Rejects
 * with the system's error if it cannot bind.
 */
export async function listenTcp(
  binding: TcpBinding,
  respond: Responder,
  logger: Logger,
  limits: TcpLimits,
  share: SourceShare | null = null,
): Promise<TcpListener> {
  /** With a function that closes the connection after the answers to its queries. */
  const open = new Map<Socket, () => void>();
  const perClient = new Map<string, number>();
  const turns = createFairTurns(TURN_MS);
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    const client = socket.remoteAddress ?? '';
    const count = (perClient.get(client) ?? 0) + 1;
    const own = share && shareOf(share, client);
    const isFull = open.size >= limits.maxConnections || count > limits.maxConnectionsPerClient;
    // A connection counts as a query: clients that connect without end are not read.
    if (isFull || own?.take() === false) {
      socket.destroy();
      return;
    }
    open.set(socket, serve(socket, respond, binding.family, limits, own, turns, logger));
    perClient.set(client, count);
    socket.once('close', () => {
      open.delete(socket);
      const left = (perClient.get(client) ?? 1) - 1;
      if (left > 0) perClient.set(client, left);
      else perClient.delete(client);
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    const listening = () => {
      server.off('error', reject);
      resolve();
    };
    if ('fd' in binding) server.listen({ fd: binding.fd }, listening);
    else {
      server.listen(
        { host: binding.address, port: binding.port, ipv6Only: binding.family === 'ipv6' },
        listening,
      );
    }
  });
  server.on('error', (error) => logger.warn({ error: messageOf(error) }, 'TCP listener'));
  return {
    ...placeOf(server),
    async finish() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const end of open.values()) end();
      await closed;
    },
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const socket of open.keys()) socket.destroy();
      await closed;
    },
  };
}

/** A share of one client. */
interface ClientShare {
  take(): boolean;
  wait(change: 1 | -1): void;
  charge(queries: number): void;
}

/** Returns the source of a client, without the zone of a link-local address; '' for one that has gone. */
const sourceOf = (client: string): string | number =>
  client === '' ? '' : sourceKey(client.replace(/%.*$/, ''));

/** Null for a client that has gone. */
function shareOf(share: SourceShare, client: string): ClientShare | null {
  if (client === '') return null;
  const source = sourceOf(client);
  return {
    take: () => share.take(source),
    wait: (change) => share.wait(source, change),
    charge: (queries) => share.charge(source, queries),
  };
}

/**
 * Reads length-prefixed queries from a connection and writes the answers as they become ready, in any order. Returns a
 * function that closes the connection once its queries are answered.
 */
function serve(
  socket: Socket,
  respond: Responder,
  family: IPFamily,
  limits: TcpLimits,
  share: ClientShare | null,
  turns: FairTurns,
  logger: Logger,
): () => void {
  const source = sourceOf(socket.remoteAddress ?? '');
  let pending: Buffer = Buffer.alloc(0);
  let underWay = 0;
  let ended = false;
  let isFinishing = false;
  let slow: NodeJS.Timeout | null = null;
  /** The client has used up its share. */
  let pause: NodeJS.Timeout | null = null;

  const busy = () =>
    pause !== null || underWay >= limits.maxPipelined || socket.writableLength > limits.maxUnsentBytes;
  const endWhenDone = () => {
    if (underWay > 0 || hasMessage(pending)) return;
    // A client that reads until the end of the connection may leave its own side open.
    if (isFinishing) socket.destroySoon();
    else if (ended) socket.end();
  };

  function write(response: Buffer): void {
    if (socket.destroyed) return;
    const framed = Buffer.allocUnsafe(response.length + 2);
    framed.writeUInt16BE(response.length);
    response.copy(framed, 2);
    socket.write(framed);
  }

  function answered(response: Buffer | null): void {
    underWay--;
    share?.wait(-1);
    if (response) write(response);
    else socket.destroy();
    drain();
  }

  function takesShare(): boolean {
    if (share === null || share.take()) return true;
    pause = setTimeout(() => {
      pause = null;
      drain();
    }, SHARE_PAUSE_MS);
    return false;
  }

  const canAnswer = () => hasMessage(pending) && !isTooLong(pending) && !busy() && !socket.destroyed;

  function answerOne(): void {
    if (!takesShare()) return;
    const end = pending.readUInt16BE(0) + 2;
    const message = pending.subarray(2, end);
    pending = pending.subarray(end);
    const response = respond(message, 'tcp', family, source, share?.charge);
    if (response instanceof Promise) {
      underWay++;
      share?.wait(1);
      response.then(answered);
    } else if (response) {
      write(response);
    } else {
      // Not a query: the client does not use DNS.
      socket.destroy();
    }
  }

  const step = () => {
    if (canAnswer()) answerOne();
    if (canAnswer()) return true;
    settle();
    return false;
  };

  function drain(): void {
    if (!canAnswer()) {
      settle();
      return;
    }
    turns.run(step);
    // The rest waits for its turn.
    if (canAnswer()) socket.pause();
  }

  /** Does what follows from the queries that are left. */
  function settle(): void {
    if (isTooLong(pending) && !socket.destroyed) {
      share?.charge(Math.floor(pending.length / MAX_UDP_BYTES));
      socket.destroy();
    }
    if (busy() || hasMessage(pending)) socket.pause();
    else if (socket.isPaused()) socket.resume();
    watchPartial();
    endWhenDone();
  }

  function watchPartial(): void {
    const partial = pending.length > 0 && !hasMessage(pending);
    if (!partial && slow) {
      clearTimeout(slow);
      slow = null;
    } else if (partial && !slow) {
      slow = setTimeout(() => socket.destroy(), limits.messageMs);
    }
  }

  socket.setTimeout(limits.idleMs, () => socket.destroy());
  socket.on('data', (chunk) => {
    pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk]);
    if (slow && hasMessage(pending)) {
      clearTimeout(slow);
      slow = null;
    }
    drain();
  });
  socket.on('drain', drain);
  socket.on('end', () => {
    ended = true;
    endWhenDone();
  });
  socket.on('close', () => {
    if (slow) clearTimeout(slow);
    if (pause) clearTimeout(pause);
  });
  socket.on('error', (error) => logger.debug({ error: messageOf(error) }, 'TCP connection'));
  return () => {
    isFinishing = true;
    endWhenDone();
  };
}

const isTooLong = (pending: Buffer): boolean =>
  pending.length >= 2 && pending.readUInt16BE(0) > MAX_QUERY_BYTES;

const hasMessage = (pending: Buffer): boolean =>
  pending.length >= 2 && pending.length >= pending.readUInt16BE(0) + 2;

function placeOf(server: Server): { address: string; port: number } {
  const place = server.address();
  return typeof place === 'object' && place ? place : { address: '', port: 0 };
}
