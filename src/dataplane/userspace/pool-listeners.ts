import type { Outcome } from '../../failover/outcome.ts';
import { createEpoll } from '../../kernel/epoll.ts';
import { bindUdpIn, listenTcpIn, localPort, type NetnsRef } from '../../kernel/netns.ts';
import { FAMILY_NAMES, familyOf, hostPort, type IPFamily, type SocketAddress } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import type { ErrorCode } from '../../lib/error-codes.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { Endpoint, Frontend, NodeView, Pool } from '../../service/model.ts';
import type { OnFlowEvent } from '../flow-event.ts';
import { commentOf } from '../rules/frontend-keys.ts';
import { type Balancer, createBalancer, type PoolSettings } from './balancer.ts';
import { createClientShares, descriptorLimits } from './client-shares.ts';
import type { PoolProxy, ProxyFlowEvent } from './pool-proxy.ts';
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

export interface PoolListenersOptions {
  readonly netns: NetnsRef | undefined;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  readonly policies: ProxyPolicies | undefined;
  /** Reports outcomes of connections to endpoints: failures, and the first answer after one. */
  readonly onOutcome: ((outcome: Outcome) => void) | undefined;
  readonly onFlow: OnFlowEvent;
  /** Whether there is anybody to whom `onFlow` passes events. */
  readonly isWatched: () => boolean;
}

/** An open listener: one per pool, which several frontends may share. */
export interface PoolListener extends ProgrammedListener {
  readonly proxy: PoolProxy;
  readonly endpoints: readonly Endpoint[];
  /** Returns an endpoint if network policies deny the client all of them; else null. */
  deniedTo(client: string): Endpoint | null;
  /** Reports that a client was denied all endpoints. */
  denied(client: SocketAddress, endpoint: Endpoint): void;
}

interface Entry extends PoolListener {
  readonly balancer: Balancer;
  settings: PoolSettings;
  uses: number;
}

/** The listeners of a node, reference-counted. A change acquires its listeners, releases the previous ones, and sweeps. */
export interface PoolListeners extends Iterable<PoolListener> {
  /** Prepares for a full sync: listeners will be acquired again, at this node's addresses, and on their previous ports if
possible. */
  restart(node: NodeView, earlier: ReadonlyMap<string, SocketAddress>): void;
  /** Acquires the listener of a frontend's pool. Throws FairleadError if it cannot be opened. */
  take(pool: Pool, frontend: Frontend): PoolListener;
  release(pool: string): void;
  releaseAll(): void;
  /** Returns the listeners opened, and those unused, since the last sweep; the caller closes the latter. */
  sweep(): { readonly opened: readonly PoolListener[]; readonly unused: readonly PoolListener[] };
  get(pool: string): PoolListener | undefined;
  at(protocol: 'TCP' | 'UDP', address: SocketAddress): PoolListener | undefined;
}

export function createPoolListeners({
  netns,
  clock,
  random,
  logger,
  policies,
  onOutcome,
  onFlow,
  isWatched,
}: PoolListenersOptions): PoolListeners {
  const epoll = createEpoll();
  const shares = createClientShares(descriptorLimits(), (client) =>
    logger.warn(
      { client },
      `the client ${client} has its share of this process's open files, and gets no more connections to Services; raise the limit of open files`,
    ),
  );
  const entries = new Map<string, Entry>();
  const places = new Map<string, Entry>();
  /** Listeners that may have no users left. */
  const idle = new Set<Entry>();
  let opened: PoolListener[] = [];
  let unused: PoolListener[] = [];
  let addresses: Readonly<Record<IPFamily, string | null>> = { ipv4: null, ipv6: null };
  let earlierPorts: ReadonlyMap<string, SocketAddress> = new Map();
  let mark = 0;

  function open(pool: Pool, frontend: Frontend): Entry {
    const { family, protocol } = frontend;
    const address = addresses[family];
    if (protocol === 'SCTP') {
      const why = `${commentOf(frontend)}: the userspace mode does not support SCTP`;
      const hint = 'use the mode nftables, iptables or ipvs on this node';
      throw problem(why, 'unsupported', frontend.key, hint);
    }
    if (address === null) {
      const why = `${commentOf(frontend)}: the node has no ${FAMILY_NAMES[family]} address to listen on`;
      throw problem(why, 'no-node-address', frontend.key, 'set an InternalIP of this family on the Node');
    }
    const openSocket = protocol === 'TCP' ? openTcp : openUdp;
    const settings = settingsOf(pool, frontend);
    const fd = bind(protocol, address, earlierPorts.get(pool.id));
    const at = { ip: address, port: localPort(fd) };
    const balancer = createBalancer({ clock, random });
    balancer.configure(settings);
    // Any frontend of the pool identifies the Service.
    const destination = { ip: frontend.address ?? address, port: frontend.port };
    const options = {
      fd,
      family,
      balancer,
      epoll,
      shares,
      open: () => openSocket(family, { netns, mark, isPolicyChecked: policies !== undefined }),
      clock,
      admits: (client: string, to: Endpoint) => policies?.admits(client, to, protocol) ?? true,
      logger: logger.child({ service: commentOf(frontend), listener: hostPort(at) }),
      isWatched,
      onFlow({ endpoint: { ip, port }, ...event }: ProxyFlowEvent) {
        if (event.kind === 'denied') policies?.denied(event.client.ip, { ip, port }, protocol);
        if (!isWatched()) return;
        const at = process.hrtime.bigint();
        onFlow({ ...event, protocol, service: destination, endpoint: { ip, port }, at });
      },
      onOutcome(kind: Outcome['kind'], { ip, port }: Endpoint, client: string) {
        onOutcome?.({ kind, protocol, destination, endpoint: { ip, port }, client });
      },
    };
    return {
      pool: pool.id,
      family,
      protocol,
      at,
      proxy: protocol === 'TCP' ? createTcpProxy(options) : createUdpProxy(options),
      balancer,
      settings,
      get endpoints() {
        return this.settings.endpoints;
      },
      uses: 0,
      deniedTo(client) {
        const [first = null] = this.endpoints;
        return this.endpoints.some((one) => options.admits(client, one)) ? null : first;
      },
      denied: (client, endpoint) =>
        options.onFlow({ kind: 'denied', endpoint, client, proxy: null, micros: 0 }),
    };
  }

  /** On the port of an earlier run, to serve clients whose datagrams the kernel still sends there. */
  function bind(protocol: 'TCP' | 'UDP', address: string, earlier: SocketAddress | undefined): number {
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

  function configure(entry: Entry, pool: Pool, frontend: Frontend): void {
    const { settings } = entry;
    const moved = settings.endpoints !== pool.endpoints;
    const next = moved ? settingsOf(pool, frontend) : { ...settings, ...wishesOf(frontend) };
    if (!moved && settings.affinitySeconds === next.affinitySeconds && settings.failover === next.failover)
      return;
    entry.settings = next;
    entry.balancer.configure(next);
    if (!moved) return;
    const serving = new Set([...next.endpoints, ...(pool.spared ?? [])].map(hostPort));
    entry.proxy.poolChanged((endpoint) => serving.has(endpoint));
  }

  function discard(entry: Entry): void {
    entries.delete(entry.pool);
    places.delete(placeOf(entry.protocol, entry.at));
    opened = opened.filter((other) => other !== entry);
    unused.push(entry);
  }

  return {
    restart(node, earlier) {
      addresses = node;
      mark = (1 << node.masqueradeBit) >>> 0;
      earlierPorts = earlier;
      this.releaseAll();
      for (const entry of [...entries.values()]) {
        if (entry.at.ip !== addresses[entry.family]) discard(entry);
      }
    },

    take(pool, frontend) {
      let entry = entries.get(pool.id);
      if (entry && !entry.proxy.listening) {
        discard(entry);
        entry = undefined;
      }
      if (entry) configure(entry, pool, frontend);
      else {
        entry = open(pool, frontend);
        entries.set(pool.id, entry);
        places.set(placeOf(entry.protocol, entry.at), entry);
        opened.push(entry);
      }
      entry.uses++;
      return entry;
    },

    release(pool) {
      const entry = entries.get(pool);
      if (entry) entry.uses--;
      if (entry?.uses === 0) idle.add(entry);
    },

    releaseAll() {
      for (const entry of entries.values()) {
        entry.uses = 0;
        idle.add(entry);
      }
    },

    sweep() {
      for (const entry of idle) {
        if (entry.uses === 0 && entries.get(entry.pool) === entry) discard(entry);
      }
      idle.clear();
      const result = { opened, unused };
      opened = [];
      unused = [];
      return result;
    },

    get: (pool) => entries.get(pool),
    at: (protocol, address) => places.get(placeOf(protocol, address)),
    [Symbol.iterator]: () => entries.values(),
  };
}

/** Listeners of different protocols may have the same address. */
export const placeOf = (protocol: 'TCP' | 'UDP', at: SocketAddress): string => `${protocol} ${hostPort(at)}`;

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
  return { endpoints: pool.endpoints, ...wishesOf(frontend) };
}

const wishesOf = ({ affinitySeconds, options }: Frontend) => ({
  affinitySeconds,
  failover: options.failover,
});
