import { allocatedAddresses } from '../kube/load-balancer.ts';
import { type EndpointSlice, keyOf, type Node, type Service } from '../kube/types.ts';

/** An address to be announced. */
export interface WantedAddress {
  /** Keys ("namespace/name") of the Services that have it. */
  readonly services: readonly string[];
  /** The nodes that may announce it; null: every node that may announce addresses. */
  readonly nodes: ReadonlySet<string> | null;
}

/** Nodes with this label are excluded from load balancing (KEP-1143). */
const EXCLUDED = 'node.kubernetes.io/exclude-from-external-load-balancers';

/** The label of an EndpointSlice that names its Service. */
const SERVICE_NAME = 'kubernetes.io/service-name';

/**
 * Returns the addresses of all Services, each with the nodes that may receive its packets: with externalTrafficPolicy
 * Local only those with an endpoint of every Service that shares the address, since other nodes drop them. `slicesOf`
 * returns the EndpointSlices of a Service.
 */
export function wantedAddresses(
  services: Iterable<Service>,
  slicesOf: (namespace: string, name: string) => Iterable<EndpointSlice>,
): Map<string, WantedAddress> {
  const wanted = new Map<string, WantedAddress>();
  for (const service of services) {
    const addresses = allocatedAddresses(service);
    if (addresses.length === 0 || service.metadata?.deletionTimestamp !== undefined) continue;
    const { namespace = '', name = '' } = service.metadata ?? {};
    const isLocal = service.spec?.externalTrafficPolicy === 'Local';
    const nodes = isLocal ? nodesWithEndpoints(slicesOf(namespace, name)) : null;
    for (const address of addresses) {
      const other = wanted.get(address);
      wanted.set(address, {
        services: [...(other?.services ?? []), keyOf(service)],
        nodes: intersection(other?.nodes ?? null, nodes),
      });
    }
  }
  return wanted;
}

/** Returns the key for an index of slices: "namespace/name" of their Service. */
export function serviceOfSlice(slice: EndpointSlice): string[] {
  const name = (slice.metadata?.labels as Record<string, string> | undefined)?.[SERVICE_NAME];
  return name === undefined ? [] : [`${slice.metadata?.namespace}/${name}`];
}

/** Returns true if a node may announce addresses: it is Ready and not excluded. */
export function mayAnnounce(node: Node | undefined): boolean {
  if (!node || node.metadata?.deletionTimestamp !== undefined) return false;
  const labels = (node.metadata?.labels ?? {}) as Record<string, string>;
  const ready = node.status?.conditions?.find(({ type }) => type === 'Ready')?.status === 'True';
  return ready && !(EXCLUDED in labels);
}

/**
 * Returns the nodes with a ready endpoint; if there is none at all, nodes whose endpoints still serve while
 * they terminate (KEP-1669).
 */
function nodesWithEndpoints(slices: Iterable<EndpointSlice>): Set<string> {
  const ready = new Set<string>();
  const serving = new Set<string>();
  for (const { endpoints } of slices) {
    for (const { nodeName, conditions } of endpoints ?? []) {
      if (!nodeName) continue;
      // Absent means true (discovery.k8s.io/v1 EndpointConditions).
      if (conditions?.ready !== false) ready.add(nodeName);
      else if (conditions.serving !== false && conditions.terminating) serving.add(nodeName);
    }
  }
  return ready.size > 0 ? ready : serving;
}

function intersection(
  a: ReadonlySet<string> | null,
  b: ReadonlySet<string> | null,
): ReadonlySet<string> | null {
  if (a === null || b === null) return a ?? b;
  return new Set([...a].filter((node) => b.has(node)));
}
