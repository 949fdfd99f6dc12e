import { addressBytes, type Cidr, cidrContains, parseCidr } from '../lib/address.ts';

/**
 * Networks that no name may allow, whatever its zone answers: this host, private to a link (cloud metadata is at 169.254.169.254),
 * groups, and IPv4 in IPv6, which clients reach as IPv4.
 */
const NEVER: readonly Cidr[] = [
  '0.0.0.0/8',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '224.0.0.0/4',
  '240.0.0.0/4',
  '::/96',
  '::ffff:0:0/96',
  'fe80::/10',
  'ff00::/8',
  // The metadata service of AWS, and its DNS and time servers.
  'fd00:ec2::/32',
].flatMap((text) => parseCidr(text) ?? []);

export interface InsideOptions {
  /** The networks of pods and Services. */
  readonly networks: () => readonly Cidr[];
  /** Reports whether an address (canonical) is that of a pod or a node. */
  readonly isMember: (address: string) => boolean;
}

/** Returns what reports whether an address belongs to the cluster, or to no host outside. */
export const insideCheck =
  ({ networks, isMember }: InsideOptions) =>
  (address: string): boolean => {
    const bytes = addressBytes(address);
    if (!bytes) return true;
    return (
      NEVER.some((cidr) => cidrContains(cidr, bytes)) ||
      networks().some((cidr) => cidrContains(cidr, bytes)) ||
      isMember(address)
    );
  };
