import type { Server, Socket } from 'node:net';
import type { Clock } from './clock.ts';
import {
  type Connection,
  type ConnectionLimits,
  clientNetwork,
  createConnectionTable,
} from './connection-table.ts';
import { type Rate, refill, type TokenBucket } from './token-bucket.ts';

/** Sources whose rate is remembered; the one that was the first to come is forgotten first. */
const MAX_SOURCES = 4096;

type Peer = Pick<Socket, 'remoteAddress' | 'remotePort'>;

const nameOf = ({ remoteAddress = '', remotePort = 0 }: Peer): string => `${remoteAddress} ${remotePort}`;

/** Bounds the connections whose clients have shown no credentials. */
export interface ClientConnections {
  /**
   * Counts the connections of a server, and ends the oldest without credentials for one too many. Call it when the server has its own
   * listeners: they never see a connection that is refused.
   */
  watch(server: Server): void;
  /** Records that the client of a connection has shown credentials. */
  know(peer: Peer): void;
}

export interface ClientConnectionsOptions {
  readonly limits: ConnectionLimits;
  /** How often a source may connect; null: without end. A TLS handshake takes a thousand times as long as a refusal. */
  readonly rate: Rate | null;
  readonly clock: Pick<Clock, 'now'>;
}

export function createClientConnections({
  limits,
  rate,
  clock,
}: ClientConnectionsOptions): ClientConnections {
  const table = createConnectionTable(limits);
  /** By the client's address and port: a TLS socket does not show the one that it wraps. */
  const opened = new Map<string, Connection>();
  const mayConnect = rate ? createSourceRate(rate, () => clock.now()) : () => true;
  const open = (raw: Socket) => {
    const name = nameOf(raw);
    const connection = table.open(raw.remoteAddress ?? '', clock.now(), () => raw.destroy());
    opened.set(name, connection);
    raw.once('close', () => {
      table.close(connection);
      if (opened.get(name) === connection) opened.delete(name);
    });
  };
  return {
    watch(server) {
      const listeners = server.listeners('connection');
      server.removeAllListeners('connection');
      server.on('connection', (raw: Socket) => {
        if (!mayConnect(raw.remoteAddress ?? '')) {
          raw.resetAndDestroy();
          return;
        }
        open(raw);
        for (const listener of listeners) listener.call(server, raw);
      });
    },
    know(peer) {
      const connection = opened.get(nameOf(peer));
      if (connection) table.know(connection);
    },
  };
}

/** Returns a function that reports whether the network of an address is within its rate. `now`: milliseconds. */
export function createSourceRate(rate: Rate, now: () => number): (address: string) => boolean {
  const buckets = new Map<string, TokenBucket>();
  return (address) => {
    const source = clientNetwork(address);
    let bucket = buckets.get(source);
    if (!bucket) {
      const [first] = buckets.keys();
      if (buckets.size >= MAX_SOURCES && first !== undefined) buckets.delete(first);
      bucket = { tokens: rate.burst, at: now() };
      buckets.set(source, bucket);
    }
    refill(bucket, rate, now());
    if (bucket.tokens < 1) return false;
    bucket.tokens--;
    return true;
  };
}
