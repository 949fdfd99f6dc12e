import { createServer, Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { tcpInfo } from '../../kernel/tcp-info.ts';
import { hostPort, type SocketAddress } from '../../lib/address.ts';
import { afterRunning } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import { relay, reset } from '../../lib/relay.ts';
import type { Endpoint } from '../../service/model.ts';
import type { FlowEventKind } from '../flow-event.ts';
import { microsSince, type PoolProxy, type ProxyOptions } from './pool-proxy.ts';

/** The timeout before the next endpoint is tried: for the first, the second, … attempt of a connection. */
export const DIAL_TIMEOUTS_MS = [250, 500, 1000, 2000] as const;
/** The maximum number of unanswered attempts of a connection, even if more endpoints are left. */
const MAX_WAITS = 16;
const BACKLOG = 4096;

/** Returns how long a client waits before it is reset if none of its endpoints answers. */
export function longestDialMs(endpoints: number): number {
  const count = endpoints === 0 ? 0 : Math.ceil(DIAL_TIMEOUTS_MS.length / endpoints) * endpoints;
  return Array.from({ length: Math.min(count, MAX_WAITS) }, (_, waits) => dialTimeoutMs(waits)).reduce(
    (sum, ms) => sum + ms,
    0,
  );
}

const dialTimeoutMs = (waits: number): number => DIAL_TIMEOUTS_MS[Math.min(waits, 3)] ?? 0;

type Dialled = Socket | 'refused' | 'no-answer' | 'gone';
/** Reports an event of a client's connection; `proxy`: the local end of the connection to the endpoint. */
type Tell = (kind: FlowEventKind, endpoint: Endpoint, proxy: SocketAddress | null) => void;

/**
 * Proxies a TCP listener: connects each client to an endpoint, trying the next until one answers, and then copies bytes in
 * both directions, with half-close, back-pressure and propagation of resets.
 */
export function createTcpProxy(options: ProxyOptions): PoolProxy {
  const { fd, family, balancer, open, clock, logger, admits, onOutcome, onFlow } = options;
  /** Both sides of each connection, by endpoint. */
  const connections = new Map<string, Set<Pair>>();
  const waiting = new Set<Socket>();
  let closed = false;

  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (client) => {
    // The client reset the connection; 'close' handles it.
    client.on('error', () => {});
    const source = client.remoteAddress;
    if (source === undefined) {
      client.destroy();
      return;
    }
    waiting.add(client);
    void connect(source, client).finally(() => waiting.delete(client));
  });
  server.on('error', (error) =>
    logger.error({ error: error.message }, 'listener failed; its Service is unreachable'),
  );
  server.listen({ fd, backlog: BACKLOG });

  async function connect(source: string, client: Socket): Promise<void> {
    const begun = performance.now();
    const from = { ip: source, port: client.remotePort ?? 0 };
    const tell: Tell = (kind, endpoint, proxy) =>
      onFlow?.({
        ...{ kind, endpoint, client: from, proxy, micros: microsSince(begun) },
      });
    const found = await dial(source, client, tell);
    if (!found) {
      reset(client);
      return;
    }
    const { socket, endpoint, local } = found;
    if (client.destroyed) {
      tell('given-up', endpoint, local);
      reset(socket);
      return;
    }
    tell('established', endpoint, local);
    join(client, socket, endpoint, () => tell('closed', endpoint, local));
  }

  /** Tries endpoints until one answers: each at least once, and again while some may only be slow. */
  async function dial(
    source: string,
    client: Socket,
    tell: Tell,
  ): Promise<{ socket: Socket; endpoint: Endpoint; local: SocketAddress | null } | null> {
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
        const { result: socket, local } = await dialOne(endpoint, dialTimeoutMs(waits), client);
        if (socket === 'gone') return null;
        if (typeof socket !== 'string') {
          if (balancer.answered(endpoint)) onOutcome?.('success', endpoint, source);
          balancer.bind(source, endpoint);
          return { socket, endpoint, local };
        }
        balancer.failed(endpoint);
        const kind = socket === 'refused' ? 'reset' : 'timeout';
        onOutcome?.(kind, endpoint, source);
        tell(kind, endpoint, local);
        tried.push(`${hostPort(endpoint)} ${socket}`);
        if (socket === 'no-answer' && ++waits === MAX_WAITS) break;
      }
      if (waits === waitsBefore) break;
    } while (waits < DIAL_TIMEOUTS_MS.length);
    if (denied && tried.length === 0) tell('denied', denied, null);
    logger.debug({ client: source, tried, denied }, 'no endpoint accepts it: the client is reset');
    return null;
  }

  function dialOne(
    endpoint: Endpoint,
    timeoutMs: number,
    client: Socket,
  ): Promise<{ result: Dialled; local: SocketAddress | null }> {
    if (closed || client.destroyed) return Promise.resolve({ result: 'gone', local: null });
    return new Promise((resolve) => {
      let socket: Socket;
      try {
        socket = new Socket({ fd: open(), allowHalfOpen: true, readable: true, writable: true });
      } catch (error) {
        logger.error(
          { error: messageOf(error) },
          'no socket for another connection; raise the limit of open files',
        );
        resolve({ result: 'gone', local: null });
        return;
      }
      let local: SocketAddress | null = null;
      const finish = (result: Dialled) => {
        cancel();
        client.off('close', leave);
        if (result !== socket) socket.destroy();
        resolve({ result, local });
      };
      const leave = () => finish('gone');
      const cancel = afterRunning(clock, timeoutMs, () => finish('no-answer'));
      client.once('close', leave);
      socket.setNoDelay(true);
      socket.once('error', () => finish('refused'));
      socket.connect({ port: endpoint.port, host: endpoint.ip, family: family === 'ipv4' ? 4 : 6 }, () =>
        finish(socket),
      );
      // connect(2) is called in a tick that was queued before this one, and chooses the local port.
      process.nextTick(() => {
        const { localAddress: ip, localPort: port } = socket;
        if (ip !== undefined && port !== undefined) local = { ip, port };
      });
    });
  }

  function join(client: Socket, server: Socket, endpoint: Endpoint, onClosed: () => void): void {
    const name = hostPort(endpoint);
    const pair: Pair = { client, server };
    const others = connections.get(name) ?? new Set();
    connections.set(name, others.add(pair));
    relay(client, server, () => {
      others.delete(pair);
      onClosed();
      if (others.size === 0 && connections.get(name) === others) connections.delete(name);
    });
  }

  return {
    get listening() {
      return server.listening;
    },
    get active() {
      return waiting.size + [...connections.values()].reduce((sum, pairs) => sum + pairs.size, 0);
    },
    // Draining endpoints end their connections themselves.
    poolChanged() {},
    end(endpoint) {
      const pairs = connections.get(endpoint);
      if (!pairs) return 0;
      const count = pairs.size;
      for (const pair of [...pairs]) resetBoth(pair);
      return count;
    },
    async closeListener() {
      // The event loop accepts one connection of a listener in each pass, and closing the listener resets the others.
      for (let i = 0; i < BACKLOG && server.listening && tcpInfo(fd).unaccepted > 0; i++)
        await setImmediate();
      server.close();
    },
    close() {
      closed = true;
      server.close();
      for (const pairs of connections.values()) for (const pair of pairs) resetBoth(pair);
      for (const client of waiting) reset(client);
    },
  };
}

interface Pair {
  readonly client: Socket;
  readonly server: Socket;
}

function resetBoth({ client, server }: Pair): void {
  reset(client);
  reset(server);
}
