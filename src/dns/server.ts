import { familyOf, type IPFamily } from '../lib/address.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { Forwarder } from './forwarder.ts';
import type { DnsMetrics } from './metrics.ts';
import { createResolver } from './resolver.ts';
import { createResponder, type Responder } from './responder.ts';
import { DEFAULT_TCP_LIMITS, listenTcp, type TcpLimits, type TcpListener } from './tcp-listener.ts';
import { listenUdp, type UdpListener } from './udp-listener.ts';
import type { Zone } from './zone.ts';

/**
 * Where to answer: an address that this network namespace owns, or sockets already bound (a UDP socket and a
 * listening TCP socket), which then belong to the server. A wildcard address would answer from whatever source
 * address the route back prefers, which resolvers refuse: give each address its own listener.
 */
export type DnsListener =
  | { readonly address: string; readonly port: number }
  | { readonly udpFd: number; readonly tcpFd: number; readonly family: IPFamily };

export interface DnsServerOptions {
  readonly listeners: readonly DnsListener[];
  readonly zone: Zone;
  /** Null: names outside the zone are refused. It stays the caller's to close. */
  readonly forwarder: Forwarder | null;
  readonly logger: Logger;
  readonly metrics?: DnsMetrics;
  readonly tcp?: Partial<TcpLimits>;
  /** Closes the server. */
  readonly signal?: AbortSignal;
}

export interface DnsServer {
  /** In the order of `listeners`; the port is the real one where 0 was asked for. */
  readonly addresses: readonly { readonly address: string; readonly port: number }[];
  close(): Promise<void>;
}

interface Opened {
  readonly udp: UdpListener;
  readonly tcp: TcpListener;
  readonly address: string;
  readonly port: number;
}

/** Starts answering over UDP and TCP. Throws FairleadError naming the address when one cannot be bound. */
export async function startDnsServer(options: DnsServerOptions): Promise<DnsServer> {
  const { zone, forwarder, logger, signal } = options;
  const limits = { ...DEFAULT_TCP_LIMITS, ...options.tcp };
  const respond = createResponder({
    resolve: createResolver(zone, forwarder),
    offersRecursion: () => forwarder?.offersRecursion === true,
    domain: zone.domain,
    metrics: options.metrics ?? null,
    logger,
  });
  const opened: Opened[] = [];
  const close = async () => {
    await Promise.all(
      opened.splice(0).map(({ udp, tcp }) => {
        udp.close();
        return tcp.close();
      }),
    );
  };
  for (const listener of options.listeners) {
    try {
      opened.push(await open(listener, respond, logger, limits));
    } catch (error) {
      await close();
      throw bindError(listener, error);
    }
  }
  const addresses = opened.map(({ address, port }) => ({ address, port }));
  if (signal?.aborted) await close();
  else signal?.addEventListener('abort', () => void close(), { once: true });
  return { addresses, close };
}

async function open(
  listener: DnsListener,
  respond: Responder,
  logger: Logger,
  limits: TcpLimits,
): Promise<Opened> {
  if ('udpFd' in listener) {
    const { family } = listener;
    const udp = listenUdp({ fd: listener.udpFd, family }, respond, logger);
    const tcp = await listenTcp({ fd: listener.tcpFd, family }, respond, logger, limits);
    return { udp, tcp, address: tcp.address, port: tcp.port };
  }
  const { address, port } = listener;
  const family = familyOf(address);
  if (!family) throw new TypeError(`"${address}" is not an address`);
  for (let attempt = 1; ; attempt++) {
    const udp = listenUdp({ address, port, family }, respond, logger);
    const chosen = udp.port;
    try {
      const tcp = await listenTcp({ address, port: chosen, family }, respond, logger, limits);
      return { udp, tcp, address, port: chosen };
    } catch (error) {
      udp.close();
      // The port that UDP was given may be taken for TCP.
      if (port !== 0 || attempt >= 10 || !hasCode(error, 'EADDRINUSE')) throw error;
    }
  }
}

function bindError(listener: DnsListener, cause: unknown): FairleadError {
  const where =
    'address' in listener
      ? `${listener.address} port ${listener.port}`
      : `descriptors ${listener.udpFd} and ${listener.tcpFd}`;
  const hint = hasCode(cause, 'EADDRINUSE')
    ? 'another process answers there: stop it, or choose another address'
    : hasCode(cause, 'EADDRNOTAVAIL')
      ? 'add the address to an interface of this node first'
      : undefined;
  return new FairleadError(`cannot answer DNS on ${where}: ${messageOf(cause)}`, {
    op: 'start DNS server',
    code: hasCode(cause, 'EADDRINUSE') ? 'EADDRINUSE' : 'bind-failed',
    object: where,
    cause,
    ...(hint === undefined ? {} : { hint }),
  });
}
