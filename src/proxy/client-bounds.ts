import type { Server, Socket } from 'node:net';
import { clientNetwork } from '../lib/connection-table.ts';
import { type Rate, refill, type TokenBucket } from '../lib/token-bucket.ts';

/** The open connections of a server, and the rate of a client's new ones; further ones are closed at once. */
export interface ClientBounds extends Rate {
  readonly connections: number;
  readonly perClient: number;
}

/** Load balancers, monitoring and other nodes ask from few addresses, one connection each. */
export const STATUS_BOUNDS: ClientBounds = { connections: 1024, perClient: 32, perSecond: 100, burst: 200 };

/** Clients that are remembered; the one that was the first to come is forgotten first. */
const MAX_CLIENTS = 4096;

interface Client extends TokenBucket {
  open: number;
}

/**
 * Bounds the connections of a server that pods and outside hosts reach without credentials: silent ones last until the request's
 * timeout, and take all descriptors of the process that forwards, enforces policies and answers DNS; new ones without end take its
 * time. Those beyond the bounds are reset. `now`: milliseconds.
 */
export function boundClients(
  server: Server,
  { connections, perClient, ...rate }: ClientBounds,
  now: () => number = () => performance.now(),
): void {
  const clients = new Map<string, Client>();
  let open = 0;
  const find = (address: string): Client => {
    const known = clients.get(address);
    if (known) return known;
    if (clients.size >= MAX_CLIENTS) forgetOne(clients);
    const client = { open: 0, tokens: rate.burst, at: now() };
    clients.set(address, client);
    return client;
  };
  const take = (client: Client): boolean => {
    refill(client, rate, now());
    if (client.tokens < 1) return false;
    client.tokens--;
    return true;
  };
  server.on('connection', (socket: Socket) => {
    const client = find(clientNetwork(socket.remoteAddress ?? ''));
    if (open >= connections || client.open >= perClient || !take(client)) {
      socket.resetAndDestroy();
      return;
    }
    open++;
    client.open++;
    socket.once('close', () => {
      open--;
      client.open--;
    });
  });
}

/** Forgets a client without a connection. */
function forgetOne(clients: Map<string, Client>): void {
  for (const [address, { open }] of clients) {
    if (open > 0) continue;
    clients.delete(address);
    return;
  }
}
