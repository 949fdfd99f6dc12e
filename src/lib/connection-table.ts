/** The limits of connections, most of all of those without credentials. Durations in milliseconds. */
export interface ConnectionLimits {
  /** Connections without credentials of one source: an IPv4 address, or an IPv6 network of 64 bits. */
  readonly maxUnknownPerSource: number;
  /** Connections without credentials of all sources. */
  readonly maxUnknown: number;
  /** Streams that a connection without credentials may reset. */
  readonly maxResets: number;
  /** Without a request, a connection without credentials is closed after this: also one whose headers never end. */
  readonly unknownIdleMs: number;
  /** The same, with credentials (upstream: 90 s). */
  readonly idleMs: number;
}

export const DEFAULT_CONNECTION_LIMITS: ConnectionLimits = {
  maxUnknownPerSource: 200,
  maxUnknown: 2000,
  maxResets: 50,
  unknownIdleMs: 30_000,
  idleMs: 90_000,
};

/** One connection of a client. */
export interface Connection {
  /** True once its certificate, or a request with credentials, was accepted. */
  isKnown: boolean;
  /** Its requests that are not answered. */
  requests: number;
  /** When the last request ended, or the connection was opened. */
  idleSince: number;
  resets: number;
  readonly source: string;
  /** Closes the connection. */
  readonly end: () => void;
}

/**
 * The open connections of a server. A client without credentials costs memory and a handshake only: such connections are
 * limited for each source and in total, and the oldest makes room for a new one, so that a client that presents its
 * credentials at once is served during a flood.
 */
export interface ConnectionTable {
  open(address: string, now: number, end: () => void): Connection;
  close(connection: Connection): void;
  /** Records that the connection's client has shown valid credentials. */
  know(connection: Connection): void;
  /** Records a stream that the client reset; ends the connection if there are too many. Returns true in that case. */
  reset(connection: Connection): boolean;
  /** Ends connections that are idle for too long. */
  sweep(now: number): void;
}

export function createConnectionTable(limits: ConnectionLimits): ConnectionTable {
  const all = new Set<Connection>();
  /** In the order of their opening. */
  const unknown = new Set<Connection>();
  const bySource = new Map<string, Set<Connection>>();
  const forget = (connection: Connection) => {
    if (!unknown.delete(connection)) return;
    const own = bySource.get(connection.source);
    own?.delete(connection);
    if (own?.size === 0) bySource.delete(connection.source);
  };
  const evictOldest = (connections: ReadonlySet<Connection>) => {
    const [oldest] = connections;
    if (!oldest) return;
    forget(oldest);
    oldest.end();
  };
  return {
    open(address, now, end) {
      const source = clientNetwork(address);
      const own = bySource.get(source) ?? new Set();
      if (own.size >= limits.maxUnknownPerSource) evictOldest(own);
      if (unknown.size >= limits.maxUnknown) evictOldest(unknown);
      const connection = { isKnown: false, requests: 0, idleSince: now, resets: 0, source, end };
      all.add(connection);
      unknown.add(connection);
      own.add(connection);
      bySource.set(source, own);
      return connection;
    },
    close(connection) {
      all.delete(connection);
      forget(connection);
    },
    know(connection) {
      connection.isKnown = true;
      forget(connection);
    },
    reset(connection) {
      connection.resets++;
      if (connection.isKnown || connection.resets <= limits.maxResets) return false;
      connection.end();
      return true;
    },
    sweep(now) {
      for (const connection of all) {
        const most = connection.isKnown ? limits.idleMs : limits.unknownIdleMs;
        if (connection.requests === 0 && now - connection.idleSince > most) connection.end();
      }
    },
  };
}

/** Returns the network that one client may own: an IPv4 address, or the first 64 bits of an IPv6 address. */
export function clientNetwork(address: string): string {
  if (!address.includes(':')) return address;
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined) return mapped;
  const [head = '', tail] = (address.split('%')[0] ?? '').split('::');
  const groups = head === '' ? [] : head.split(':');
  const last = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = tail === undefined ? 0 : 8 - groups.length - last.length;
  return [...groups, ...Array<string>(Math.max(0, zeros)).fill('0'), ...last].slice(0, 4).join(':');
}
