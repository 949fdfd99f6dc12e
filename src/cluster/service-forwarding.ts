import { createServer, Socket } from 'node:net';
import { type NetnsRef, openTcpIn } from '../kernel/netns.ts';
import type { Client } from '../kube/client.ts';
import { type Informer, startInformer } from '../kube/informer.ts';
import { type EndpointSlice, RESOURCES, type Service } from '../kube/types.ts';
import { SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { hostPort } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { relay, reset } from '../lib/relay.ts';
import type { LoopbackListeners } from './loopback-listeners.ts';
import { routeToService, type ServicePort, type ServiceRoute, servicePortText } from './service-port.ts';

const DIAL_MS = 5000;

/** A node through whose network connections reach Services. */
export interface ForwardingNode {
  readonly name: string;
  /** Null: the network of this process. */
  readonly netns: NetnsRef | null;
}

export interface ForwardingOptions {
  readonly listeners: LoopbackListeners;
  readonly service: ServicePort;
  /** Returns the present route. Throws FairleadError if there is none. */
  readonly route: () => ServiceRoute;
  /** Returns the nodes to try, in this order. */
  readonly nodes: () => readonly ForwardingNode[];
  readonly clock: Clock;
  /** Called with one line for each connection that fails, and for a listener that fails. */
  readonly onFailure: (text: string) => void;
}

export interface Forwarding {
  /** Closes the listeners and resets the connections. */
  close(): void;
}

/**
 * Accepts connections on loopback and carries each through the network of a node to the Service's cluster IP, where the
 * node's proxy rules apply. If a node refuses, tries the next. A connection that fails is reset, and affects no other.
 */
export function forwardToService(options: ForwardingOptions): Forwarding {
  const { listeners, service, clock, onFailure } = options;
  const clients = new Set<Socket>();
  const title = servicePortText(service);
  const accept = (client: Socket) => {
    clients.add(client);
    client.on('close', () => clients.delete(client));
    // 'close' follows.
    client.on('error', () => {});
    connect(options, client, clock).then(
      (server) => {
        if (client.destroyed) reset(server);
        else relay(client, server, () => {});
      },
      (error: unknown) => {
        reset(client);
        onFailure(`${title}: connection closed: ${messageOf(error)}`);
      },
    );
  };
  const servers = listeners.descriptors.map((fd) =>
    createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, accept)
      .on('error', (error) => onFailure(`port ${listeners.port}: the listener failed: ${error.message}`))
      .listen({ fd }),
  );
  return {
    close() {
      for (const server of servers) server.close();
      // The other side of each connection is reset as well.
      for (const client of clients) reset(client);
    },
  };
}

/** Connects to the Service. Throws FairleadError with the cause, which is derived from the Service's endpoints. */
async function connect(
  { route, nodes, service }: ForwardingOptions,
  client: Socket,
  clock: Clock,
): Promise<Socket> {
  const { addresses, port, nodes: able, readyEndpoints } = route();
  const places = nodes().filter(({ name }) => able === null || able.includes(name));
  const causes: string[] = [];
  for (const ip of addresses) {
    for (const { name, netns } of places) {
      try {
        return await dial(netns, { ip, port }, client, clock);
      } catch (error) {
        causes.push(`${hostPort({ ip, port })} from ${name}: ${messageOf(error)}`);
        if (!hasCode(error, 'ECONNREFUSED', 'ENOENT', 'ENETUNREACH')) break;
      }
    }
  }
  const { namespace, name } = service;
  const [first = 'no node is able to deliver', ...others] = causes;
  throw new FairleadError(
    readyEndpoints === 0
      ? `Service ${namespace}/${name} has no ready endpoints`
      : others.length === 0
        ? first
        : `${first}; ${others.length} more attempts failed`,
    { op: 'connect to Service', code: 'ECONNREFUSED' },
  );
}

function dial(
  netns: NetnsRef | null,
  { ip, port }: { readonly ip: string; readonly port: number },
  client: Socket,
  clock: Clock,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const fd = openTcpIn(netns, ip.includes(':') ? 'ipv6' : 'ipv4');
    const socket = new Socket({ fd, allowHalfOpen: true, readable: true, writable: true });
    const end = () => {
      cancel();
      client.off('close', leave);
    };
    const fail = (error: Error) => {
      end();
      socket.destroy();
      reject(error);
    };
    const leave = () => fail(problem('the client closed the connection', 'ECONNRESET'));
    const cancel = clock.after(DIAL_MS, () =>
      fail(problem(`no answer within ${DIAL_MS / 1000} s`, 'ETIMEDOUT')),
    );
    client.once('close', leave);
    socket.setNoDelay(true);
    socket.once('error', (error) =>
      fail(hasCode(error, 'ECONNREFUSED') ? problem('refused', 'ECONNREFUSED') : error),
    );
    socket.connect({ port, host: ip, family: ip.includes(':') ? 6 : 4 }, () => {
      end();
      resolve(socket);
    });
  });
}

const problem = (message: string, code: 'ECONNRESET' | 'ETIMEDOUT' | 'ECONNREFUSED') =>
  new FairleadError(message, { op: 'connect to Service', code });

/** A Service with its EndpointSlices, as the API server last reported them. */
export interface FollowedService {
  readonly synced: Promise<unknown>;
  /** Returns the present route. Throws FairleadError if there is none. */
  route(): ServiceRoute;
}

/** Follows a Service and its EndpointSlices until the signal aborts. */
export function followService(
  service: ServicePort,
  options: {
    readonly client: Client;
    readonly clock: Clock;
    readonly random: () => number;
    readonly logger: Logger;
    readonly signal: AbortSignal;
  },
): FollowedService {
  const { namespace, name } = service;
  const services: Informer<Service> = startInformer({
    ...options,
    resource: RESOURCES.services,
    namespace,
    fieldSelector: `metadata.name=${name}`,
  });
  const slices: Informer<EndpointSlice> = startInformer({
    ...options,
    resource: RESOURCES.endpointSlices,
    namespace,
    labelSelector: `${SERVICE_NAME_LABEL}=${name}`,
  });
  return {
    synced: Promise.all([services.synced, slices.synced]),
    route: () => routeToService(service, services.list()[0], slices.list()),
  };
}
