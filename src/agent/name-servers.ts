import { createHash } from 'node:crypto';
import type { Node } from '../kube/types.ts';
import { addressAt, familyOf, parseCidr } from '../lib/address.ts';

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
  const isReady = (node: Node) =>
    node.status?.conditions?.find(({ type }) => type === 'Ready')?.status === 'True';
  const rank = (name: string) => createHash('sha256').update(`${here}\0${name}`).digest('hex');
  return [...nodes]
    .filter((node) => node.metadata?.name !== here && isReady(node))
    .flatMap((node) => {
      const address = podGateways(node).find((one) => familyOf(one) === familyOf(first));
      return address === undefined ? [] : [{ address, rank: rank(node.metadata?.name ?? '') }];
    })
    .sort((a, b) => (a.rank < b.rank ? -1 : 1))
    .slice(0, MAX_SERVERS)
    .map(({ address }) => address);
}
