import type { Outcome } from '../../failover/outcome.ts';
import type { Epoll } from '../../kernel/epoll.ts';
import { hostPort, type IPFamily, type SocketAddress } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import type { Logger } from '../../lib/log.ts';
import type { Endpoint } from '../../service/model.ts';
import type { FlowEventKind } from '../flow-event.ts';
import type { Balancer } from './balancer.ts';
import type { ClientShares } from './client-shares.ts';

/** An event of a client's connection or UDP flow, see FlowEvent. */
export interface ProxyFlowEvent {
  readonly kind: FlowEventKind;
  readonly endpoint: Endpoint;
  readonly client: SocketAddress;
  /** The local end of the connection to the endpoint; null: there is none. */
  readonly proxy: SocketAddress | null;
  /** Microseconds since the flow began. */
  readonly micros: number;
}

/** The parameters of a listener's proxy. */
export interface ProxyOptions {
  /** The listening socket; the proxy closes it. */
  readonly fd: number;
  readonly family: IPFamily;
  readonly balancer: Balancer;
  /** Opens a socket for an endpoint of the family. Throws if the process has no free descriptors. */
  readonly open: () => number;
  /** Shared by the proxies of a node. */
  readonly epoll: Epoll;
  /** Bounds what each client holds; shared by the proxies of a node. Absent: unbounded. */
  readonly shares?: ClientShares;
  readonly clock: Clock;
  /** Its context has the name of the Service. */
  readonly logger: Logger;
  /** Returns false if of all events of flows only denials are of use. Default: true. */
  readonly isWatched?: () => boolean;
  /** Called for events of each client's connection or UDP flow. */
  readonly onFlow?: (event: ProxyFlowEvent) => void;
  /** Whether network policies allow this client to connect to the endpoint; otherwise the next one is tried. */
  readonly admits?: (client: string, endpoint: Endpoint) => boolean;
  /** Called when an endpoint fails a client, or answers again afterwards. */
  readonly onOutcome?: (kind: Outcome['kind'], endpoint: Endpoint, client: string) => void;
}

/** Proxies the connections or datagrams of one listener to the endpoints of its pool. */
export interface PoolProxy {
  /** False if the listener has failed or was closed. */
  readonly listening: boolean;
  /** The current number of connections, or of UDP clients. */
  readonly active: number;
  /** Reports whether a UDP client has sent a datagram lately that has no answer yet. */
  awaits(client: SocketAddress): boolean;
  /** Applies a change of the pool: ends UDP flows to endpoints that no longer serve. */
  poolChanged(isServing: EndpointTest): void;
  /** Ends the connections to these endpoints. Returns their number. */
  end(isGone: EndpointTest): number;
  /** Accepts the connections that have arrived, then no others. Established connections continue; UDP flows end. */
  closeListener(): Promise<void>;
  /** Ends all connections. */
  close(): void;
}

export type EndpointTest = (endpoint: Endpoint) => boolean;

/**
 * Returns a test whether an endpoint has one of these addresses. Connections share the objects of their endpoints: an address
 * is formatted once for all connections to it.
 */
export function endpointsAt(addresses: readonly SocketAddress[]): EndpointTest {
  const names = new Set(addresses.map(hostPort));
  const known = new Map<Endpoint, boolean>();
  return (endpoint) => {
    const answer = known.get(endpoint) ?? names.has(hostPort(endpoint));
    known.set(endpoint, answer);
    return answer;
  };
}

/** Returns the microseconds since a time of `performance.now()`. */
export const microsSince = (begun: number): number => Math.round((performance.now() - begun) * 1000);
