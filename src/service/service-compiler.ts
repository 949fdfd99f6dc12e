import type { Cidr } from '../lib/address.ts';
import { cidrContains, hostCidr, type IPFamily } from '../lib/address.ts';
import { addressFamily } from './address-text.ts';
import type { EndpointKey } from './endpoint-key.ts';
import {
  type Candidate,
  clusterEndpoints,
  localEndpoints,
  mergeEndpoints,
  sparedEndpoints,
  withoutEjected,
} from './endpoint-selection.ts';
import { sameFrontend, samePool } from './equality.ts';
import type { Endpoint, Frontend, FrontendKey, HealthCheck, NodeView, Pool } from './model.ts';
import type { ParsedService, ServicePort } from './parsed-service.ts';
import { type EndpointSets, externalRoutes, internalRoutes } from './routes.ts';
import type { ParsedSlice } from './slice-reader.ts';

/** The inputs that all Services share. */
export interface CompileContext {
  readonly node: NodeView;
  readonly ejected: ReadonlySet<EndpointKey>;
}

/** The entries that one Service requests in the map; other Services may request the same keys. */
export interface CompiledService {
  readonly createdAt: number;
  /** Keys are unique. */
  readonly frontends: readonly Frontend[];
  readonly clusterIPs: readonly string[];
  readonly healthCheck: HealthCheck | null;
}

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];

/** Returns the key of a frontend in the map; `address` null: node port. */
export function frontendKey(
  family: IPFamily,
  address: string | null,
  protocol: Frontend['protocol'],
  port: number,
): FrontendKey {
  return `${family}/${address ?? 'nodeport'}/${protocol}/${port}`;
}

/**
 * Compiles all frontends of a Service. `slices` are those of the Service, ordered by name. Frontends, pools
 * and endpoints equal to those of `previous` are reused.
 */
export function compileService(
  service: ParsedService,
  slices: readonly ParsedSlice[],
  context: CompileContext,
  previous: CompiledService | null,
): CompiledService {
  const frontends = new Map<FrontendKey, Frontend>();
  const before = new Map(previous?.frontends.map((frontend) => [frontend.key, frontend]));
  const poolsBefore = new Map(poolsOf(previous).map((pool) => [pool.id, pool]));
  const add = (frontend: Frontend) => {
    if (frontends.has(frontend.key)) return;
    const old = before.get(frontend.key);
    frontends.set(frontend.key, old && sameFrontend(old, frontend) ? old : frontend);
  };
  for (const family of FAMILIES) {
    const clusterIP = service.clusterIP[family];
    if (clusterIP === null) continue;
    for (const port of service.ports) {
      const sets = endpointSets(service, port, slices, family, context, poolsBefore);
      addFrontends(service, port, family, clusterIP, sets, context.node, add);
    }
  }
  const own = context.node.ownServiceAddresses;
  const clusterIPs = FAMILIES.flatMap((family) => service.clusterIP[family] ?? []);
  return {
    createdAt: service.createdAt,
    frontends: [...frontends.values()],
    clusterIPs: own.length === 0 ? clusterIPs : clusterIPs.filter((address) => !own.includes(address)),
    healthCheck: healthCheck(service, slices, context.node.name),
  };
}

/** Returns the pools that a Service's frontends forward to, without duplicates. */
export function poolsOf(compiled: CompiledService | null): Pool[] {
  const pools = new Set<Pool>();
  for (const { routes } of compiled?.frontends ?? []) {
    for (const route of [routes.pod, routes.node, routes.external]) {
      if (route.action === 'forward') pools.add(route.pool);
    }
  }
  return [...pools];
}

/**
 * Returns the addresses from which a connection to the Service may return through this node to its client,
 * with the client's own address as source: endpoints on this node or without a node, and endpoints of other
 * nodes if pods keep their address on the way through a frontend that other nodes can reach.
 */
export function hairpinAddressesOf(compiled: CompiledService | null): Set<string> {
  const addresses = new Set<string>();
  for (const pool of poolsOf(compiled)) {
    for (const endpoint of pool.endpoints) {
      if (endpoint.local || endpoint.nodeName === null) addresses.add(endpoint.ip);
    }
  }
  const exposed = new Set<Pool>();
  for (const { kind, routes } of compiled?.frontends ?? []) {
    if (kind === 'ClusterIP') continue;
    for (const route of [routes.pod, routes.external]) {
      if (route.action === 'forward' && !route.masquerade) exposed.add(route.pool);
    }
  }
  for (const { endpoints } of exposed) for (const { ip } of endpoints) addresses.add(ip);
  return addresses;
}

function endpointSets(
  service: ParsedService,
  port: ServicePort,
  slices: readonly ParsedSlice[],
  family: IPFamily,
  context: CompileContext,
  poolsBefore: ReadonlyMap<string, Pool>,
): EndpointSets {
  const { namespace, name, portName, protocol } = port.owner;
  const id = `${namespace}/${name}:${portName}/${protocol}/${family}`;
  const clusterBefore = poolsBefore.get(`${id}/cluster`);
  const localBefore = poolsBefore.get(`${id}/local`);
  const known =
    clusterBefore && localBefore
      ? [...new Set([...clusterBefore.endpoints, ...localBefore.endpoints])]
      : ((clusterBefore ?? localBefore)?.endpoints ?? []);
  const wanted = { name: portName, protocol };
  const candidates: readonly Candidate[] = mergeEndpoints(slices, wanted, family, context.node.name, known);
  const pool = (scope: 'cluster' | 'local', before: Pool | undefined, endpoints: readonly Endpoint[]) => {
    if (endpoints.length === 0) return null;
    const left = service.options.failover
      ? withoutEjected(endpoints, protocol, context.ejected)
      : { endpoints };
    const spared = protocol === 'UDP' ? sparedEndpoints(candidates, endpoints) : [];
    const fresh: Pool = { id: `${id}/${scope}`, ...left, ...(spared.length > 0 ? { spared } : {}) };
    return before && samePool(before, fresh) ? before : fresh;
  };
  const needsLocal = service.externalLocal || service.internalLocal;
  return {
    cluster: pool('cluster', clusterBefore, clusterEndpoints(candidates, context.node)),
    local: needsLocal ? pool('local', localBefore, localEndpoints(candidates)) : null,
  };
}

function addFrontends(
  service: ParsedService,
  port: ServicePort,
  family: IPFamily,
  clusterIP: string,
  sets: EndpointSets,
  node: NodeView,
  add: (frontend: Frontend) => void,
): void {
  const { owner } = port;
  const internal = internalRoutes(sets, service.internalLocal, node, family);
  const external = externalRoutes(sets, service.externalLocal, node, family);
  const frontend = (
    kind: Frontend['kind'],
    address: string | null,
    number: number,
    allowedSources: readonly Cidr[] | null,
  ) => {
    // The proxy ignores an address that the node answers itself.
    if (address !== null && node.ownServiceAddresses.includes(address)) return;
    add({
      key: frontendKey(family, address, owner.protocol, number),
      kind,
      family,
      address,
      port: number,
      protocol: owner.protocol,
      owner,
      routes: kind === 'ClusterIP' ? internal : external,
      affinitySeconds: service.affinitySeconds,
      allowedSources,
      options: service.options,
    });
  };
  frontend('ClusterIP', clusterIP, port.port, null);
  // Before the external IPs: an address that is both keeps its source ranges.
  for (const vip of service.loadBalancerIPs) {
    if (addressFamily(vip) !== family) continue;
    frontend('LoadBalancer', vip, port.port, allowedSources(service.sourceRanges[family], vip, node[family]));
  }
  for (const address of service.externalIPs) {
    if (addressFamily(address) === family) frontend('ExternalIP', address, port.port, null);
  }
  if (port.nodePort !== 0) frontend('NodePort', null, port.nodePort, null);
}

/**
 * Returns the sources allowed for a load balancer address. If a node is allowed, the address itself is too:
 * where the address is bound on the node, the node's own connections have it as their source.
 */
function allowedSources(
  ranges: readonly Cidr[] | null,
  vip: string,
  nodeAddress: string | null,
): readonly Cidr[] | null {
  if (ranges === null || nodeAddress === null) return ranges;
  if (!ranges.some((range) => cidrContains(range, nodeAddress))) return ranges;
  const self = hostCidr(vip);
  return self && !ranges.some((range) => cidrContains(range, vip)) ? [...ranges, self] : ranges;
}

/**
 * Load balancers count endpoints that are ready here; terminating endpoints still serve, but attract no new
 * clients.
 */
function healthCheck(
  service: ParsedService,
  slices: readonly ParsedSlice[],
  nodeName: string,
): HealthCheck | null {
  if (service.healthCheckNodePort === 0) return null;
  const ready = { ipv4: new Set<string>(), ipv6: new Set<string>() };
  for (const { family, ports, members } of slices) {
    if (ports.length === 0 || service.clusterIP[family] === null) continue;
    for (const member of members) {
      if (member.ready && member.nodeName === nodeName) ready[family].add(member.ip);
    }
  }
  return {
    namespace: service.namespace,
    name: service.name,
    port: service.healthCheckNodePort,
    localEndpoints: Math.max(ready.ipv4.size, ready.ipv6.size),
  };
}
