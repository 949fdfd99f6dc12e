import type { Node, Pod, Service } from '../kube/types.ts';
import { SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { canonicalAddress } from '../lib/address.ts';
import { closestName } from '../lib/closest-name.ts';
import { FairleadError } from '../lib/errors.ts';
import type { Target, WorkloadKind } from './explain-target.ts';
import type { ExplainView, Origin } from './explain-view.ts';
import type { Place } from './fact-requests.ts';

/** The namespace of names without one, if the origin has no namespace. */
const DEFAULT_NAMESPACE = 'default';

/** Resolves the origin of a flow. Throws FairleadError ("not-found", "bad-argument") that lists the existing objects. */
export function findOrigin(view: ExplainView, target: Target): Origin {
  switch (target.kind) {
    case 'pod':
    case 'workload':
      return podOrigin(findPod(view, target, DEFAULT_NAMESPACE));
    case 'node':
      return nodeOrigin(findNode(view, target.name));
    case 'outside':
      return view.hosts.some(({ name }) => name === 'outside') ? hostOrigin(view, 'outside') : anyClient();
    case 'address':
      return addressOrigin(view, target.name);
    case 'dns':
      // Packets do not come from DNS names: a single word is a pod.
      if (!target.name.includes('.')) return podOrigin(findPod(view, target, DEFAULT_NAMESPACE));
      break;
    case 'service':
      break;
  }
  throw new FairleadError(`${JSON.stringify(target.text)} cannot be the origin of packets`, {
    op: 'explain',
    code: 'bad-argument',
    hint: 'use a pod (pod/NAME or NAMESPACE/NAME), deploy/NAME, node/NAME, outside, or an address',
  });
}

/** Returns the namespace of names that are written without one. */
export function namespaceOf({ pod }: Origin): string {
  return pod?.metadata?.namespace ?? DEFAULT_NAMESPACE;
}

/** Finds a pod by its name or a prefix of it, or a pod of a workload. */
export function findPod(view: ExplainView, target: Target, usualNamespace: string): Pod {
  const pods = [...view.pods()];
  const { name, workload } = target;
  const namespace = target.namespace ?? usualNamespace;
  const here = pods.filter(({ metadata }) => metadata?.namespace === namespace);
  if (target.kind === 'workload' && workload !== null) {
    const owned = here.filter((pod) => isOf(pod, workload, name));
    const running = owned.find(({ status }) => status?.phase === 'Running') ?? owned[0];
    if (running) return running;
    throw new FairleadError(`${workload} ${namespace}/${name} has no pods, or does not exist`, {
      op: 'explain',
      code: 'not-found',
      object: `${workload} ${namespace}/${name}`,
      hint: `kubectl -n ${namespace} get ${workload.toLowerCase()}s`,
    });
  }
  const exact = here.find(({ metadata }) => metadata?.name === name);
  if (exact) return exact;
  // Names of a workload's pods end with a random suffix, so a prefix is enough.
  const begun = here.find(({ metadata }) => metadata?.name?.startsWith(`${name}-`));
  if (begun) return begun;
  const node = [...view.nodes()].find(({ metadata }) => metadata?.name === name);
  const elsewhere = pods.find(({ metadata }) => metadata?.name === name);
  const meant = node ? `node/${name}` : elsewhere ? nameOf(elsewhere) : null;
  throw notFound('pod', `${namespace}/${name}`, pods.map(nameOf), meant);
}

function isOf({ metadata }: Pod, workload: WorkloadKind, name: string): boolean {
  return (metadata?.ownerReferences ?? []).some((owner) =>
    workload === 'Deployment'
      ? // The name of a ReplicaSet is that of its Deployment plus a hash.
        owner.kind === 'ReplicaSet' && owner.name.replace(/-[a-z0-9]+$/, '') === name
      : owner.kind === workload && owner.name === name,
  );
}

export function findNode(view: ExplainView, name: string): Node {
  const nodes = [...view.nodes()];
  const node = nodes.find(({ metadata }) => metadata?.name === name);
  if (node) return node;
  throw notFound('node', name, nodes.map(nameOf));
}

export function findService(view: ExplainView, { namespace, name }: Target, usualNamespace: string): Service {
  const services = [...view.services()];
  const wanted = namespace ?? usualNamespace;
  const service = services.find(({ metadata }) => metadata?.namespace === wanted && metadata.name === name);
  if (service) return service;
  const elsewhere = services.find(({ metadata }) => metadata?.name === name);
  if (elsewhere)
    throw notFound('Service', `${wanted}/${name}`, [nameOf(elsewhere)], `svc/${nameOf(elsewhere)}`);
  throw notFound('Service', `${wanted}/${name}`, services.map(nameOf));
}

export function podAddresses({ status }: Pod): string[] {
  const all = status?.podIPs?.map(({ ip }) => ip) ?? [status?.podIP];
  return all.flatMap((ip) => (ip ? (canonicalAddress(ip) ?? []) : []));
}

export function nodeAddresses({ status }: Node): string[] {
  return (status?.addresses ?? []).flatMap(({ type, address }) =>
    type === 'InternalIP' || type === 'ExternalIP' ? (canonicalAddress(address) ?? []) : [],
  );
}

/** Returns the pods by their canonical addresses, without pods that have ended or use their node's address. */
export function podIndex(pods: Iterable<Pod>): ReadonlyMap<string, Pod> {
  const index = new Map<string, Pod>();
  for (const pod of pods) {
    if (pod.spec?.hostNetwork || pod.status?.phase === 'Succeeded' || pod.status?.phase === 'Failed')
      continue;
    for (const address of podAddresses(pod)) if (!index.has(address)) index.set(address, pod);
  }
  return index;
}

export function nodeAt(view: ExplainView, address: string): Node | null {
  for (const node of view.nodes()) if (nodeAddresses(node).includes(address)) return node;
  return null;
}

/** Returns the name of the host on the link that has an address and is not a node, or null. */
export function hostAt(view: ExplainView, address: string): string | null {
  return view.hosts.find(({ addresses }) => addresses.includes(address))?.name ?? null;
}

/** Returns the place of a pod's processes; null before it has a node. */
export function placeOfPod(pod: Pod): Place | null {
  const { metadata, spec } = pod;
  if (!spec?.nodeName) return null;
  const kind = spec.hostNetwork ? 'host-pod' : 'pod';
  return { kind, node: spec.nodeName, uid: metadata?.uid ?? '', name: nameOf(pod) };
}

/** Returns the nodes with ready endpoints of a Service, in the order of the nodes. */
export function readyNodes(view: ExplainView, { metadata }: Service): string[] {
  const found = new Set<string>();
  for (const { metadata: ofSlice, endpoints } of view.slices()) {
    if (ofSlice?.namespace !== metadata?.namespace) continue;
    if (ofSlice?.labels?.[SERVICE_NAME_LABEL] !== metadata?.name) continue;
    for (const { nodeName, conditions } of endpoints ?? [])
      if (nodeName && conditions?.ready !== false) found.add(nodeName);
  }
  return [...view.nodes()].map(nameOf).filter((name) => found.has(name));
}

/** "namespace/name", or "name". */
export function nameOf({ metadata }: Pod | Node | Service): string {
  return metadata?.namespace ? `${metadata.namespace}/${metadata.name}` : (metadata?.name ?? '');
}

function podOrigin(pod: Pod): Origin {
  const addresses = podAddresses(pod);
  if (addresses.length === 0) {
    throw new FairleadError(
      `pod ${nameOf(pod)} has no address yet (phase ${pod.status?.phase ?? 'unknown'})`,
      {
        op: 'explain',
        code: 'no-address',
        object: `pod ${nameOf(pod)}`,
        hint: `kubectl -n ${pod.metadata?.namespace} describe pod ${pod.metadata?.name} shows the reason`,
      },
    );
  }
  // Packets of a pod in its node's network namespace look like the node's packets.
  const kind = pod.spec?.hostNetwork ? 'node' : 'pod';
  return {
    kind,
    label: `pod ${nameOf(pod)}`,
    addresses,
    node: pod.spec?.nodeName ?? null,
    pod,
    place: placeOfPod(pod),
  };
}

function nodeOrigin(node: Node): Origin {
  const name = node.metadata?.name ?? '';
  return {
    kind: 'node',
    label: `node ${name}`,
    addresses: nodeAddresses(node),
    node: name,
    pod: null,
    place: { kind: 'node', node: name },
  };
}

function hostOrigin(view: ExplainView, name: string): Origin {
  const addresses = view.hosts.find((host) => host.name === name)?.addresses ?? [];
  return { kind: 'outside', label: name, addresses, node: null, pod: null, place: { kind: 'host', name } };
}

/** Addresses for documentation (RFC 5737, RFC 3849) that stand for a client outside where none is known: no host has them. */
export const EXAMPLE_CLIENTS: readonly string[] = ['192.0.2.1', '2001:db8::1'];

function anyClient(): Origin {
  const addresses = EXAMPLE_CLIENTS;
  return { kind: 'address', label: 'outside', addresses, node: null, pod: null, place: null };
}

/** Returns the origin "outside@ADDRESS": the host, node or pod that has the address, or else a client outside. */
export function clientOrigin(view: ExplainView, address: string): Origin {
  const origin = addressOrigin(view, address);
  return origin.kind === 'address' ? { ...origin, label: `outside@${address}` } : origin;
}

function addressOrigin(view: ExplainView, address: string): Origin {
  const pod = view.podAt(address);
  if (pod) return { ...podOrigin(pod), addresses: [address] };
  const node = nodeAt(view, address);
  if (node) return { ...nodeOrigin(node), addresses: [address] };
  const host = hostAt(view, address);
  if (host) return { ...hostOrigin(view, host), addresses: [address] };
  return { kind: 'address', label: address, addresses: [address], node: null, pod: null, place: null };
}

function notFound(
  kind: string,
  name: string,
  known: readonly string[],
  meant: string | null = null,
): FairleadError {
  const like = meant ?? closestName(name, known);
  const some = known.slice(0, 5).join(', ') || 'none';
  return new FairleadError(`no such ${kind}: ${name}`, {
    op: 'explain',
    code: 'not-found',
    object: `${kind} ${name}`,
    hint: like ? `did you mean ${like}?` : `there are: ${some}${known.length > 5 ? ', …' : ''}`,
  });
}
