import { addressAt, canonicalAddress, familyOf, type IPFamily, parseCidr } from '../lib/address.ts';

/** The parts of a node that other nodes need. */
export interface PeerNode {
  readonly name: string;
  /** Addresses of type InternalIP, of type ExternalIP if it has no others; the first of each family is used. */
  readonly addresses: readonly string[];
  /** Networks of its pods. */
  readonly podCidrs: readonly string[];
}

/** The relevant fields of a Node object (v1). */
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

/** Reads a Node object. Malformed fields are left out: one broken Node must not stop the routes to others. */
export function peerNode(node: NodeObject): PeerNode {
  const cidrs = node.spec?.podCIDRs ?? (node.spec?.podCIDR === undefined ? [] : [node.spec.podCIDR]);
  const all = node.status?.addresses ?? [];
  const internal = all.filter((entry) => entry.type === 'InternalIP');
  return {
    name: node.metadata?.name ?? '',
    addresses: (internal.length > 0 ? internal : all.filter((entry) => entry.type === 'ExternalIP'))
      .map((entry) => canonicalAddress(entry.address))
      .filter((address) => address !== null),
    podCidrs: cidrs.map((text) => parseCidr(text)?.text).filter((text) => text !== undefined),
  };
}

/**
 * Returns the source addresses of a node's processes to pods of other nodes: the node's addresses, and over
 * VXLAN the tunnel's (the first of the pod network) or the bridge's (the second), which no pod has.
 */
export function sourceAddresses({ addresses, podCidrs }: PeerNode): string[] {
  const networks = podCidrs.flatMap((text) => parseCidr(text) ?? []);
  return [...addresses, ...networks.flatMap((cidr) => [addressAt(cidr, 0), addressAt(cidr, 1)])];
}

/** Returns the first address of a family. */
export function addressOf(addresses: readonly string[], family: IPFamily): string | null {
  return addresses.find((address) => familyOf(address) === family) ?? null;
}
