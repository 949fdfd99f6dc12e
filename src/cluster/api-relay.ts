import { connect, createServer, type Socket } from 'node:net';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { relay, reset } from '../lib/relay.ts';

/**
 * Relays connections of an inherited listener, on the machine's loopback, to the API server on this namespace's loopback.
 * A connection that the API server does not accept is reset.
 */
export function relayToApi(listener: number, port: number, logger: Logger): { close(): void } {
  const clients = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (client) => {
    clients.add(client);
    client.on('close', () => clients.delete(client));
    // 'close' follows.
    client.on('error', () => {});
    const api = connect({ host: '127.0.0.1', port, allowHalfOpen: true, noDelay: true });
    const refuse = () => reset(client);
    api.once('error', refuse);
    api.once('connect', () => {
      api.off('error', refuse);
      if (client.destroyed) reset(api);
      else relay(client, api, () => {});
    });
  });
  server.on('error', (error) => logger.error({ err: error }, `the relay failed: ${messageOf(error)}`));
  server.listen({ fd: listener });
  return {
    close() {
      server.close();
      for (const client of clients) reset(client);
    },
  };
}
