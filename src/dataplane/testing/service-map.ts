import { type Cidr, type IPFamily, parseCidr } from '../../lib/address.ts';
import type {
  Change,
  Endpoint,
  Frontend,
  FrontendKind,
  NodeView,
  Pool,
  PortRef,
  Protocol,
  Route,
  ServiceMap,
} from '../../service/model.ts';

export function cidr(text: string): Cidr {
  const parsed = parseCidr(text);
  if (!parsed) throw new Error(text);
  return parsed;
}

export const NODE: NodeView = {
  name: 'node-1',
  zone: null,
  ipv4: '192.0.2.10',
  ipv6: 'fd00:2::10',
  nodePortAddresses: { ipv4: { all: true }, ipv6: { all: true } },
  localhostNodePorts: true,
  localDetection: { mode: 'ClusterCIDR', ipv4: cidr('10.244.0.0/16'), ipv6: cidr('fd00:244::/32') },
  masqueradeAll: false,
  serviceCidrs: [cidr('10.96.0.0/16'), cidr('fd00:96::/108')],
  ownServiceAddresses: ['10.96.0.10', 'fd00:96::a'],
  masqueradeBit: 14,
  ipvsScheduler: 'rr',
};

export const endpoint = (ip: string, port: number, local = true): Endpoint => ({
  ip,
  port,
  local,
  terminating: false,
  nodeName: null,
  target: null,
});

export interface FrontendOptions {
  readonly kind: FrontendKind;
  readonly service: string;
  readonly address: string | null;
  readonly family?: IPFamily;
  readonly port: number;
  readonly protocol?: Protocol;
  /** Cluster-wide endpoints; those with `local` form the local pool. */
  readonly endpoints: readonly Endpoint[];
  /** UDP: cluster-wide endpoints that keep their flows, but get no new ones. */
  readonly spared?: readonly Endpoint[];
  readonly policy?: 'plain' | 'external-local' | 'internal-local';
  readonly affinitySeconds?: number | null;
  readonly allowedSources?: readonly string[];
}

/** Returns a frontend with the routes of its policy, on a node that recognizes pods. */
export function frontend(options: FrontendOptions): Frontend {
  const { kind, service, address, port, protocol = 'TCP', endpoints, policy = 'plain' } = options;
  const family = options.family ?? (address?.includes(':') ? 'ipv6' : 'ipv4');
  const owner: PortRef = { namespace: 'shop', name: service, portName: 'p', protocol };
  const id = (scope: string) => `shop/${service}:p/${protocol}/${family}/${scope}`;
  const cluster: Pool = {
    id: id('cluster'),
    endpoints,
    ...(options.spared ? { spared: options.spared } : {}),
  };
  const local: Pool = { id: id('local'), endpoints: endpoints.filter((e) => e.local) };
  const route = (pool: Pool, masquerade: boolean): Route => {
    if (pool.endpoints.length > 0) return { action: 'forward', pool, masquerade };
    return cluster.endpoints.length > 0
      ? { action: 'drop', reason: 'no-local-endpoints' }
      : { action: 'reject', reason: 'no-endpoints' };
  };
  const pool = policy === 'internal-local' ? local : cluster;
  const routes =
    kind === 'ClusterIP'
      ? { pod: route(pool, false), node: route(pool, true), external: route(pool, true) }
      : policy === 'external-local'
        ? { pod: route(cluster, false), node: route(cluster, true), external: route(local, false) }
        : { pod: route(cluster, true), node: route(cluster, true), external: route(cluster, true) };
  return {
    key:
      address === null
        ? `${family}/nodeport/${protocol}/${port}`
        : `${family}/${address}/${protocol}/${port}`,
    kind,
    family,
    address,
    port,
    protocol,
    owner,
    routes,
    affinitySeconds: options.affinitySeconds ?? null,
    allowedSources: options.allowedSources?.map(cidr) ?? null,
    options: { ipvsScheduler: null, balance: 'random', failover: true },
  };
}

export function serviceMap(frontends: readonly Frontend[], node: NodeView = NODE): ServiceMap {
  const clusterIPs = new Map<string, string>();
  for (const { kind, address, owner } of frontends) {
    if (kind === 'ClusterIP' && address) clusterIPs.set(address, `${owner.namespace}/${owner.name}`);
  }
  return {
    node,
    frontends: new Map(frontends.map((f) => [f.key, f])),
    healthChecks: new Map(),
    clusterIPs,
    hairpinAddresses: new Set(frontends.flatMap(addressesOf)),
    findings: [],
  };
}

const addressesOf = ({ routes }: Frontend): string[] =>
  [routes.pod, routes.node, routes.external].flatMap((route) =>
    route.action === 'forward' ? route.pool.endpoints.map(({ ip }) => ip) : [],
  );

/** Returns the difference between two maps of the same node. */
export function changeBetween(before: ServiceMap, after: ServiceMap): Change {
  const keys = new Set([...before.frontends.keys(), ...after.frontends.keys()]);
  return {
    node: before.node === after.node ? null : { before: before.node, after: after.node },
    frontends: [...keys].flatMap((key) => {
      const [old, fresh] = [before.frontends.get(key) ?? null, after.frontends.get(key) ?? null];
      return old === fresh ? [] : [{ key, before: old, after: fresh }];
    }),
    clusterIPs: {
      added: [...after.clusterIPs.keys()].filter((ip) => !before.clusterIPs.has(ip)),
      removed: [...before.clusterIPs.keys()].filter((ip) => !after.clusterIPs.has(ip)),
    },
    hairpinAddresses: {
      added: [...after.hairpinAddresses].filter((ip) => !before.hairpinAddresses.has(ip)),
      removed: [...before.hairpinAddresses].filter((ip) => !after.hairpinAddresses.has(ip)),
    },
    healthChecks: [],
  };
}
