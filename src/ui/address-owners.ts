import { type Cidr, canonicalAddress, cidrContains, parseCidr } from '../lib/address.ts';
import type { NodeView, PodView } from './view.ts';

/** Who has an address. Nodes and pods are remembered when they are gone: their last connections are reported later. */
export interface AddressOwners {
  putNode(node: Pick<NodeView, 'name' | 'addresses'>, podCidrs: readonly string[]): void;
  putPod(pod: Pick<PodView, 'name' | 'node' | 'addresses' | 'isHostNetwork'>): void;
  /**
   * Returns "namespace/name" of a pod, "node/NAME", "pod ADDRESS" of an address of a node's pods that no known pod has, or null:
   * outside.
   */
  ownerOf(ip: string): string | null;
  /** Returns the node on which an address is; null: another address. */
  nodeOf(ip: string): string | null;
}

export function createAddressOwners(): AddressOwners {
  const owners = new Map<string, { readonly name: string; readonly node: string | null }>();
  const networks = new Map<string, readonly Cidr[]>();
  /** A pod that ended before the page was served, or whose status does not have its address yet. */
  const nodeWith = (ip: string): string | null => {
    if (canonicalAddress(ip) === null) return null;
    for (const [node, cidrs] of networks) if (cidrs.some((cidr) => cidrContains(cidr, ip))) return node;
    return null;
  };
  return {
    putNode({ name, addresses }, podCidrs) {
      for (const ip of addresses) owners.set(ip, { name: `node/${name}`, node: name });
      networks.set(
        name,
        podCidrs.flatMap((text) => parseCidr(text) ?? []),
      );
    },
    putPod({ name, node, addresses, isHostNetwork }) {
      if (!isHostNetwork) for (const ip of addresses) owners.set(ip, { name, node });
    },
    ownerOf: (ip) => owners.get(ip)?.name ?? (nodeWith(ip) === null ? null : `pod ${ip}`),
    nodeOf: (ip) => owners.get(ip)?.node ?? nodeWith(ip),
  };
}
