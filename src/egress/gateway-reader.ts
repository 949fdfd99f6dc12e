import type { EgressGatewayObject } from '../kube/egress-gateway.ts';
import { MAX_ADDRESSES, MAX_NETWORKS } from '../kube/egress-gateway.ts';
import { type Cidr, canonicalAddress, cidrContains, parseCidr } from '../lib/address.ts';
import { NEVER_OUTSIDE } from './decide.ts';
import type { Gateway } from './model.ts';

/** An object as it was read: without a problem, it is in force. */
export interface ReadGateway {
  readonly gateway: Gateway;
  /** Why nothing of it is in force; null: it is. The pods that it selects are then cut off from hosts outside. */
  readonly problem: string | null;
}

/**
 * Reads an EgressGateway. One with a problem selects pods and has no address: what it should have translated must not leave with
 * another source.
 */
export function readGateway({ metadata, spec = {} }: EgressGatewayObject): ReadGateway {
  const problems: string[] = [];
  const networksOf = (field: string, texts: readonly string[] = []): Cidr[] => {
    if (texts.length > MAX_NETWORKS) problems.push(`spec.${field} has more than ${MAX_NETWORKS} networks`);
    return texts.slice(0, MAX_NETWORKS).flatMap((text) => {
      const cidr = parseCidr(text);
      if (cidr === null) problems.push(`spec.${field}: ${JSON.stringify(text)} is not a network`);
      return cidr ?? [];
    });
  };
  const addresses: string[] = [];
  for (const text of (spec.addresses ?? []).slice(0, MAX_ADDRESSES)) {
    const address = canonicalAddress(text);
    if (address === null) problems.push(`spec.addresses: ${JSON.stringify(text)} is not an IP address`);
    else if (NEVER_OUTSIDE.some((one) => cidrContains(one, address)))
      problems.push(`spec.addresses: ${address} is not an address of a host`);
    else if (!addresses.includes(address)) addresses.push(address);
  }
  if ((spec.addresses ?? []).length > MAX_ADDRESSES)
    problems.push(`spec.addresses has more than ${MAX_ADDRESSES} addresses`);
  if ((spec.addresses ?? []).length === 0) problems.push('spec.addresses is empty');
  const read = spec.destinationCIDRs?.length ? networksOf('destinationCIDRs', spec.destinationCIDRs) : null;
  const destinations = read?.length === spec.destinationCIDRs?.length ? read : null;
  const except = networksOf('exceptCIDRs', spec.exceptCIDRs);
  const problem = problems.length > 0 ? problems.join('; ') : null;
  return {
    gateway: {
      name: metadata?.name ?? '',
      createdAt: String(metadata?.creationTimestamp ?? ''),
      namespaceSelector: spec.namespaceSelector ?? {},
      podSelector: spec.podSelector ?? {},
      nodeSelector: spec.nodeSelector ?? {},
      destinations,
      except,
      addresses: problem === null ? addresses : [],
    },
    problem,
  };
}
