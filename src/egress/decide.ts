import { type Cidr, cidrContains, familyOf, parseCidr } from '../lib/address.ts';
import type { EgressDecision, EgressPacket, EgressView, SelectingGateway } from './model.ts';

/** Networks whose packets never leave a link, or the host: no gateway may include them. */
export const NEVER_OUTSIDE: readonly Cidr[] = [
  '0.0.0.0/8',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '224.0.0.0/3',
  '::/127',
  'fe80::/10',
  'ff00::/8',
].flatMap((text) => parseCidr(text) ?? []);

/**
 * Decides about a packet that opens a connection of a pod, or belongs to one. It comes behind policies, which see the pod's own
 * address, and behind Services, whose endpoints may be outside; and before everything that masquerades. A packet of a
 * connection that was opened to the pod is none of these: it returns by the way that the connection came.
 */
export function decideEgress(view: EgressView, { source, destination }: EgressPacket): EgressDecision {
  const selecting = view.gateways.filter(({ sources }) => sources.has(source));
  if (selecting.length === 0) return { kind: 'stays', because: 'not selected' };
  if (contains(view.cluster, destination) || contains(NEVER_OUTSIDE, destination))
    return { kind: 'stays', because: 'in the cluster' };
  const gateway = selecting.find((one) => includes(one, destination));
  if (!gateway) return { kind: 'stays', because: 'other destination' };
  const address = gateway.sources.get(source) ?? null;
  const node = address === null ? undefined : view.holders.get(address);
  if (address === null || node === undefined) return { kind: 'waits', gateway: gateway.name, address };
  return { kind: 'leaves', gateway: gateway.name, node, address };
}

export const includes = (
  { destinations, except }: Pick<SelectingGateway, 'destinations' | 'except'>,
  destination: string,
): boolean =>
  (destinations === null || contains(destinations, destination)) && !contains(except, destination);

function contains(networks: readonly Cidr[], address: string): boolean {
  const family = familyOf(address);
  return networks.some((one) => one.family === family && cidrContains(one, address));
}
