import { addressAt, canonicalAddress, familyOf, type IPFamily, parseCidr } from '../lib/address.ts';

/** A node as its neighbours see it. */
export interface PeerNode {
  readonly name: string;
  /** Addresses of type InternalIP, at most one per family counts: the first. */
  readonly addresses: readonly string[];
  /** Networks of its pods. */
  readonly podCidrs: readonly string[];
}

/** The part of a Node object (v1) that matters here. */
export interface NodeObject {
  readonly metadata?: { readonly name?: string | undefined } | undefined;
  readonly spec?:
    | { readonly podCIDR?: string | undefined; readonly podCIDRs?: readonly string[] | undefined }
    | undefined;
  readonly status?:
    | {
        readonly addresses?: readonly { readonly type: string; readonly address: string }[] | undefined;
      }
    | undefined;
}

/** Reads a Node object. What is malformed in it is left out: one broken Node must not stop the routes to others. */
export function peerNode(node: NodeObject): PeerNode {
  const cidrs = node.spec?.podCIDRs ?? (node.spec?.podCIDR === undefined ? [] : [node.spec.podCIDR]);
  return {
    name: node.metadata?.name ?? '',
    addresses: (node.status?.addresses ?? [])
      .filter((entry) => entry.type === 'InternalIP')
      .map((entry) => canonicalAddress(entry.address))
      .filter((address) => address !== null),
    podCidrs: cidrs.map((text) => parseCidr(text)?.text).filter((text) => text !== undefined),
  };
}

/**
 * The addresses that a node's own processes send from to pods of other nodes: its own, and over VXLAN the tunnel's (the
 * first of the pods' network) or the bridge's (the second), which no pod is given.
 */
export function sourceAddresses({ addresses, podCidrs }: PeerNode): string[] {
  const networks = podCidrs.flatMap((text) => parseCidr(text) ?? []);
  return [...addresses, ...networks.flatMap((cidr) => [addressAt(cidr, 0), addressAt(cidr, 1)])];
}

/** The first address of a family. */
export function addressOf(addresses: readonly string[], family: IPFamily): string | null {
  return addresses.find((address) => familyOf(address) === family) ?? null;
}
