import type { Outcome } from '../../failover/outcome.ts';
import { createEpoll } from '../../kernel/epoll.ts';
import { bindUdpIn, listenTcpIn, localPort, type NetnsRef } from '../../kernel/netns.ts';
import { FAMILY_NAMES, familyOf, hostPort, type SocketAddress } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import type { ErrorCode } from '../../lib/error-codes.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { Endpoint, Frontend, NodeView, Pool } from '../../service/model.ts';
import type { OnFlowEvent } from '../flow-event.ts';
import { commentOf } from '../rules/frontend-keys.ts';
import { createBalancer, type PoolSettings } from './balancer.ts';
import { createClientShares, descriptorLimits } from './client-shares.ts';
import { endpointsAt, type PoolProxy, type ProxyFlowEvent } from './pool-proxy.ts';
import type { ProgrammedListener } from './render.ts';
import { openTcp, openUdp } from './sockets.ts';
import { createTcpProxy } from './tcp-proxy.ts';
import { createUdpProxy } from './udp-proxy.ts';

/** Decides for each client of the proxy: servers see only the node's address. */
export interface ProxyPolicies {
  /** Returns true if network policies allow a client's address to connect to an endpoint. */
  admits(client: string, endpoint: SocketAddress, protocol: 'TCP' | 'UDP'): boolean;
  /** Counts a client that was denied every endpoint, of which this is one. */
  denied(client: string, endpoint: SocketAddress, protocol: 'TCP' | 'UDP'): void;
}

export interface ListenerOptions {
  readonly netns: NetnsRef | undefined;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  readonly policies: ProxyPolicies | undefined;
  /** Reports outcomes of connections to endpoints: failures, and the first answer after one. */
  readonly onOutcome: ((outcome: Outcome) => void) | undefined;
  readonly onFlow: OnFlowEvent;
  /** Whether `onFlow` passes events to anyone. */
  readonly isWatched: () => boolean;
}

/** The node's properties that its listeners depend on. */
export type ListenerNode = Pick<NodeView, 'ipv4' | 'ipv6' | 'masqueradeBit'>;

/** An open listener: one per pool, which several frontends may share. */
export interface PoolListener extends ProgrammedListener {
  readonly proxy: PoolProxy;
  readonly endpoints: readonly Endpoint[];
  /** Applies the endpoints and options of a pool. Throws for an endpoint of another family. */
  configure(pool: Pool, frontend: Frontend): void;
  /** Returns an endpoint if network policies deny the client all of them; else null. */
  deniedTo(client: string): Endpoint | null;
  /** Reports that a client was denied all endpoints. */
  denied(client: SocketAddress, endpoint: Endpoint): void;
}

/**
 * Opens the listener of a frontend's pool on the node's address, and on its `earlier` port if possible. Throws FairleadError
 * if it cannot be opened.
 */
export type OpenListener = (
  pool: Pool,
  frontend: Frontend,
  node: ListenerNode,
  earlier: SocketAddress | undefined,
) => PoolListener;

/** Returns a function that opens listeners, whose proxies share one epoll descriptor and the process's limits. */
export function listenerOpener(options: ListenerOptions): OpenListener {
  const { netns, clock, random, logger, policies } = options;
  const epoll = createEpoll();
  const shares = createClientShares(descriptorLimits(), (client) =>
    logger.warn(
      { client },
      `the client ${client} has its share of this process's open files, and gets no more connections to Services; raise the limit of open files`,
    ),
  );
  return (pool, frontend, node, earlier) => {
    const { family } = frontend;
    const { protocol, address } = listeningAt(frontend, node);
    let settings = settingsOf(pool, frontend);
    const fd = bind(netns, protocol, address, earlier);
    const at = { ip: address, port: localPort(fd) };
    const balancer = createBalancer({ clock, random });
    balancer.configure(settings);
    const openSocket = protocol === 'TCP' ? openTcp : openUdp;
    const mark = (1 << node.masqueradeBit) >>> 0;
    const proxyOptions = {
      ...{ fd, family, balancer, epoll, shares, clock, isWatched: options.isWatched },
      open: () => openSocket(family, { netns, mark, isPolicyChecked: policies !== undefined }),
      logger: logger.child({ service: commentOf(frontend), listener: hostPort(at) }),
      ...reports(options, protocol, { ip: frontend.address ?? address, port: frontend.port }),
    };
    return {
      ...{ pool: pool.id, family, protocol, at },
      proxy: protocol === 'TCP' ? createTcpProxy(proxyOptions) : createUdpProxy(proxyOptions),
      get endpoints() {
        return settings.endpoints;
      },
      configure(pool, frontend) {
        const isMoved = settings.endpoints !== pool.endpoints;
        const next = isMoved ? settingsOf(pool, frontend) : { ...settings, ...requestsOf(frontend) };
        if (
          !isMoved &&
          settings.affinitySeconds === next.affinitySeconds &&
          settings.failover === next.failover
        )
          return;
        settings = next;
        balancer.configure(next);
        if (!isMoved) return;
        this.proxy.poolChanged(endpointsAt([...next.endpoints, ...(pool.spared ?? [])]));
      },
      deniedTo(client) {
        const [first = null] = settings.endpoints;
        return settings.endpoints.some((one) => proxyOptions.admits(client, one)) ? null : first;
      },
      denied: (client, endpoint) =>
        proxyOptions.onFlow({ kind: 'denied', endpoint, client, proxy: null, micros: 0 }),
    };
  };
}

/** Returns the callbacks of a listener's proxy. `service`: the address of any frontend of the pool, to identify the Service. */
function reports(
  { policies, onOutcome, onFlow, isWatched }: ListenerOptions,
  protocol: 'TCP' | 'UDP',
  service: SocketAddress,
) {
  return {
    admits: (client: string, to: Endpoint) => policies?.admits(client, to, protocol) ?? true,
    onFlow({ endpoint: { ip, port }, ...event }: ProxyFlowEvent) {
      if (event.kind === 'denied') policies?.denied(event.client.ip, { ip, port }, protocol);
      if (!isWatched()) return;
      onFlow({ ...event, protocol, service, endpoint: { ip, port }, at: process.hrtime.bigint() });
    },
    onOutcome(kind: Outcome['kind'], { ip, port }: Endpoint, client: string) {
      onOutcome?.({ kind, protocol, destination: service, endpoint: { ip, port }, client });
    },
  };
}

function listeningAt(frontend: Frontend, node: ListenerNode): { protocol: 'TCP' | 'UDP'; address: string } {
  const { family, protocol } = frontend;
  const address = node[family];
  if (protocol === 'SCTP') {
    const why = `${commentOf(frontend)}: the userspace mode does not support SCTP`;
    const hint = 'use the mode nftables, iptables or ipvs on this node';
    throw problem(why, 'unsupported', frontend.key, hint);
  }
  if (address === null) {
    const why = `${commentOf(frontend)}: the node has no ${FAMILY_NAMES[family]} address to listen on`;
    throw problem(why, 'no-node-address', frontend.key, 'set an InternalIP of this family on the Node');
  }
  return { protocol, address };
}

/** Binds the port of an earlier run, to serve clients whose datagrams the kernel still sends there. */
function bind(
  netns: NetnsRef | undefined,
  protocol: 'TCP' | 'UDP',
  address: string,
  earlier: SocketAddress | undefined,
): number {
  const listen = protocol === 'TCP' ? listenTcpIn : bindUdpIn;
  try {
    if (earlier?.ip === address) return listen(netns ?? null, address, earlier.port);
  } catch (error) {
    if (!hasCode(error, 'EADDRINUSE')) throw error;
  }
  try {
    return listen(netns ?? null, address, 0);
  } catch (error) {
    if (!hasCode(error, 'EADDRNOTAVAIL')) throw error;
    const hint = "correct the Node's InternalIP, or the agent's bindAddress";
    const why = `cannot listen on ${address}: no device of this node has it`;
    throw problem(why, 'EADDRNOTAVAIL', address, hint, error);
  }
}

const problem = (
  why: string,
  code: ErrorCode,
  object: string,
  hint: string,
  cause?: unknown,
): FairleadError => new FairleadError(why, { op: 'open listener', code, object, hint, cause });

/** Throws for an endpoint that is not an address of the family: sockets would pass it to the resolver. */
function settingsOf(pool: Pool, frontend: Frontend): PoolSettings {
  const { family } = frontend;
  const bad = pool.endpoints.find(({ ip }) => familyOf(ip) !== family);
  if (bad) {
    const why = `${JSON.stringify(bad.ip)} is not an ${FAMILY_NAMES[family]} address`;
    throw problem(why, 'EINVAL', pool.id, 'correct the EndpointSlice');
  }
  return { endpoints: pool.endpoints, ...requestsOf(frontend) };
}

const requestsOf = ({ affinitySeconds, options }: Frontend) => ({
  affinitySeconds,
  failover: options.failover,
});
