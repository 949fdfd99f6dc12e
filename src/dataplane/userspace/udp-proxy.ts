import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import { hostPort, type SocketAddress } from '../../lib/address.ts';
import { messageOf } from '../../lib/errors.ts';
import { literalLookup } from '../../lib/literal-lookup.ts';
import type { Endpoint } from '../../service/model.ts';
import type { FlowEventKind } from '../flow-event.ts';
import { microsSince, type PoolProxy, type ProxyOptions } from './pool-proxy.ts';

/**
 * Idle timeouts of a client: short after a single exchange (a resolver uses a new port for each query), and otherwise as
 * in the kernel's connection tracking (nf_conntrack_udp_timeout_stream).
 */
export const UDP_IDLE_MS = { exchange: 10_000, conversation: 120_000 } as const;
/** The maximum number of clients of a listener: each uses a descriptor. Beyond it, the oldest is dropped. */
const MAX_CLIENTS = 16_384;
/** The part of them that one client's address may have: then its own oldest is dropped. */
const MAX_OF_ONE = MAX_CLIENTS / 2;
/** The bytes of datagrams without an answer that are kept for one client's address, to be sent to the next endpoint. */
const MAX_KEPT_BYTES = 4 << 20;
/** The limits of datagrams and bytes, since the last answer, that are sent again to the next endpoint when one refuses. */
const MAX_UNANSWERED = 16;
const MAX_UNANSWERED_BYTES = 1 << 16;
const RECEIVE_BUFFER = 1 << 20;
/** The time in which an answer is expected. */
const ANSWER_MS = 2000;

/** The sessions of an address, the oldest first. */
interface Sender {
  readonly keys: Set<string>;
  keptBytes: number;
}

interface Session {
  readonly client: RemoteInfo;
  /** `performance.now()` */
  readonly begun: number;
  readonly candidates: Iterator<Endpoint, void>;
  endpoint: Endpoint | null;
  socket: Socket | null;
  connected: boolean;
  /** The local end of the socket; null: not connected. */
  local: SocketAddress | null;
  unanswered: Buffer[];
  unansweredBytes: number;
  answered: boolean;
  conversation: boolean;
  lastUsed: number;
  cancel: () => void;
}

/**
 * Proxies a UDP listener: each client address and port gets a separate socket to one endpoint. Replies are
 * sent from the listener's address, which connection tracking translates back to the Service's.
 */
export function createUdpProxy(options: ProxyOptions): PoolProxy {
  const { fd, family, balancer, open, clock, logger, admits, onFlow, shares } = options;
  const type = family === 'ipv4' ? 'udp4' : 'udp6';
  const sessions = new Map<string, Session>();
  const senders = new Map<string, Sender>();
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
    const session = sessions.get(key) ?? begin(key, client);
    if (!session) return;
    session.lastUsed = clock.now();
    if (session.answered) session.conversation = true;
    remember(session, bytes);
    if (!session.socket) tryNext(key, session);
    else if (session.connected) {
      send(session.socket, bytes);
      forgetAbove(session);
    }
  });
  listener.bind({ fd, exclusive: true });

  /** Returns null if the client, or all clients of the process, hold too much elsewhere. */
  function begin(key: string, client: RemoteInfo): Session | null {
    if (sessions.size >= MAX_CLIENTS) {
      const [oldest] = sessions.keys();
      if (oldest !== undefined) end(oldest);
    }
    const own = senders.get(client.address)?.keys;
    if (own && own.size >= MAX_OF_ONE) endFirst(own);
    if (shares && !shares.take(client.address, 1)) {
      if (!own || !endFirst(own) || !shares.take(client.address, 1)) return null;
    }
    const sender = senders.get(client.address) ?? { keys: new Set(), keptBytes: 0 };
    senders.set(client.address, sender);
    sender.keys.add(key);
    const session: Session = {
      client,
      begun: performance.now(),
      candidates: balancer.candidates(client.address),
      endpoint: null,
      socket: null,
      connected: false,
      local: null,
      unanswered: [],
      unansweredBytes: 0,
      answered: false,
      conversation: false,
      lastUsed: clock.now(),
      cancel: () => {},
    };
    sessions.set(key, session);
    expireLater(key, session);
    return session;
  }

  function endFirst(keys: ReadonlySet<string>): boolean {
    const [first] = keys;
    if (first !== undefined) end(first);
    return first !== undefined;
  }

  /** Changes the number of bytes that are kept for a session. */
  function keep(session: Session, change: number): void {
    session.unansweredBytes += change;
    const sender = senders.get(session.client.address);
    if (sender) sender.keptBytes += change;
  }

  function forget(session: Session): void {
    session.unanswered = [];
    keep(session, -session.unansweredBytes);
  }

  /** Forgets what has been sent if too much is kept for the client. */
  function forgetAbove(session: Session): void {
    if ((senders.get(session.client.address)?.keptBytes ?? 0) > MAX_KEPT_BYTES) forget(session);
  }

  function tell(kind: FlowEventKind, { endpoint, client, begun, local }: Session): void {
    if (endpoint === null) return;
    onFlow?.({
      ...{ kind, endpoint, client: { ip: client.address, port: client.port }, proxy: local },
      micros: microsSince(begun),
    });
  }

  /** One timer for many datagrams: if it fires too early, it is restarted for the remaining time. */
  function expireLater(key: string, session: Session): void {
    const idleMs = session.conversation ? UDP_IDLE_MS.conversation : UDP_IDLE_MS.exchange;
    const left = session.lastUsed + idleMs - clock.now();
    if (left <= 0) end(key);
    else session.cancel = clock.after(left, () => expireLater(key, session));
  }

  function remember(session: Session, bytes: Buffer): void {
    session.unanswered.push(bytes);
    keep(session, bytes.length);
    while (
      session.unanswered.length > MAX_UNANSWERED ||
      (session.unanswered.length > 1 && session.unansweredBytes > MAX_UNANSWERED_BYTES)
    ) {
      keep(session, -(session.unanswered.shift()?.length ?? 0));
    }
  }

  /** Connects to the next endpoint and sends it the unanswered datagrams; without one, the client is dropped. */
  function tryNext(key: string, session: Session): void {
    let { done, value: endpoint } = session.candidates.next();
    let denied: Endpoint | null = null;
    while (!done && endpoint && admits && !admits(session.client.address, endpoint)) {
      denied ??= endpoint;
      ({ done, value: endpoint } = session.candidates.next());
    }
    if (done || !endpoint) {
      if (denied) tell('denied', { ...session, endpoint: denied });
      logger.debug({ client: session.client.address }, 'no endpoint accepts the datagram: it is lost');
      end(key);
      return;
    }
    let socket: Socket;
    try {
      socket = createSocket({ type, lookup: literalLookup });
      socket.bind({ fd: open(), exclusive: true });
    } catch (error) {
      logger.error(
        { error: messageOf(error) },
        'no socket for another client; raise the limit of open files',
      );
      end(key);
      return;
    }
    session.endpoint = endpoint;
    session.socket = socket;
    socket.on('error', () => refused(key, session, socket, endpoint));
    socket.on('message', (bytes) => {
      if (!session.answered) balancer.answered(endpoint);
      session.answered = true;
      forget(session);
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
      forgetAbove(session);
    });
  }

  function send(socket: Socket, bytes: Buffer): void {
    socket.send(bytes, (error) => {
      if (error) socket.emit('error', error);
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

  function leave(session: Session): void {
    session.socket?.close();
    session.socket = null;
    session.connected = false;
    session.local = null;
    session.endpoint = null;
    session.answered = false;
  }

  function end(key: string): void {
    const session = sessions.get(key);
    if (!session) return;
    sessions.delete(key);
    forget(session);
    const { address } = session.client;
    const sender = senders.get(address);
    sender?.keys.delete(key);
    if (sender?.keys.size === 0) senders.delete(address);
    shares?.give(address, 1);
    session.cancel();
    tell(session.answered ? 'closed' : 'given-up', session);
    leave(session);
  }

  function endWhere(matches: (endpoint: string) => boolean): number {
    let count = 0;
    for (const [key, { endpoint }] of sessions) {
      if (endpoint === null || !matches(hostPort(endpoint))) continue;
      end(key);
      count++;
    }
    return count;
  }

  function close(): void {
    if (listening) listener.close();
    listening = false;
    for (const key of [...sessions.keys()]) end(key);
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
    end: (endpoint) => endWhere((other) => other === endpoint),
    closeListener: async () => close(),
    close,
  };
}

const keyOf = (address: string, port: number) => `${address} ${port}`;

/** A datagram that cannot be sent is lost, as on the network. */
const ignore = () => {};
