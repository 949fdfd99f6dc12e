import { sourceAddress } from '../kernel/datagram-server.ts';
import { familyOf, type IPFamily } from '../lib/address.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { AnswerHold } from './answer-hold.ts';
import type { Forwarder } from './forwarder.ts';
import type { DnsMetrics } from './metrics.ts';
import { createResolver } from './resolver.ts';
import { createResponder, type Responder } from './responder.ts';
import { createSourceShare, DEFAULT_SHARE, type ShareLimits, type SourceShare } from './source-share.ts';
import { DEFAULT_TCP_LIMITS, listenTcp, type TcpLimits, type TcpListener } from './tcp-listener.ts';
import { listenUdp, type UdpListener } from './udp-listener.ts';
import type { Zone } from './zone.ts';

/**
 * A listener: an address of this network namespace, or bound sockets (a UDP socket and a listening TCP socket), whose
 * ownership passes to the server. With a wildcard address, replies would have the source address of the route, which
 * resolvers reject: use one listener per address.
 */
export type DnsListener =
  | { readonly address: string; readonly port: number }
  | {
      readonly udpFd: number;
      readonly tcpFd: number;
      readonly family: IPFamily;
      /** Whether another process has the sockets too, so that what is not read when the server closes is answered later. */
      readonly isKept?: () => boolean;
    };

export interface DnsServerOptions {
  readonly listeners: readonly DnsListener[];
  readonly zone: Zone;
  /** Null: names outside the zone are refused. The caller closes it. */
  readonly forwarder: Forwarder | null;
  readonly logger: Logger;
  readonly metrics?: DnsMetrics;
  readonly tcp?: Partial<TcpLimits>;
  readonly share?: Partial<ShareLimits>;
  /** Returns the name of the pod with an address, for a log line; null: unknown. */
  readonly podName?: (address: string) => string | null;
  /** Absent: no answer waits for anything. */
  readonly hold?: AnswerHold | undefined;
  /** Called with the client of each dropped query. */
  readonly onDropped?: (address: string) => void;
  /** Closes the server. */
  readonly signal?: AbortSignal;
}

export interface DnsServer {
  /** In the order of `listeners`; with the actual port if 0 was requested. */
  readonly addresses: readonly { readonly address: string; readonly port: number }[];
  /** Answers the queries that have arrived, for at most two seconds, and closes. */
  close(): Promise<void>;
}

/** Longer than most upstreams take; a resolver repeats its query after five. */
const FINISH_MS = 2000;

interface Opened {
  readonly udp: UdpListener;
  readonly tcp: TcpListener;
  readonly address: string;
  readonly port: number;
  readonly isKept: () => boolean;
}

/** Starts a server on UDP and TCP. Throws FairleadError with the address if one cannot be bound. */
export async function startDnsServer(options: DnsServerOptions): Promise<DnsServer> {
  const { zone, forwarder, logger, signal } = options;
  const limits = { ...DEFAULT_TCP_LIMITS, ...options.tcp };
  const respond = createResponder({
    resolve: createResolver(zone, forwarder),
    offersRecursion: () => forwarder?.offersRecursion === true,
    domain: zone.domain,
    metrics: options.metrics ?? null,
    logger,
    hold: options.hold,
  });
  const share = createShare(options);
  const opened: Opened[] = [];
  let closing: Promise<void> | null = null;
  const close = () => {
    closing ??= Promise.all(opened.map(closeOne)).then(() => {});
    return closing;
  };
  for (const listener of options.listeners) {
    try {
      opened.push(await open(listener, respond, share, logger, limits));
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

/** The clients that are named in the log; more may be counted. */
const MAX_LOGGED = 100;

function createShare({ share, logger, metrics, podName, onDropped }: DnsServerOptions): SourceShare {
  const limits = { ...DEFAULT_SHARE, ...share };
  const logged = new Set<string | number>();
  return createSourceShare(
    limits,
    () => performance.now(),
    (source) => {
      metrics?.dropped();
      onDropped?.(sourceAddress(source));
      if (logged.has(source) || logged.size >= MAX_LOGGED) return;
      logged.add(source);
      const address = sourceAddress(source);
      const pod = podName?.(address) ?? null;
      logger.warn(
        { address, ...(pod === null ? {} : { pod }) },
        `${pod === null ? `the client ${address}` : `pod ${pod} (${address})`} sends more DNS queries than its share of ${limits.perSecond} a second and ${limits.maxWaiting} that wait for an upstream: the others are dropped`,
      );
    },
  );
}

const notKept = () => false;

async function closeOne({ udp, tcp, isKept }: Opened): Promise<void> {
  const overdue = setTimeout(() => {
    udp.close();
    void tcp.close();
  }, FINISH_MS);
  await Promise.all([udp.finish(isKept()), tcp.finish()]);
  clearTimeout(overdue);
}

async function open(
  listener: DnsListener,
  respond: Responder,
  share: SourceShare,
  logger: Logger,
  limits: TcpLimits,
): Promise<Opened> {
  if ('udpFd' in listener) {
    const { family } = listener;
    const udp = listenUdp({ fd: listener.udpFd, family }, respond, logger, share);
    const tcp = await listenTcp({ fd: listener.tcpFd, family }, respond, logger, limits, share);
    return { udp, tcp, address: tcp.address, port: tcp.port, isKept: listener.isKept ?? notKept };
  }
  const { address, port } = listener;
  const family = familyOf(address);
  if (!family) throw new TypeError(`"${address}" is not an address`);
  for (let attempt = 1; ; attempt++) {
    const udp = listenUdp({ address, port, family }, respond, logger, share);
    const chosen = udp.port;
    try {
      const tcp = await listenTcp({ address, port: chosen, family }, respond, logger, limits, share);
      return { udp, tcp, address, port: chosen, isKept: notKept };
    } catch (error) {
      udp.close();
      // The port assigned for UDP may be in use for TCP.
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
    ? 'another process uses the port: stop it, or choose another address'
    : hasCode(cause, 'EADDRNOTAVAIL')
      ? 'add the address to an interface of this node first'
      : undefined;
  return new FairleadError(`cannot serve DNS on ${where}: ${messageOf(cause)}`, {
    op: 'start DNS server',
    code: hasCode(cause, 'EADDRINUSE') ? 'EADDRINUSE' : 'bind-failed',
    object: where,
    cause,
    ...(hint === undefined ? {} : { hint }),
  });
}
