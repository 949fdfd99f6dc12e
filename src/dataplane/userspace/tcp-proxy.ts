import { listenToStreams } from '../../kernel/stream-listener.ts';
import { createStreamRelay, type StreamRelay } from '../../kernel/stream-relay.ts';
import { resetStream, sendAtOnce } from '../../kernel/stream-socket.ts';
import type { Endpoint } from '../../service/model.ts';
import { createLateKeepalive } from './late-keepalive.ts';
import { microsSince, type PoolProxy, type ProxyOptions } from './pool-proxy.ts';
import {
  type Client,
  createTcpDialler,
  type Dialled,
  type Found,
  leave,
  type Report,
} from './tcp-dialler.ts';

/** The descriptors of a connection: the client's and the endpoint's. */
const DESCRIPTORS = 2;

/**
 * Proxies a TCP listener: connects each client to an endpoint, trying the next until one answers, and then copies bytes in
 * both directions. The thread of the agent does all of it, where the choice of endpoints, policies and flows are.
 */
export function createTcpProxy(options: ProxyOptions): PoolProxy {
  const { fd, epoll, clock, logger, onFlow, shares } = options;
  const { isWatched = () => true } = options;
  const connections = new Set<{ readonly endpoint: Endpoint; readonly relay: StreamRelay }>();
  const waiting = new Set<Client>();
  const keepalive = createLateKeepalive(clock);
  const dialler = createTcpDialler(options, (error) => listener.rest(error));
  const listener = listenToStreams({
    fd,
    epoll,
    clock,
    onStream(stream) {
      if (shares && !shares.take(stream.ip, DESCRIPTORS)) resetStream(epoll, stream.fd);
      else connect({ ...stream, isGone: false, leave: null });
    },
    onScarcity: (error) =>
      logger.error({ error }, 'no socket for another connection; raise the limit of open files'),
    onFailure: () => logger.error({}, 'listener failed; its Service is unreachable'),
  });

  function connect(client: Client): void {
    const begun = performance.now();
    const report: Report = (kind, endpoint, proxy) => {
      if (kind !== 'denied' && !isWatched()) return;
      const { ip, port } = client;
      onFlow?.({ kind, endpoint, client: { ip, port }, proxy, micros: microsSince(begun) });
    };
    const dialling = dialler.dial(client, report);
    // Without a promise, if the first endpoint answers at once.
    const go = (...answer: [] | [Dialled]): void => {
      const { done, value } = dialling.next(...answer);
      if (!done) {
        waiting.add(client);
        value.then(go);
        return;
      }
      waiting.delete(client);
      if (value && !client.isGone) {
        const { endpoint, server, local } = value;
        // Flows may be watched only since the connection was begun.
        const end = () => local ?? dialler.endOf(server);
        report('established', endpoint, end());
        join(client.fd, value, () => {
          shares?.give(client.ip, DESCRIPTORS);
          report('closed', endpoint, end());
        });
        return;
      }
      shares?.give(client.ip, DESCRIPTORS);
      if (value) {
        report('given-up', value.endpoint, value.local);
        resetStream(epoll, value.server);
      }
      resetStream(epoll, client.fd);
    };
    go();
  }

  function join(client: number, { server, endpoint }: Found, onClosed: () => void): void {
    const relay = createStreamRelay(epoll, client, server, () => {
      connections.delete(connection);
      keepalive.delete(server);
      onClosed();
    });
    const connection = { endpoint, relay };
    connections.add(connection);
    relay.start();
    // After the first bytes are on their way.
    if (!connections.has(connection)) return;
    sendAtOnce(server);
    keepalive.add(server);
  }

  return {
    get listening() {
      return listener.isOpen;
    },
    get active() {
      return waiting.size + connections.size;
    },
    // Draining endpoints end their connections themselves.
    awaits: () => false,
    poolChanged() {},
    end(isGone) {
      const found = [...connections].filter(({ endpoint }) => isGone(endpoint));
      for (const { relay } of found) relay.reset();
      return found.length;
    },
    closeListener: async () => listener.finish(),
    close() {
      listener.close();
      for (const { relay } of connections) relay.reset();
      for (const client of waiting) leave(client);
      keepalive.close();
    },
  };
}
