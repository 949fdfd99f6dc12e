import type { Informer } from '../kube/informer.ts';
import { allocatedAddresses } from '../kube/load-balancer.ts';
import { type EndpointSlice, keyOf, type Node, type Service } from '../kube/types.ts';
import { SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';

/** An address to be announced. */
export interface WantedAddress {
  /** Keys ("namespace/name") of the Services that have it. */
  readonly services: readonly string[];
  /** The nodes that may announce it; null: every node that may announce addresses. */
  readonly nodes: ReadonlySet<string> | null;
}

/** The facts about Services and Nodes that an election needs. */
export interface Candidates {
  readonly wanted: ReadonlyMap<string, WantedAddress>;
  /** The names of the nodes that may announce addresses. */
  readonly nodes: ReadonlySet<string>;
}

export interface CandidateSources {
  readonly nodes: Informer<Node>;
  readonly services: Informer<Service>;
  readonly slices: Informer<EndpointSlice>;
}

/**
 * Calls `onChange` with the candidates once all objects are known, and after each change of them. Returns a function that
 * ends it.
 */
export function followCandidates(
  { nodes, services, slices }: CandidateSources,
  onChange: (candidates: Candidates) => void,
): () => void {
  const able = new Set<string>();
  let wanted: ReadonlyMap<string, WantedAddress> | null = null;
  let told: Candidates | null = null;
  let hasSynced = false;
  let isScheduled = false;
  let hasEnded = false;
  const tell = () => {
    isScheduled = false;
    if (!hasSynced || hasEnded) return;
    wanted ??= wantedAddresses(services.list(), (namespace, name) =>
      slices.byIndex('service', `${namespace}/${name}`),
    );
    const next = { wanted, nodes: new Set(able) };
    if (told !== null && areSame(told, next)) return;
    told = next;
    onChange(next);
  };
  // The rest of a burst of events comes first.
  const schedule = () => {
    if (isScheduled || hasEnded) return;
    isScheduled = true;
    setImmediate(tell);
  };
  const recompute = () => {
    wanted = null;
    schedule();
  };
  // Nodes report their state every few seconds: almost always the same one.
  const look = (node: Node) => {
    const name = node.metadata?.name ?? '';
    if (mayAnnounce(node) === able.has(name)) return;
    if (!able.delete(name)) able.add(name);
    schedule();
  };
  const forget = (node: Node) => {
    if (able.delete(node.metadata?.name ?? '')) schedule();
  };
  slices.addIndex('service', serviceOfSlice);
  const stops = [
    services.handle({ onAdd: recompute, onUpdate: recompute, onDelete: recompute }),
    slices.handle({ onAdd: recompute, onUpdate: recompute, onDelete: recompute }),
    nodes.handle({ onAdd: look, onUpdate: look, onDelete: forget }),
  ];
  Promise.all([services, slices, nodes].map(({ synced }) => synced)).then(
    () => {
      hasSynced = true;
      schedule();
    },
    // The agent ends.
    () => {},
  );
  return () => {
    hasEnded = true;
    for (const stop of stops) stop();
  };
}

/** Nodes with this label are excluded from load balancing (KEP-1143). */
const EXCLUDED = 'node.kubernetes.io/exclude-from-external-load-balancers';

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
  const name = (slice.metadata?.labels as Record<string, string> | undefined)?.[SERVICE_NAME_LABEL];
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

function areSame(a: Candidates, b: Candidates): boolean {
  if (!haveSame(a.nodes, b.nodes)) return false;
  if (a.wanted === b.wanted) return true;
  if (a.wanted.size !== b.wanted.size) return false;
  return [...a.wanted].every(([address, one]) => {
    const other = b.wanted.get(address);
    return (
      other !== undefined &&
      one.services.join() === other.services.join() &&
      (one.nodes === null || other.nodes === null
        ? one.nodes === other.nodes
        : haveSame(one.nodes, other.nodes))
    );
  });
}

function haveSame(a: ReadonlySet<string>, b: ReadonlySet<string>): boolean {
  return a.size === b.size && a.isSubsetOf(b);
}

function intersection(
  a: ReadonlySet<string> | null,
  b: ReadonlySet<string> | null,
): ReadonlySet<string> | null {
  if (a === null || b === null) return a ?? b;
  return new Set([...a].filter((node) => b.has(node)));
}
