import type { Server, Socket } from 'node:net';

/** The open connections of a server; further ones are closed at once. */
export interface ClientBounds {
  readonly connections: number;
  readonly perClient: number;
}

/** Load balancers and monitoring ask from few addresses, one connection each. */
export const STATUS_BOUNDS: ClientBounds = { connections: 1024, perClient: 32 };

/**
 * Bounds the connections of a server that pods and outside hosts reach without credentials: silent ones last until the request's
 * timeout, and without a bound one client takes all descriptors of the process that forwards and enforces policies.
 */
export function boundClients(server: Server, { connections, perClient }: ClientBounds): void {
  const byClient = new Map<string, number>();
  let open = 0;
  server.on('connection', (socket: Socket) => {
    const client = socket.remoteAddress ?? '';
    const count = (byClient.get(client) ?? 0) + 1;
    if (open >= connections || count > perClient) {
      socket.destroy();
      return;
    }
    open++;
    byClient.set(client, count);
    socket.once('close', () => {
      open--;
      const left = (byClient.get(client) ?? 1) - 1;
      if (left > 0) byClient.set(client, left);
      else byClient.delete(client);
    });
  });
}
