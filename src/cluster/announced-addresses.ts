import {
  ADDRESS_ALLOCATED,
  ADDRESS_ANNOUNCED,
  announcingNode,
  ingressAddresses,
  wantsAddress,
} from '../kube/load-balancer.ts';
import type { Lease, Service } from '../kube/types.ts';

/** A load-balancer address of a Service and the node that announces it; null if none does. */
export interface AnnouncedAddress {
  readonly address: string;
  readonly node: string | null;
}

/** Returns the load-balancer addresses of a Service, with the owners in the Leases. */
export function announcedAddresses(service: Service, leases: readonly Lease[]): AnnouncedAddress[] {
  if (service.spec?.type !== 'LoadBalancer') return [];
  return ingressAddresses(service).map((address) => ({ address, node: announcingNode(leases, address) }));
}

/** Describes the problems of a Service's load-balancer addresses; empty: none. */
export function addressProblems(service: Service, leases: readonly Lease[]): string[] {
  if (!wantsAddress(service)) return [];
  const condition = (wanted: string) =>
    service.status?.conditions?.find(({ type, status }) => type === wanted && status !== 'True')?.message;
  const missing = condition(ADDRESS_ALLOCATED);
  if (missing !== undefined) return [`no load-balancer address: ${missing}`];
  const silent = announcedAddresses(service, leases).filter(({ node }) => node === null);
  const local = service.spec?.externalTrafficPolicy === 'Local';
  const why = local ? ' (externalTrafficPolicy: Local: only nodes with a ready endpoint may do so)' : '';
  if (silent.length > 0)
    return [`no node announces ${silent.map(({ address }) => address).join(', ')}${why}`];
  const stale = condition(ADDRESS_ANNOUNCED);
  return stale === undefined ? [] : [`not announced: ${stale}`];
}
