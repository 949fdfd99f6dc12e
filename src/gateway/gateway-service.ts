import { createHash } from 'node:crypto';
import type { EndpointSlice, Node, ObjectMeta, Service } from '../kube/types.ts';
import { MANAGED_BY_LABEL, SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { canonicalAddress } from '../lib/address.ts';
import type { GatewayKey, GatewayPlan } from './route-map.ts';

/**
 * A gateway is a Service whose endpoints are the proxies of nodes: a client's packets take the way of those to every other
 * Service, in every mode, and keep the client's address.
 */

/** The namespace of the gateways' Services. Only their controller writes there. */
export const GATEWAY_NAMESPACE = 'fairlead-gateways';
/** Annotation of such a Service: the key of its gateway. */
export const GATEWAY_ANNOTATION = 'fairlead.dev/gateway';
/** Annotation of a Node: the ports from the range below that its proxy answers, as "27000,27001". */
export const READY_PORTS_ANNOTATION = 'fairlead.dev/gateway-ports';
/** The ports of nodes at which proxies listen; each port of each gateway has one, the same on all nodes. */
export const NODE_PORTS = { first: 27_000, last: 27_999 } as const;
const MANAGER = 'gateways.fairlead.dev';
/** Of an EndpointSlice. */
const MAX_ENDPOINTS = 1000;

/** Returns the name of a gateway's Service. */
export function serviceNameOf(key: GatewayKey): string {
  const plain = key.replaceAll('/', '-').replaceAll('.', '-');
  const isUnique = key.startsWith('ingress/') && plain.length <= 63 && !key.slice(8).includes('.');
  if (isUnique) return plain;
  const digest = createHash('sha256').update(key).digest('hex').slice(0, 8);
  return `${plain.slice(0, 54).replace(/-+$/, '')}-${digest}`;
}

/** Returns the key of the gateway that a Service stands for; null: it is another Service. */
export function gatewayOf({ metadata }: Service): GatewayKey | null {
  if (metadata?.namespace !== GATEWAY_NAMESPACE) return null;
  const key = (metadata.annotations as Record<string, unknown> | undefined)?.[GATEWAY_ANNOTATION];
  return typeof key === 'string' && serviceNameOf(key) === metadata.name ? key : null;
}

/** Returns the node's port for a port of a gateway; undefined: none is allocated. */
export function nodePortOf(service: Service, port: number): number | undefined {
  const target = service.spec?.ports?.find((one) => one.port === port)?.targetPort;
  return typeof target === 'number' && isNodePort(target) ? target : undefined;
}

const isNodePort = (port: number): boolean => port >= NODE_PORTS.first && port <= NODE_PORTS.last;

/**
 * Returns the Service that a gateway should have, from the one that it has. `used`: the node's ports of all gateways, to which
 * the new ones are added. Ports for which none is free are left out.
 */
export function plannedService(plan: GatewayPlan, existing: Service | undefined, used: Set<number>): Service {
  const ports = plan.ports
    .filter(({ kind }) => kind === 'http' || kind === 'tls')
    .flatMap(({ kind, port }) => {
      const targetPort = (existing && nodePortOf(existing, port)) ?? freePort(used);
      if (targetPort === null) return [];
      used.add(targetPort);
      return [{ name: `${kind === 'tls' ? 'https' : 'http'}-${port}`, protocol: 'TCP', port, targetPort }];
    });
  const annotations = existing?.metadata?.annotations as Record<string, string> | undefined;
  return {
    ...existing,
    metadata: {
      ...existing?.metadata,
      name: serviceNameOf(plan.key),
      namespace: GATEWAY_NAMESPACE,
      annotations: {
        ...annotations,
        [GATEWAY_ANNOTATION]: plan.key,
        ...(plan.addresses.length > 0
          ? { 'fairlead.dev/load-balancer-addresses': plan.addresses.join(',') }
          : {}),
      },
      labels: {
        ...(existing?.metadata?.labels as object | undefined),
        'app.kubernetes.io/managed-by': 'fairlead',
      },
    },
    spec: {
      ...existing?.spec,
      type: 'LoadBalancer',
      externalTrafficPolicy: 'Local',
      allocateLoadBalancerNodePorts: false,
      ipFamilyPolicy: 'PreferDualStack',
      ports,
    },
  } as Service;
}

function freePort(used: ReadonlySet<number>): number | null {
  for (let port = NODE_PORTS.first; port <= NODE_PORTS.last; port++) if (!used.has(port)) return port;
  return null;
}

/** Returns the node's ports that Services have. */
export function usedNodePorts(services: readonly Service[]): Set<number> {
  const ports = services
    .filter((service) => gatewayOf(service) !== null)
    .flatMap(({ spec }) => spec?.ports ?? [])
    .flatMap(({ targetPort }) =>
      typeof targetPort === 'number' && isNodePort(targetPort) ? targetPort : [],
    );
  return new Set(ports);
}

/** Returns the ports that a node reports as answered by its proxy. */
export function readyPorts({ metadata }: Node): ReadonlySet<number> {
  const text = (metadata?.annotations as Record<string, unknown> | undefined)?.[READY_PORTS_ANNOTATION];
  // Nodes are not trusted: of a longer text, the rest does not count.
  const words =
    typeof text === 'string' ? text.slice(0, 6 * (NODE_PORTS.last - NODE_PORTS.first + 1)).split(',') : [];
  return new Set(words.map(Number).filter(isNodePort));
}

export const readyPortsText = (ports: Iterable<number>): string =>
  [...new Set(ports)].sort((a, b) => a - b).join(',');

/**
 * Returns the EndpointSlices of a gateway's Service, one for each of its ports, with the nodes whose proxies answer it. A node can
 * only say this of itself, and of its own addresses.
 */
export function plannedSlices(service: Service, nodes: readonly Node[]): EndpointSlice[] {
  const name = service.metadata?.name ?? '';
  const usable = nodes
    .filter(isUsable)
    .map((node) => ({ node, name: node.metadata?.name ?? '', ready: readyPorts(node) }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
  const families = (service.spec?.ipFamilies ?? []) as readonly string[];
  return (service.spec?.ports ?? []).flatMap((port) =>
    families.flatMap((family) => {
      const endpoints = usable.flatMap(({ node, name: nodeName, ready }) => {
        const address = nodeAddress(node, family);
        if (address === null || !ready.has(Number(port.targetPort))) return [];
        return [{ addresses: [address], nodeName, conditions: { ready: true } }];
      });
      return Array.from({ length: Math.max(1, Math.ceil(endpoints.length / MAX_ENDPOINTS)) }, (_, i) => ({
        metadata: sliceMetadata(
          service,
          `${name}-${port.port}-${family.toLowerCase()}${i === 0 ? '' : `-${i}`}`,
        ),
        addressType: family,
        ports: [{ name: port.name ?? '', port: Number(port.targetPort), protocol: 'TCP' }],
        endpoints: endpoints.slice(i * MAX_ENDPOINTS, (i + 1) * MAX_ENDPOINTS),
      }));
    }),
  );
}

function sliceMetadata({ metadata }: Service, name: string): ObjectMeta {
  const owner = metadata?.name ?? '';
  return {
    name,
    namespace: GATEWAY_NAMESPACE,
    labels: { [SERVICE_NAME_LABEL]: owner, [MANAGED_BY_LABEL]: MANAGER },
    ownerReferences: [
      { apiVersion: 'v1', kind: 'Service', name: owner, uid: metadata?.uid ?? '', controller: true },
    ],
  };
}

function isUsable({ metadata, status }: Node): boolean {
  const ready = status?.conditions?.find(({ type }) => type === 'Ready');
  return (
    metadata?.deletionTimestamp === undefined && ready?.status !== 'False' && ready?.status !== 'Unknown'
  );
}

/** Returns the internal address of a node; null: it has none of this family. */
export function nodeAddress({ status }: Node, family: string): string | null {
  const found = (status?.addresses ?? [])
    .filter(({ type }) => type === 'InternalIP')
    .map(({ address }) => canonicalAddress(address ?? ''))
    .find((address) => address !== null && address.includes(':') === (family === 'IPv6'));
  return found ?? null;
}
