import type { Socket } from 'node:net';
import type { Server, TLSSocket } from 'node:tls';
import type { Clock } from '../../lib/clock.ts';
import {
  type Connection,
  createConnectionTable,
  DEFAULT_CONNECTION_LIMITS,
} from '../../lib/connection-table.ts';
import type { ClientAuthorization } from './client-authorization.ts';

/** A connection without credentials takes about 60 KiB: all of them a small part of the memory that the process may have. */
const LIMITS = { ...DEFAULT_CONNECTION_LIMITS, maxUnknownPerSource: 50, maxUnknown: 500 };

type Peer = Pick<Socket, 'remoteAddress' | 'remotePort'>;

const nameOf = ({ remoteAddress = '', remotePort = 0 }: Peer): string => `${remoteAddress} ${remotePort}`;

/** Bounds the connections whose clients have shown no credentials. */
export interface ClientConnections {
  /** Counts the connections of a server, and ends the oldest without credentials for one too many. */
  watch(server: Server): void;
  /** Returns an authorization which records that clients have shown credentials. */
  recording(authorization: ClientAuthorization): ClientAuthorization;
}

/** Any pod reaches the node's port: silent connections of one filled the memory of the process that runs all pods. */
export function createClientConnections(clock: Pick<Clock, 'now'>): ClientConnections {
  const table = createConnectionTable(LIMITS);
  /** By the client's address and port: a TLS socket does not show the one that it wraps. */
  const opened = new Map<string, Connection>();
  const know = (peer: Peer) => {
    const connection = opened.get(nameOf(peer));
    if (connection) table.know(connection);
  };
  return {
    watch(server) {
      server.prependListener('connection', (raw: Socket) => {
        const name = nameOf(raw);
        const connection = table.open(raw.remoteAddress ?? '', clock.now(), () => raw.destroy());
        opened.set(name, connection);
        raw.once('close', () => {
          table.close(connection);
          if (opened.get(name) === connection) opened.delete(name);
        });
      });
      server.on('secureConnection', (socket: TLSSocket) => {
        if (socket.authorized) know(socket);
      });
    },
    recording: ({ authorize }) => ({
      authorize(request, isUpgrade) {
        const decision = authorize(request, isUpgrade);
        if (decision === null) know(request.socket);
        return decision?.then(() => know(request.socket)) ?? null;
      },
    }),
  };
}
