import { createSocket, type Socket } from 'node:dgram';
import { messageOf } from '../../lib/errors.ts';
import { literalLookup } from '../../lib/literal-lookup.ts';
import type { Endpoint } from '../../service/model.ts';
import type { FlowEventKind } from '../flow-event.ts';
import { type EndpointTest, microsSince, type PoolProxy, type ProxyOptions } from './pool-proxy.ts';
import { createUdpSessions, type Session } from './udp-sessions.ts';

const RECEIVE_BUFFER = 1 << 20;
/** The time in which an answer is expected. */
const ANSWER_MS = 2000;

/**
 * Proxies a UDP listener: each client address and port gets a separate socket to one endpoint. Replies are
 * sent from the listener's address, which connection tracking translates back to the Service's.
 */
export function createUdpProxy(options: ProxyOptions): PoolProxy {
  const { fd, family, balancer, clock, logger, admits, onFlow } = options;
  const type = family === 'ipv4' ? 'udp4' : 'udp6';
  const sessions = createUdpSessions({ ...options, ended });
  let listening = true;
  const listener = createSocket({ type, lookup: literalLookup, recvBufferSize: RECEIVE_BUFFER });
  listener.on('error', (error) => {
    listening = false;
    logger.error({ error: error.message }, 'listener failed; its Service is unreachable');
  });
  listener.on('message', (bytes, client) => {
    // Cannot be answered, and Node throws when it sends to port 0.
    if (client.port === 0) return;
    const key = keyOf(client.address, client.port);
    const session = sessions.get(key) ?? sessions.begin(key, client);
    if (!session) return;
    session.lastUsed = clock.now();
    if (session.answered) session.conversation = true;
    sessions.remember(session, bytes);
    if (!session.socket) tryNext(key, session);
    else if (session.connected) {
      send(session.socket, bytes);
      sessions.forgetAbove(session);
    }
  });
  listener.bind({ fd, exclusive: true });

  function tell(kind: FlowEventKind, { endpoint, client, begun, local }: Session): void {
    if (endpoint === null) return;
    const { address: ip, port } = client;
    onFlow?.({ kind, endpoint, client: { ip, port }, proxy: local, micros: microsSince(begun) });
  }

  /** Connects to the next endpoint and sends it the unanswered datagrams; without one, the client is dropped. */
  function tryNext(key: string, session: Session): void {
    const { endpoint, denied } = nextEndpoint(session, admits);
    if (!endpoint) {
      if (denied) tell('denied', { ...session, endpoint: denied });
      logger.debug({ client: session.client.address }, 'no endpoint accepts the datagram: it is lost');
      sessions.end(key);
      return;
    }
    const socket = openSocket(options, type);
    if (!socket) {
      sessions.end(key);
      return;
    }
    session.endpoint = endpoint;
    session.socket = socket;
    socket.on('error', () => refused(key, session, socket, endpoint));
    socket.on('message', (bytes) => {
      if (!session.answered) balancer.answered(endpoint);
      session.answered = true;
      sessions.forget(session);
      session.lastUsed = clock.now();
      // From a closed listener, the reply would reach the client with an unexpected source address.
      if (listening) listener.send(bytes, session.client.port, session.client.address, ignore);
    });
    socket.connect(endpoint.port, endpoint.ip, (error?: Error) => {
      if (session.socket !== socket) return;
      if (error) {
        refused(key, session, socket, endpoint);
        return;
      }
      session.connected = true;
      const { address: ip, port } = socket.address();
      session.local = { ip, port };
      tell('chosen', session);
      balancer.bind(session.client.address, endpoint);
      for (const bytes of session.unanswered) send(socket, bytes);
      sessions.forgetAbove(session);
    });
  }

  /** Usually ICMP port unreachable. */
  function refused(key: string, session: Session, socket: Socket, endpoint: Endpoint): void {
    if (session.socket !== socket) return;
    balancer.failed(endpoint);
    tell('reset', session);
    leave(session);
    tryNext(key, session);
  }

  function ended(session: Session): void {
    tell(session.answered ? 'closed' : 'given-up', session);
    leave(session);
  }

  const endWhere = (matches: EndpointTest): number =>
    sessions.endWhere(({ endpoint }) => endpoint !== null && matches(endpoint));

  function close(): void {
    if (listening) listener.close();
    listening = false;
    sessions.endWhere(() => true);
  }

  return {
    get listening() {
      return listening;
    },
    get active() {
      return sessions.size;
    },
    awaits(client) {
      const session = sessions.get(keyOf(client.ip, client.port));
      if (!session) return false;
      return session.unanswered.length > 0 && clock.now() - session.lastUsed < ANSWER_MS;
    },
    // UDP has no connections to drain: the client's next datagram goes to a serving endpoint.
    poolChanged: (isServing) => {
      endWhere((endpoint) => !isServing(endpoint));
    },
    end: endWhere,
    closeListener: async () => close(),
    close,
  };
}

/** Returns the next endpoint that network policies allow, and the first endpoint that they denied. */
function nextEndpoint(
  { candidates, client }: Session,
  admits: ProxyOptions['admits'],
): { readonly endpoint: Endpoint | null; readonly denied: Endpoint | null } {
  let denied: Endpoint | null = null;
  for (;;) {
    const { done, value: endpoint } = candidates.next();
    if (done || !endpoint) return { endpoint: null, denied };
    if (!admits || admits(client.address, endpoint)) return { endpoint, denied };
    denied ??= endpoint;
  }
}

/** Opens a socket for an endpoint; null if the process has no free descriptors. */
function openSocket({ open, logger }: ProxyOptions, type: 'udp4' | 'udp6'): Socket | null {
  try {
    return createSocket({ type, lookup: literalLookup }).bind({ fd: open(), exclusive: true });
  } catch (error) {
    logger.error({ error: messageOf(error) }, 'no socket for another client; raise the limit of open files');
    return null;
  }
}

function send(socket: Socket, bytes: Buffer): void {
  socket.send(bytes, (error) => {
    if (error) socket.emit('error', error);
  });
}

/** Closes the socket to an endpoint. */
function leave(session: Session): void {
  session.socket?.close();
  session.socket = null;
  session.connected = false;
  session.local = null;
  session.endpoint = null;
  session.answered = false;
}

const keyOf = (address: string, port: number) => `${address} ${port}`;

/** A datagram that cannot be sent is lost, as on the network. */
const ignore = () => {};
