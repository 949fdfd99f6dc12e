import type { IPFamily } from '../../lib/address.ts';
import { addressGroup } from '../../nft/address-set.ts';
import { wordsOfAddress } from '../../nft/encoding.ts';
import { mergedRanges, outermost } from '../../nft/ranges.ts';
import {
  type AddressSet,
  type ElementGroup,
  type Elements,
  elements,
  group,
  rangeElements,
} from '../../nft/spec.ts';
import type { Frontend, NodeView } from '../../service/model.ts';

/** The owner of elements that depend only on the node. */
export const NODE_OWNER = 'node';

export const isOfFamily = (address: string, family: IPFamily): boolean =>
  address.includes(':') === (family === 'ipv6');

/** Returns the elements that depend only on the node, in the sets of `createServiceRules`. */
export function nodeGroup(node: NodeView, family: IPFamily): ElementGroup {
  const ports = node.nodePortAddresses[family];
  const own = new Set(node.ownServiceAddresses.filter((ip) => isOfFamily(ip, family)));
  return group([
    rangeElements('service-networks', mergedRanges(node.serviceCidrs, family)),
    rangeElements('nodeport-networks', mergedRanges(ports.all ? [] : ports.cidrs, family)),
    ...[...own].map((ip) => elements('own-addresses', Uint32Array.from(wordsOfAddress(ip, family)))),
  ]);
}

/** Returns the elements of a frontend's source ranges; `key`: the frontend's. */
export function sourceRangeElements(
  { allowedSources, family }: Frontend,
  key: Uint32Array,
  comment?: string,
): Elements[] {
  if (!allowedSources) return [];
  return [
    elements('restricted', key, { comment }),
    rangeElements('allowed-sources', outermost(allowedSources, family), key),
  ];
}

export const CLUSTER_IPS: AddressSet = { set: 'cluster-ips', times: 1, prefix: 'cluster-ips ' };
/** A hairpin packet has the endpoint's address twice. No prefix: 300,000 more strings would cost more than the elements. */
export const HAIRPIN: AddressSet = { set: 'hairpin', times: 2, prefix: '' };

/** Records that the addresses of this family are in the set. Other text is left out: its frontends are reported. */
export function noteAddresses(
  groups: { set(owner: string, group: ElementGroup): unknown },
  to: AddressSet,
  family: IPFamily,
  addresses: Iterable<string>,
): void {
  const shared = addressGroup(to);
  for (const ip of addresses) if (isOfFamily(ip, family)) groups.set(to.prefix + ip, shared);
}

/** Records which addresses are added to a set and removed from it. */
export function changeAddressSet(
  groups: Map<string, ElementGroup | null>,
  to: AddressSet,
  family: IPFamily,
  { added, removed }: { readonly added: Iterable<string>; readonly removed: Iterable<string> },
): void {
  for (const ip of removed) if (isOfFamily(ip, family)) groups.set(to.prefix + ip, null);
  noteAddresses(groups, to, family, added);
}
