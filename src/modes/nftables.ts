import { createLayout } from '../dataplane/nftables/layout.ts';
import { entriesOf, renderFrontend, TABLE } from '../dataplane/nftables/render.ts';
import { CLUSTER_IPS, HAIRPIN, noteAddresses } from '../dataplane/rules/address-elements.ts';
import { EndpointWords } from '../dataplane/rules/endpoint-words.ts';
import { classBefore } from '../dataplane/rules/size-class.ts';
import { PRIORITY } from '../kernel/nftables/priorities.ts';
import type { IPFamily } from '../lib/address.ts';
import { elementsOf } from '../nft/address-set.ts';
import { type AddressSet, type ElementGroup, group } from '../nft/spec.ts';
import type { Frontend, ServiceMap } from '../service/model.ts';
import { type NftContents, nftBytes, nftSections } from './nft-objects.ts';
import {
  byFamily,
  filled,
  type Lookups,
  mainFrontend,
  type RenderInput,
  type Rendering,
} from './rendering.ts';

/** The number of random draws from a map whose highest slots may be empty. */
const MAX_DRAWS = 4;

export const NFTABLES_HOOKS = `hook prerouting (pods, outside) or output (the node), nat, priority ${PRIORITY.natDestination}`;
export const LATER_TRACKED = 'connection tracking';

export function renderNftables(input: RenderInput): Rendering {
  const contents = nftablesContents(input, TABLE);
  const main = mainFrontend(input.frontends);
  return {
    sections: filled(contents.flatMap(nftSections)),
    sizes: [{ what: 'netlink transaction', bytes: contents.reduce((sum, one) => sum + nftBytes(one), 0) }],
    translatedAt: NFTABLES_HOOKS,
    firstPacket: main ? nftablesLookups(main, input) : { least: 0, most: 0, text: '' },
    laterPackets: LATER_TRACKED,
    notes: [],
  };
}

/** Returns the Service's elements in one table of each family. */
export function nftablesContents({ map, node, frontends }: RenderInput, table: string): NftContents[] {
  return byFamily(frontends).map(({ family, frontends: own }) => {
    const layout = createLayout(family, node);
    const words = new EndpointWords(family, { whole: false });
    return {
      family,
      table,
      sets: layout.sets,
      groups: [
        ...own.map((frontend) => renderFrontend(frontend, layout, words)),
        ...addressGroups(CLUSTER_IPS, family, clusterIPsOf(own, map)),
      ],
      shared: addressGroups(HAIRPIN, family, hairpinAddressesOf(own, map)),
    };
  });
}

/** Returns the elements of addresses, as groups of their own. */
export function addressGroups(to: AddressSet, family: IPFamily, addresses: Iterable<string>): ElementGroup[] {
  const groups = new Map<string, ElementGroup>();
  noteAddresses(groups, to, family, addresses);
  return [...groups].map(([owner, one]) => group(elementsOf(owner, one, family)));
}

export const clusterIPsOf = (frontends: readonly Frontend[], { clusterIPs }: ServiceMap): Set<string> =>
  new Set(frontends.flatMap(({ address }) => (address !== null && clusterIPs.has(address) ? [address] : [])));

export function hairpinAddressesOf(
  frontends: readonly Frontend[],
  { hairpinAddresses }: ServiceMap,
): Set<string> {
  const used = frontends.flatMap(({ routes }) =>
    Object.values(routes).flatMap((route) =>
      route.action === 'forward' ? route.pool.endpoints.map(({ ip }) => ip) : [],
    ),
  );
  return new Set(used.filter((ip) => hairpinAddresses.has(ip)));
}

/** Counts the lookups of a pod's first packet: source ranges, the maps of frontends, affinity, and the draws of an endpoint. */
export function nftablesLookups(frontend: Frontend, { node }: Pick<RenderInput, 'node'>): Lookups {
  const { hasPods } = createLayout(frontend.family, node);
  const entries = entriesOf(frontend, hasPods);
  const own = entries.find(({ sources }) => sources === (hasPods ? 'pod' : 'external'));
  const entry = own ?? entries.find(({ sources }) => sources === 'any');
  // The set of frontends with source ranges; then the map of exceptions for the class, and the general one.
  const found = 1 + (own ? 1 : 2);
  if (!entry?.pick) return { least: found, most: found, text: `${found} lookups, the last of which ends it` };
  const { size, sticky } = entry.pick;
  // A returning client's endpoint is found by its affinity, and any other's by a draw.
  const least = found + 1;
  const most = found + (sticky ? 1 : 0) + (classBefore(size) === size - 1 ? 1 : MAX_DRAWS);
  return {
    least,
    most,
    text: `${range(least, most)} map lookups, regardless of the number of Services and endpoints`,
  };
}

/** Returns "3", "3 to 6". */
export const range = (least: number, most: number): string =>
  least === most ? `${most}` : `${least} to ${most}`;
