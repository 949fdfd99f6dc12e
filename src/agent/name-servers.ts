import { createHash } from 'node:crypto';
import type { Node } from '../kube/types.ts';
import { addressAt, familyOf, parseCidr } from '../lib/address.ts';
import type { OtherNameServer } from '../network/dns-fallback.ts';

/** Together with the node's own server they fill resolv.conf (resolv.conf(5), MAXNS). */
const MAX_SERVERS = 2;

/** Returns the first addresses of a node's pod networks, the addresses of the pods' gateway. */
export function podGateways(node: Node): string[] {
  return (node.spec?.podCIDRs ?? []).flatMap((text) => {
    const cidr = parseCidr(text);
    return cidr ? [addressAt(cidr, 1)] : [];
  });
}

/**
 * Returns two other nodes' name servers, in the node's primary family, which its pods use while its agent is down.
 * The choice differs from node to node, to spread the load.
 */
export function fallbackNameServers(own: readonly string[], here: string, nodes: Iterable<Node>): string[] {
  const [first] = own;
  if (first === undefined) return [];
  return rankedNodes(here, nodes)
    .flatMap((node) => podGateways(node).find((one) => familyOf(one) === familyOf(first)) ?? [])
    .slice(0, MAX_SERVERS);
}

/** Returns the name servers of up to `count` other nodes, of all families, the same nodes as `fallbackNameServers` first. */
export function otherNameServers(here: string, nodes: Iterable<Node>, count: number): string[] {
  return rankedNodes(here, nodes).map(podGateways).slice(0, count).flat();
}

/** Returns the name server of the next node by name, of all families: following it from node to node reaches all nodes. */
export function nextNameServer(here: string, nodes: Iterable<Node>): string[] {
  const nameOf = (node: Node) => node.metadata?.name ?? '';
  let first: Node | null = null;
  let next: Node | null = null;
  for (const node of preferReady([...nodes].filter((one) => isOther(here, one)))) {
    if (first === null || nameOf(node) < nameOf(first)) first = node;
    if (nameOf(node) > here && (next === null || nameOf(node) < nameOf(next))) next = node;
  }
  const found = next ?? first;
  return found ? podGateways(found) : [];
}

const isOther = (here: string, node: Node) => node.metadata?.name !== here && podGateways(node).length > 0;

const isReady = (node: Node) =>
  node.status?.conditions?.find(({ type }) => type === 'Ready')?.status === 'True';

/** Returns the ready nodes; if no node is ready, all, since an attempt loses nothing. */
function preferReady(nodes: readonly Node[]): readonly Node[] {
  const ready = nodes.filter(isReady);
  return ready.length > 0 ? ready : nodes;
}

/** Returns the other nodes that are ready (if there is none, all others), in an order that differs from node to node. */
const rankedNodes = (here: string, nodes: Iterable<Node>): Node[] =>
  ranked(
    here,
    preferReady([...nodes].filter((node) => isOther(here, node))),
    ({ metadata }) => metadata?.name ?? '',
  );

/** Returns up to `count` of the name servers in pods; which ones differs from node to node. */
export const chosenNameServers = (
  here: string,
  servers: readonly OtherNameServer[],
  count: number,
): OtherNameServer[] => ranked(here, servers, ({ address }) => address).slice(0, count);

function ranked<T>(here: string, all: readonly T[], nameOf: (one: T) => string): T[] {
  const rank = (name: string) => createHash('sha256').update(`${here}\0${name}`).digest('hex');
  return all
    .map((one) => ({ one, rank: rank(nameOf(one)) }))
    .sort((a, b) => (a.rank < b.rank ? -1 : 1))
    .map(({ one }) => one);
}
