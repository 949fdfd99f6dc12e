import type { Mode } from '../dataplane/dataplane.ts';
import {
  addressAt,
  type Cidr,
  cidrsOverlap,
  FAMILY_NAMES,
  type IPFamily,
  parseCidr,
} from '../lib/address.ts';
import type { ErrorCode } from '../lib/error-codes.ts';
import { FairleadError } from '../lib/errors.ts';
import type { LoadBalancerPool } from '../loadbalancer/address-pools.ts';
import type { RegistryMirror } from '../runtime/images/registry-endpoint.ts';
import type { RealControlPlane } from './control-plane-programs.ts';
import { checkPoolFamilies, checkPoolPlaces, parsePools, poolOf } from './load-balancer-pools.ts';
import type { PublishedPort } from './service-port.ts';
import type { ClusterState, NodeState } from './state.ts';

/** The options of `up`. */
export interface ClusterRequest {
  readonly name: string;
  readonly nodes: number;
  readonly mode: Mode;
  readonly ipFamily: ClusterState['ipFamily'];
  readonly overlay: ClusterState['overlay'];
  /** Comma-separated lists, one network per family; null: the defaults. */
  readonly podCidr: string | null;
  readonly serviceCidr: string | null;
  /** As `parsePools` reads them; null: addresses of the wire. */
  readonly lbPool: string | null;
  readonly apiPort: number;
  readonly proxy: ClusterState['proxy'];
  readonly authorization: ClusterState['authorization'];
  /** Whether this machine is connected to the wire, and whether it has routes to cluster IPs. */
  readonly hostAccess: 'none' | 'wire' | 'services';
  /** How many pods a node has room for. */
  readonly maxPods: number;
  /** Whether pods reach external networks through this machine. */
  readonly egress: boolean;
  readonly registryMirrors?: readonly RegistryMirror[];
  readonly publishedPorts: readonly PublishedPort[];
  /** Null: the embedded control plane. */
  readonly realControlPlane: RealControlPlane | null;
}

/** A network that is already in use, and its user: "route via eth0", "cluster demo". */
export interface OccupiedNetwork {
  readonly cidr: Cidr;
  readonly by: string;
}

const DEFAULTS = {
  pods: { ipv4: '10.244.0.0/16', ipv6: 'fd00:10:244::/56' },
  services: { ipv4: '10.96.0.0/16', ipv6: 'fd00:10:96::/112' },
} as const;

/** Special-purpose networks (RFC 6890). */
const SPECIAL: readonly (readonly [string, string])[] = [
  ['0.0.0.0/8', '"this network"'],
  ['127.0.0.0/8', 'loopback'],
  ['169.254.0.0/16', 'link-local'],
  ['224.0.0.0/4', 'multicast'],
  ['240.0.0.0/4', 'reserved'],
  ['::/127', 'loopback'],
  ['fe80::/10', 'link-local'],
  ['ff00::/8', 'multicast'],
];

/** How many pods a node has room for by default. */
export const DEFAULT_MAX_PODS = 250;
/** The maximum of `--max-pods`: a bridge has at most 1,024 ports (BR_MAX_PORTS). */
export const MAX_MAX_PODS = 1000;
/** Addresses of a node's IPv4 pod network that are not for pods: network, broadcast, bridge, and a few of ended pods. */
const OTHER_ADDRESSES = 6;

/** Returns how many pods a node of the cluster has room for. */
export const maxPodsOf = (state: Pick<ClusterState, 'maxPods'>): number => state.maxPods ?? DEFAULT_MAX_PODS;

/** Returns the prefix lengths of a node's part of the pod network: a /64 (IPv6), and a /24 (IPv4) or larger for more pods. */
export function nodePrefixes(maxPods: number): Readonly<Record<IPFamily, number>> {
  return { ipv4: Math.min(24, 32 - Math.ceil(Math.log2(maxPods + OTHER_ADDRESSES))), ipv6: 64 };
}

/** Offsets of hosts in the wire's network; load-balancer addresses come after the nodes. */
const WIRE_HOST = { controlPlane: 1, outside: 2, machine: 3, firstNode: 11, loadBalancer: 200 } as const;

export const MAX_NODES = 100;

/**
 * Plans a new cluster's networks and addresses. Networks given by the user must be well-formed, of the requested
 * families, disjoint and not occupied; the wire's network is chosen accordingly. Throws FairleadError that names the
 * option.
 */
export function planCluster(
  request: ClusterRequest,
  occupied: readonly OccupiedNetwork[],
  version: string,
  now: Date,
): ClusterState {
  const families: readonly IPFamily[] = request.ipFamily === 'dual' ? ['ipv4', 'ipv6'] : [request.ipFamily];
  const pods = networks('--pod-cidr', request.podCidr, DEFAULTS.pods, families, occupied);
  const services = networks('--service-cidr', request.serviceCidr, DEFAULTS.services, families, occupied);
  for (const pod of pods) {
    const problem = roomProblem(pod, request.nodes, request.maxPods);
    if (problem) throw refusal('--pod-cidr', problem);
    const clash = services.find((service) => cidrsOverlap(pod, service));
    if (clash) throw refusal('--pod-cidr', `${pod.text} overlaps the Services' network ${clash.text}`);
  }
  for (const service of services) {
    if ((service.family === 'ipv4' ? 32 : 128) - service.prefix < 5) {
      throw refusal('--service-cidr', `${service.text} is too small: it needs 32 addresses or more`);
    }
  }
  const taken = [...occupied, ...[...pods, ...services].map((cidr) => ({ cidr, by: 'this cluster' }))];
  const wires = families.map((family) => freeWire(family, taken));
  const at = (host: number) => wires.map((wire) => addressAt(wire, host));
  return {
    name: request.name,
    version,
    createdAt: now.toISOString(),
    isCreated: false,
    creator: null,
    mode: request.mode,
    proxy: request.proxy,
    ipFamily: request.ipFamily,
    overlay: request.overlay,
    clusterDomain: 'cluster.local',
    authorization: request.authorization,
    podCidrs: pods.map((cidr) => cidr.text),
    maxPods: request.maxPods,
    serviceCidrs: services.map((cidr) => cidr.text),
    wireCidrs: wires.map((cidr) => cidr.text),
    loadBalancerPools: pools(request.lbPool, wires, families),
    dnsAddresses: services.map((cidr) => addressAt(cidr, 10)),
    controlPlaneAddresses: at(WIRE_HOST.controlPlane),
    outsideAddresses: at(WIRE_HOST.outside),
    machineAddresses: request.hostAccess === 'none' && !request.egress ? [] : at(WIRE_HOST.machine),
    hostAccess: request.hostAccess,
    egress: request.egress,
    registryMirrors: request.registryMirrors ?? [],
    machineRoutes: machineRoutes(request, services, wires, occupied),
    publishedPorts: request.publishedPorts,
    apiPort: request.apiPort,
    nodes: Array.from({ length: request.nodes }, (_, i) => nodeAt(wires, i)),
    controlPlane: null,
    realControlPlane: request.realControlPlane,
  };
}

/**
 * Plans the additional nodes of a cluster up to `count`. Throws if their pod networks do not fit into the cluster's.
 */
export function planNodes(state: ClusterState, count: number): NodeState[] {
  for (const text of state.podCidrs) {
    const pods = parseCidr(text);
    const problem = pods && roomProblem(pods, count, maxPodsOf(state));
    if (problem)
      throw refusal(
        '--nodes',
        problem,
        `fairlead down --name ${state.name}, then fairlead up with a larger --pod-cidr`,
      );
  }
  const wires = state.wireCidrs.flatMap((text) => parseCidr(text) ?? []);
  const known = new Set(state.nodes.map(({ name }) => name));
  return Array.from({ length: count }, (_, i) => nodeAt(wires, i))
    .filter(({ name }) => !known.has(name))
    .slice(0, Math.max(0, count - state.nodes.length));
}

/** Through the first node, which is never removed; every node handles Services' addresses. */
function machineRoutes(
  request: ClusterRequest,
  services: readonly Cidr[],
  wires: readonly Cidr[],
  occupied: readonly OccupiedNetwork[],
): ClusterState['machineRoutes'] {
  if (request.hostAccess !== 'services') return [];
  return services.map((service, i) => {
    const clash = occupied.find(({ cidr }) => cidrsOverlap(cidr, service));
    if (clash) {
      throw inUse('--host-access=services', service, clash, 'choose another --service-cidr');
    }
    return { destination: service.text, via: nodeAt(wires, 0).addresses[i] ?? '' };
  });
}

function nodeAt(wires: readonly Cidr[], index: number): NodeState {
  const addresses = wires.map((wire) => addressAt(wire, WIRE_HOST.firstNode + index));
  return { name: `node-${index + 1}`, addresses, agent: null };
}

function roomProblem(pods: Cidr, nodes: number, maxPods: number): string | null {
  const prefix = nodePrefixes(maxPods)[pods.family];
  const room = prefix - pods.prefix;
  if (room >= 0 && 2 ** room >= nodes) return null;
  return `${pods.text} has no room for ${nodes} nodes with a /${prefix} each`;
}

function networks(
  option: string,
  given: string | null,
  defaults: Readonly<Record<IPFamily, string>>,
  families: readonly IPFamily[],
  occupied: readonly OccupiedNetwork[],
): Cidr[] {
  const texts = given === null ? families.map((family) => defaults[family]) : given.split(',');
  const cidrs = texts.map((text) => {
    const cidr = parseCidr(text);
    if (!cidr) throw refusal(option, `${JSON.stringify(text)} is not a network such as 10.20.0.0/16`);
    if (
      cidr.text !== text.toLowerCase() &&
      given !== null &&
      cidr.text.split('/')[0] !== text.split('/')[0]?.toLowerCase()
    ) {
      throw refusal(option, `${text} has host bits set; did you mean ${cidr.text}?`);
    }
    return cidr;
  });
  return families.map((family) => {
    const ofFamily = cidrs.filter((cidr) => cidr.family === family);
    const [cidr] = ofFamily;
    if (!cidr || ofFamily.length > 1 || cidrs.length !== families.length) {
      throw refusal(
        option,
        `needs one network for each of ${families.join(', ')}, not ${JSON.stringify(texts.join(','))}`,
      );
    }
    const special = SPECIAL.find(([text]) => cidrsOverlap(parseCidr(text) ?? cidr, cidr));
    if (special)
      throw refusal(option, `${cidr.text} overlaps ${special[0]}, which is for ${special[1]} addresses`);
    const clash = given === null ? undefined : occupied.find((other) => cidrsOverlap(other.cidr, cidr));
    if (clash) throw inUse(option, cidr, clash);
    return cidr;
  });
}

function freeWire(family: IPFamily, taken: readonly OccupiedNetwork[]): Cidr {
  for (let i = 0; i < 256; i++) {
    const cidr = parseCidr(family === 'ipv4' ? `172.30.${i}.0/24` : `fd00:172:30:${i.toString(16)}::/64`);
    if (cidr && !taken.some((other) => cidrsOverlap(other.cidr, cidr))) return cidr;
  }
  throw new FairleadError(`every ${FAMILY_NAMES[family]} network for the wire is in use`, {
    op: 'plan cluster',
    code: 'cidr-occupied',
    hint: 'stop clusters that are not needed: fairlead down --all',
  });
}

function pools(
  given: string | null,
  wires: readonly Cidr[],
  families: readonly IPFamily[],
): readonly LoadBalancerPool[] {
  const { loadBalancer } = WIRE_HOST;
  const range = (wire: Cidr) => `${addressAt(wire, loadBalancer)}-${addressAt(wire, loadBalancer + 50)}`;
  const wanted = given === null ? [poolOf(wires.map(range))] : parsePools(given);
  checkPoolFamilies(wanted, families);
  const firstHost = WIRE_HOST.firstNode + MAX_NODES;
  checkPoolPlaces(
    wanted,
    wires.map((cidr) => ({ cidr, firstHost })),
  );
  return wanted;
}

const inUse = (option: string, network: Cidr, { cidr, by }: OccupiedNetwork, hint?: string): FairleadError =>
  refusal(option, `${network.text} overlaps ${cidr.text}, which is in use (${by})`, hint, 'cidr-occupied');

function refusal(
  option: string,
  message: string,
  hint = `use another ${option}, or omit it`,
  code: ErrorCode = 'bad-cidr',
): FairleadError {
  return new FairleadError(`${option}: ${message}`, { op: 'plan cluster', code, hint });
}
