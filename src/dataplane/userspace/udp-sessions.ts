import type { RemoteInfo, Socket } from 'node:dgram';
import type { SocketAddress } from '../../lib/address.ts';
import type { Endpoint } from '../../service/model.ts';
import type { ProxyOptions } from './pool-proxy.ts';

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

/** The sessions of an address, the oldest first. */
interface Sender {
  readonly keys: Set<string>;
  keptBytes: number;
}

/** The datagrams of one client's port. */
export interface Session {
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

/** The sessions of a listener. */
export interface UdpSessions {
  readonly size: number;
  get(key: string): Session | undefined;
  /** Returns null if the client, or all clients of the process, hold too much elsewhere. */
  begin(key: string, client: RemoteInfo): Session | null;
  /** Keeps a datagram until it is answered. */
  remember(session: Session, bytes: Buffer): void;
  /** Forgets what has been sent. */
  forget(session: Session): void;
  /** Forgets what has been sent if too much is kept for the client. */
  forgetAbove(session: Session): void;
  end(key: string): void;
  /** Ends the sessions for which `matches` returns true. Returns their number. */
  endWhere(matches: (session: Session) => boolean): number;
}

export interface UdpSessionsOptions extends Pick<ProxyOptions, 'balancer' | 'clock' | 'shares'> {
  /** Called with each session that has ended. */
  readonly ended: (session: Session) => void;
}

export function createUdpSessions({ balancer, clock, shares, ended }: UdpSessionsOptions): UdpSessions {
  const sessions = new Map<string, Session>();
  const senders = new Map<string, Sender>();

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

  function forgetAbove(session: Session): void {
    if ((senders.get(session.client.address)?.keptBytes ?? 0) > MAX_KEPT_BYTES) forget(session);
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
    ended(session);
  }

  return {
    get size() {
      return sessions.size;
    },
    get: (key) => sessions.get(key),
    begin,
    remember,
    forget,
    forgetAbove,
    end,
    endWhere(matches) {
      const found = [...sessions].filter(([, session]) => matches(session));
      for (const [key] of found) end(key);
      return found.length;
    },
  };
}
