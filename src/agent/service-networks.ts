import type { ServiceCidr } from '../kube/types.ts';
import { type Cidr, parseCidr } from '../lib/address.ts';

/**
 * Returns the networks of cluster IPs in the ServiceCIDR objects; null: no such object. An object that is being deleted
 * still counts: the API server keeps it until none of its addresses is used (KEP-1880).
 */
export function serviceNetworks(objects: readonly ServiceCidr[]): Cidr[] | null {
  const texts = new Set(objects.flatMap(({ spec }) => spec?.cidrs ?? []));
  const networks = [...texts].sort().flatMap((text) => parseCidr(text) ?? []);
  return networks.length > 0 ? networks : null;
}
