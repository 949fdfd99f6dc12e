import type { Outcome } from '../../failover/outcome.ts';
import type { IPFamily, SocketAddress } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import type { Logger } from '../../lib/log.ts';
import type { Endpoint } from '../../service/model.ts';
import type { FlowEventKind } from '../flow-event.ts';
import type { Balancer } from './balancer.ts';

/** What a listener's proxy is made of. */
export interface ProxyOptions {
  /** The socket that listens; the proxy closes it. */
  readonly fd: number;
  readonly family: IPFamily;
  readonly balancer: Balancer;
  /** Opens a socket for an endpoint of the family. Throws when the process has no descriptor left. */
  readonly open: () => number;
  readonly clock: Clock;
  /** Names the Service. */
  readonly logger: Logger;
  /** Told of each client's connection, or conversation of datagrams; `micros` since it began. */
  readonly onFlow?: (kind: FlowEventKind, endpoint: Endpoint, client: SocketAddress, micros: number) => void;
  /** Whether network policies let this client connect to the endpoint; another one is taken where they do not. */
  readonly admits?: (client: string, endpoint: Endpoint) => boolean;
  /** An endpoint failed a client, or answers again after that. */
  readonly onOutcome?: (kind: Outcome['kind'], endpoint: Endpoint, client: string) => void;
}

/** Takes what comes to one listener to the endpoints of its pool. */
export interface PoolProxy {
  /** False when the listener has failed or was closed. */
  readonly listening: boolean;
  /** Connections, or clients of datagrams, at this moment. */
  readonly active: number;
  /** The pool has changed: leaves endpoints that connections may not stay with. */
  poolChanged(isServing: (endpoint: string) => boolean): void;
  /** Ends what goes to this endpoint ("address:port"). Returns how many. */
  end(endpoint: string): number;
  /** Takes nothing more. Connections that are established go on; clients of datagrams have none. */
  closeListener(): void;
  /** Ends everything. */
  close(): void;
}
