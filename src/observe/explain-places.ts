import type { Node, Pod, Service } from '../kube/types.ts';
import { canonicalAddress, type IPFamily } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import type { Target } from './explain-target.ts';
import type { ExplainView, Origin } from './explain-view.ts';

/** Resolves the origin of a flow. Throws FairleadError ("not-found", "bad-argument") that lists the existing objects. */
export function findOrigin(view: ExplainView, target: Target): Origin {
  switch (target.kind) {
    case 'pod':
      return podOrigin(findPod(view, target));
    case 'node':
      return nodeOrigin(findNode(view, target.name));
    case 'outside':
      return { kind: 'outside', label: 'outside', addresses: view.outsideAddresses, node: null, pod: null };
    case 'address':
      return addressOrigin(view, target.name);
    case 'service':
    case 'dns':
      throw new FairleadError(`${JSON.stringify(target.text)} cannot be the origin of a packet`, {
        op: 'explain',
        code: 'bad-argument',
        hint: 'use a pod (ns/pod), node/NAME, outside, or an address',
      });
  }
}

export function findPod(view: ExplainView, { namespace, name }: Target): Pod {
  const pods = [...view.pods()];
  const pod = pods.find(({ metadata }) => metadata?.namespace === namespace && metadata.name === name);
  if (pod) return pod;
  // Names of a workload's pods end with a random suffix, so a prefix is enough.
  const begun = pods.filter(
    ({ metadata }) => metadata?.namespace === namespace && metadata.name?.startsWith(`${name}-`),
  );
  if (begun.length > 0 && begun[0]) return begun[0];
  throw notFound('pod', `${namespace}/${name}`, pods.map(nameOf));
}

export function findNode(view: ExplainView, name: string): Node {
  const nodes = [...view.nodes()];
  const node = nodes.find(({ metadata }) => metadata?.name === name);
  if (node) return node;
  throw notFound('node', name, nodes.map(nameOf));
}

export function findService(view: ExplainView, { namespace, name }: Target): Service {
  const services = [...view.services()];
  const service = services.find(
    ({ metadata }) => metadata?.namespace === namespace && metadata.name === name,
  );
  if (service) return service;
  throw notFound('Service', `${namespace}/${name}`, services.map(nameOf));
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

/** Returns the pod with this address, or null. Pods that have ended or use their node's address are ignored. */
export function podAt(view: ExplainView, address: string): Pod | null {
  for (const pod of view.pods()) {
    if (pod.spec?.hostNetwork || pod.status?.phase === 'Succeeded' || pod.status?.phase === 'Failed')
      continue;
    if (podAddresses(pod).includes(address)) return pod;
  }
  return null;
}

export function nodeAt(view: ExplainView, address: string): Node | null {
  for (const node of view.nodes()) if (nodeAddresses(node).includes(address)) return node;
  return null;
}

/** "namespace/name", or "name". */
export function nameOf({ metadata }: Pod | Node | Service): string {
  return metadata?.namespace ? `${metadata.namespace}/${metadata.name}` : (metadata?.name ?? '');
}

export function familyName(family: IPFamily): string {
  return family === 'ipv4' ? 'IPv4' : 'IPv6';
}

/** Returns the most similar of some texts, or null if none is similar. */
export function closest(text: string, candidates: Iterable<string>): string | null {
  let best: { candidate: string; distance: number } | null = null;
  for (const candidate of candidates) {
    const distance = editDistance(text, candidate);
    if (!best || distance < best.distance) best = { candidate, distance };
  }
  return best && best.distance <= Math.max(2, Math.floor(text.length / 2)) ? best.candidate : null;
}

/** Computes the Levenshtein distance. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replace = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replace, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
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
  return { kind, label: `pod ${nameOf(pod)}`, addresses, node: pod.spec?.nodeName ?? null, pod };
}

function nodeOrigin(node: Node): Origin {
  const name = node.metadata?.name ?? '';
  return { kind: 'node', label: `node ${name}`, addresses: nodeAddresses(node), node: name, pod: null };
}

function addressOrigin(view: ExplainView, address: string): Origin {
  const pod = podAt(view, address);
  if (pod) return { ...podOrigin(pod), addresses: [address] };
  const node = nodeAt(view, address);
  if (node) return { ...nodeOrigin(node), addresses: [address] };
  return { kind: 'address', label: address, addresses: [address], node: null, pod: null };
}

function notFound(kind: string, name: string, known: readonly string[]): FairleadError {
  const like = closest(name, known);
  const some = known.slice(0, 5).join(', ') || 'none at all';
  return new FairleadError(`there is no ${kind} ${name}`, {
    op: 'explain',
    code: 'not-found',
    object: `${kind} ${name}`,
    hint: like ? `did you mean ${like}?` : `there are: ${some}${known.length > 5 ? ', …' : ''}`,
  });
}
