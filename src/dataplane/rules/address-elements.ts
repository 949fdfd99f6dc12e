import type { IPFamily } from '../../lib/address.ts';
import { addressWords, wordsOfAddress, writeAddress } from '../../nft/encoding.ts';
import { mergedRanges, outermost } from '../../nft/ranges.ts';
import { type ElementGroup, type Elements, elements, group, rangeElements } from '../../nft/spec.ts';
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

/**
 * A set of single addresses, each with a separate owner, since each is added and removed separately.
 * `times`: how often the key repeats the address. `prefix`: of the owner's name, unique in a table.
 */
export interface AddressSet {
  readonly set: string;
  readonly times: 1 | 2;
  readonly prefix: string;
}

export const CLUSTER_IPS: AddressSet = { set: 'cluster-ips', times: 1, prefix: 'cluster-ips ' };
/** A hairpin packet has the endpoint's address twice. No prefix: 300,000 more strings would cost more than the elements. */
export const HAIRPIN: AddressSet = { set: 'hairpin', times: 2, prefix: '' };

/** Records that the addresses of this family are in the set. */
export function noteAddresses(
  groups: { set(owner: string, group: ElementGroup): unknown },
  { set, times, prefix }: AddressSet,
  family: IPFamily,
  addresses: Iterable<string>,
): void {
  const width = addressWords(family);
  let chunk = NO_WORDS;
  let at = 0;
  // One array for many keys: an array for each key would cost more than everything else.
  let length = FIRST_CHUNK_KEYS * times * width;
  for (const ip of addresses) {
    if (!isOfFamily(ip, family)) continue;
    if (at === chunk.length) {
      chunk = new Uint32Array(length);
      at = 0;
      length = CHUNK_KEYS * times * width;
    }
    // Invalid addresses are skipped; their frontends are reported.
    if (!writeKey(ip, family, times, chunk, at)) continue;
    groups.set(prefix + ip, group([elements(set, chunk, { at })]));
    at += times * width;
  }
}

const NO_WORDS = new Uint32Array(0);
/** Small, since most changes affect one or two addresses. */
const FIRST_CHUNK_KEYS = 2;
const CHUNK_KEYS = 4096;

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

/** Writes an address's words, `times` over. Returns false for other text. */
function writeKey(ip: string, family: IPFamily, times: number, words: Uint32Array, at: number): boolean {
  try {
    const width = addressWords(family);
    for (let i = 0; i < times; i++) writeAddress(ip, family, words, at + i * width);
    return true;
  } catch {
    return false;
  }
}
