import { addressBytes, canonicalAddress } from '../lib/address.ts';
import type { Lease, Service } from './types.ts';

/** spec.loadBalancerClass of Services that want only Fairlead's addresses. */
const LOAD_BALANCER_CLASS = 'fairlead.dev/load-balancer';

/**
 * Annotation of Services that share an address: those with the same value do, if they request it and their ports do not
 * conflict (as MetalLB's allow-shared-ip).
 */
export const SHARING_KEY = 'fairlead.dev/load-balancer-sharing-key';

/** Requests specific addresses: one per family, separated by commas. */
export const REQUESTED_ADDRESSES = 'fairlead.dev/load-balancer-addresses';

/** Requests addresses of the pool with this name (as MetalLB's address-pool). */
export const REQUESTED_POOL = 'fairlead.dev/load-balancer-pool';

/** Conditions of a Service: whether it has its addresses, and which nodes announce them. */
export const ADDRESS_ALLOCATED = 'fairlead.dev/AddressAllocated';
export const ADDRESS_ANNOUNCED = 'fairlead.dev/AddressAnnounced';

/**
 * Label of the Leases of two kinds that record announcements. The Lease of a node (label value "node") is its
 * heartbeat: the holder is the node's session, "NODE/RANDOM", and empty when the session has ended or was ended by
 * another node. The Lease of an address (label value "address") names the session that owns the address, for as long as
 * that session lasts.
 */
export const ANNOUNCEMENT_LABEL = 'fairlead.dev/load-balancer';
/** They have a namespace of their own: agents of all nodes write each of them, and may write no other Lease. */
export const ANNOUNCEMENT_NAMESPACE = 'fairlead-leases';
/** The namespace in which agents of version 0.1 have them (docs/decisions/0009-namespace-of-leases.md). */
export const EARLIER_ANNOUNCEMENT_NAMESPACE = 'kube-system';
/** The group of the identities with which agents of local clusters write them: nodes may not (NodeRestriction). */
export const ANNOUNCERS_GROUP = 'fairlead:announcers';
/** The address or node of the Lease. */
const SUBJECT = 'fairlead.dev/subject';
/** Validity of a session after a renewal; spec.leaseDurationSeconds has no fractions. */
const DURATION = 'fairlead.dev/lease-duration-ms';

type Annotated = { readonly metadata?: { readonly annotations?: unknown } };

const annotation = (object: Annotated, name: string): string | undefined =>
  (object.metadata?.annotations as Record<string, string> | undefined)?.[name];

/**
 * Returns the metadata of the Lease of an address; its name encodes the address without colons, which names must not
 * contain.
 */
export function addressLeaseMetadata(address: string, namespace: string = ANNOUNCEMENT_NAMESPACE) {
  const bytes = addressBytes(address) ?? new Uint8Array();
  const name =
    bytes.length === 16
      ? Array.from({ length: 8 }, (_, i) =>
          (((bytes[2 * i] ?? 0) << 8) | (bytes[2 * i + 1] ?? 0)).toString(16),
        ).join('-')
      : address;
  return {
    name: `load-balancer-${name}`,
    namespace,
    labels: { [ANNOUNCEMENT_LABEL]: 'address' },
    annotations: { [SUBJECT]: address },
  };
}

/** Returns the metadata of the Lease of a node's session. */
export function sessionLeaseMetadata(
  node: string,
  durationMs: number,
  namespace: string = ANNOUNCEMENT_NAMESPACE,
) {
  return {
    name: `load-balancer-node-${node}`,
    namespace,
    labels: { [ANNOUNCEMENT_LABEL]: 'node' },
    annotations: { [SUBJECT]: node, [DURATION]: String(durationMs) },
  };
}

/** Returns the address of a Lease; null if it is not the Lease of an address. */
export function addressOfLease(lease: Lease): string | null {
  return kindOf(lease) === 'address' ? canonicalAddress(annotation(lease, SUBJECT) ?? '') : null;
}

/** Returns the node of a Lease; null if it is not the Lease of a node. */
export function nodeOfLease(lease: Lease): string | null {
  return kindOf(lease) === 'node' ? (annotation(lease, SUBJECT) ?? null) : null;
}

/** Returns the validity of a session's Lease after a renewal, in milliseconds. */
export function leaseDurationMs(lease: Lease): number {
  const exact = Number(annotation(lease, DURATION));
  return exact > 0 ? exact : (lease.spec?.leaseDurationSeconds ?? 1) * 1000;
}

/** Returns the node of a session "NODE/RANDOM"; "" for no session. */
export function nodeOfSession(session: string): string {
  const slash = session.lastIndexOf('/');
  return slash < 0 ? session : session.slice(0, slash);
}

/** Returns the node that owns an address according to the Leases, whether alive or not; null if there is none. */
export function announcingNode(leases: Iterable<Lease>, address: string): string | null {
  const wanted = canonicalAddress(address);
  for (const lease of leases) {
    if (wanted !== null && addressOfLease(lease) === wanted)
      return nodeOfSession(lease.spec?.holderIdentity ?? '') || null;
  }
  return null;
}

/** Returns the addresses that Fairlead assigned to a Service and that reach the nodes unchanged. */
export function allocatedAddresses(service: Service): string[] {
  if (service.spec?.type !== 'LoadBalancer' || !wasAllocatedHere(service)) return [];
  return ingressAddresses(service);
}

/** Returns the addresses in status.loadBalancer.ingress, from any source. */
export function ingressAddresses(service: Service): string[] {
  return (service.status?.loadBalancer?.ingress ?? []).flatMap(({ ip, ipMode }) => {
    const address = ipMode === 'Proxy' ? null : canonicalAddress(ip ?? '');
    return address === null ? [] : [address];
  });
}

/** Reports whether Fairlead assigned the addresses in the status, not another load balancer. */
export function wasAllocatedHere(service: Service): boolean {
  return (service.status?.conditions ?? []).some(({ type }) => type === ADDRESS_ALLOCATED);
}

/** Reports whether a Service wants an address from Fairlead. */
export function wantsAddress(service: Service): boolean {
  const { type, loadBalancerClass } = service.spec ?? {};
  return type === 'LoadBalancer' && [undefined, null, '', LOAD_BALANCER_CLASS].includes(loadBalancerClass);
}

/** Returns the name of the pool that a Service requests; null if none. */
export function requestedPool(service: Service): string | null {
  return annotation(service, REQUESTED_POOL)?.trim() || null;
}

/** Returns the text in which a Service requests addresses, and its field; null if it requests none. */
export function requestedAddresses(
  service: Service,
): { readonly field: string; readonly texts: string[] } | null {
  const list = annotation(service, REQUESTED_ADDRESSES)?.trim();
  if (list) {
    const texts = list.split(',').map((text) => text.trim());
    return { field: `the annotation ${REQUESTED_ADDRESSES}`, texts };
  }
  const one = service.spec?.loadBalancerIP?.trim();
  return one ? { field: 'spec.loadBalancerIP', texts: [one] } : null;
}

function kindOf(lease: Lease): string | undefined {
  return (lease.metadata?.labels as Record<string, string> | undefined)?.[ANNOUNCEMENT_LABEL];
}
