import { READY } from '../../kernel/epoll.ts';
import { socketAddress } from '../../kernel/netns.ts';
import { listenToStreams } from '../../kernel/stream-listener.ts';
import { createStreamRelay, type StreamRelay } from '../../kernel/stream-relay.ts';
import {
  type AcceptedStream,
  awaitConnection,
  connectStream,
  localAddress,
  resetStream,
  sendAtOnce,
} from '../../kernel/stream-socket.ts';
import { hostPort, type SocketAddress } from '../../lib/address.ts';
import { afterRunning } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Endpoint } from '../../service/model.ts';
import type { FlowEventKind } from '../flow-event.ts';
import { createLateKeepalive } from './late-keepalive.ts';
import { microsSince, type PoolProxy, type ProxyOptions } from './pool-proxy.ts';

/** The timeout before the next endpoint is tried: for the first, the second, … attempt of a connection. */
const DIAL_TIMEOUTS_MS = [250, 500, 1000, 2000] as const;
/** Of a connection: those of the client and of the endpoint. */
const DESCRIPTORS = 2;
/** The maximum number of unanswered attempts of a connection, even if more endpoints are left. */
const MAX_WAITS = 16;
/** Returns how long a client waits before it is reset if none of its endpoints answers. */
export function longestDialMs(endpoints: number): number {
  const count = endpoints === 0 ? 0 : Math.ceil(DIAL_TIMEOUTS_MS.length / endpoints) * endpoints;
  let sum = 0;
  for (let waits = 0; waits < Math.min(count, MAX_WAITS); waits++) sum += dialTimeoutMs(waits);
  return sum;
}

const dialTimeoutMs = (waits: number): number => DIAL_TIMEOUTS_MS[Math.min(waits, 3)] ?? 0;

type Outcome = 'connected' | 'refused' | 'no-answer' | 'gone';
/** How an attempt ended; its socket is closed unless it is connected. */
interface Dialled {
  readonly outcome: Outcome;
  readonly server: number;
  /** The local end of the connection to the endpoint; null: there is none, or flows are not watched. */
  readonly local: SocketAddress | null;
}
/** An attempt that was not answered at once. */
interface Pending extends Omit<Dialled, 'outcome'> {
  readonly to: Uint8Array;
  readonly timeoutMs: number;
}
type Found = Dialled & { readonly endpoint: Endpoint };

/** A client without an endpoint yet. */
interface Client extends AcceptedStream {
  /** True if it has reset its connection, or the proxy was closed. */
  isGone: boolean;
  /** Ends the attempt that it waits for. */
  leave: (() => void) | null;
}

/** Reports an event of a client's connection; `proxy`: the local end of the connection to the endpoint. */
type Report = (kind: FlowEventKind, endpoint: Endpoint, proxy: SocketAddress | null) => void;

const addresses = new WeakMap<Endpoint, Uint8Array>();

function addressOf(endpoint: Endpoint): Uint8Array {
  let address = addresses.get(endpoint);
  if (!address) {
    address = socketAddress(endpoint.ip, endpoint.port);
    addresses.set(endpoint, address);
  }
  return address;
}

/**
 * Proxies a TCP listener: connects each client to an endpoint, trying the next until one answers, and then copies bytes in
 * both directions. The thread of the agent does all of it, where the choice of endpoints, policies and flows are.
 */
export function createTcpProxy(options: ProxyOptions): PoolProxy {
  const { fd, balancer, open, epoll, clock, logger, admits, onOutcome, onFlow, shares } = options;
  const { isWatched = () => true } = options;
  const connections = new Set<{ readonly endpoint: Endpoint; readonly relay: StreamRelay }>();
  const waiting = new Set<Client>();
  const keepalive = createLateKeepalive(clock);
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
    const dialling = dial(client, report);
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
        const end = () => local ?? endOf(server);
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

  /** Tries endpoints until one answers, each at least once, and again while some may only be slow. Yields what it awaits. */
  function* dial(client: Client, report: Report): Generator<Promise<Dialled>, Found | null, Dialled> {
    const source = client.ip;
    const tried: string[] = [];
    let waits = 0;
    let denied: Endpoint | null = null;
    do {
      const waitsBefore = waits;
      for (const endpoint of balancer.candidates(source)) {
        if (admits && !admits(source, endpoint)) {
          denied ??= endpoint;
          continue;
        }
        const dialled = dialOne(endpoint, dialTimeoutMs(waits), client);
        const result = dialled instanceof Promise ? yield dialled : dialled;
        const { outcome, local } = result;
        if (outcome === 'gone') return null;
        if (outcome === 'connected') {
          if (balancer.answered(endpoint)) onOutcome?.('success', endpoint, source);
          balancer.bind(source, endpoint);
          return { ...result, endpoint };
        }
        balancer.failed(endpoint);
        const kind = outcome === 'refused' ? 'reset' : 'timeout';
        onOutcome?.(kind, endpoint, source);
        report(kind, endpoint, local);
        tried.push(`${hostPort(endpoint)} ${outcome}`);
        if (outcome === 'no-answer' && ++waits === MAX_WAITS) break;
      }
      if (waits === waitsBefore) break;
    } while (waits < DIAL_TIMEOUTS_MS.length);
    if (denied && tried.length === 0) report('denied', denied, null);
    logger.debug({ client: source, tried, denied }, 'no endpoint accepts it: the client is reset');
    return null;
  }

  /** Connects to an endpoint; at once if its kernel answers before the call returns. */
  function dialOne(endpoint: Endpoint, timeoutMs: number, client: Client): Dialled | Promise<Dialled> {
    if (client.isGone) return ended('gone', -1, null);
    let server = -1;
    try {
      server = open();
      const to = addressOf(endpoint);
      let attempt = connectStream(server, to);
      // A second call that reports a refusal takes the address from the socket.
      const local = endOf(server);
      if (attempt === 'pending') attempt = connectStream(server, to);
      if (attempt !== 'pending') return ended(attempt, server, local);
      return answerOf(client, { server, to, local, timeoutMs });
    } catch (error) {
      listener.rest(messageOf(error));
      return ended('gone', server, null);
    }
  }

  /** Waits for the answer to an attempt. Throws if the kernel has no memory to watch it. */
  function answerOf(client: Client, { server, to, local, timeoutMs }: Pending): Promise<Dialled> {
    const { promise, resolve } = Promise.withResolvers<Dialled>();
    const finish = (outcome: Outcome) => {
      if (client.leave === null) return;
      client.leave = null;
      cancel();
      resolve(ended(outcome, server, local));
    };
    awaitConnection(epoll, server, to, finish);
    epoll.watch(client.fd, READY.changes, (ready) => {
      if ((ready & READY.error) !== 0) leave(client);
    });
    const cancel = afterRunning(clock, timeoutMs, () => finish('no-answer'));
    client.leave = () => finish('gone');
    return promise;
  }

  const endOf = (server: number): SocketAddress | null => (isWatched() ? localAddress(server) : null);

  function ended(outcome: Outcome, server: number, local: SocketAddress | null): Dialled {
    if (outcome !== 'connected' && server >= 0) epoll.close(server);
    return { outcome, server, local };
  }

  function leave(client: Client): void {
    client.isGone = true;
    client.leave?.();
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
