import { addressBytes, type Cidr, cidrContains, formatAddress, parseCidr } from '../lib/address.ts';

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
  // The metadata service of AWS, and its DNS and time servers; those of Google Cloud, Alibaba Cloud and Azure.
  'fd00:ec2::/32',
  'fd20:ce::254/128',
  '100.100.100.200/32',
  '168.63.129.16/32',
].flatMap((text) => parseCidr(text) ?? []);

/** Networks of IPv6 that a router translates to IPv4, or unpacks (NAT64, 6to4), with the first byte of the IPv4 address. */
const TRANSLATED: readonly { readonly network: Cidr; readonly at: number }[] = (
  [
    ['64:ff9b::/96', 12],
    ['64:ff9b:1::/48', 12],
    ['2002::/16', 2],
  ] as const
).flatMap(([text, at]) => {
  const network = parseCidr(text);
  return network ? [{ network, at }] : [];
});

export interface InsideOptions {
  /** The networks of pods and Services. */
  readonly networks: () => readonly Cidr[];
  /** Reports whether an address (canonical) is that of a pod or a node. */
  readonly isMember: (address: string) => boolean;
}

/** Returns what reports whether an address belongs to the cluster, or to no host outside; one that is translated: where that leads. */
export function insideCheck({ networks, isMember }: InsideOptions): (address: string) => boolean {
  const isInside = (address: string): boolean => {
    const bytes = addressBytes(address);
    if (!bytes) return true;
    const translated = TRANSLATED.find(({ network }) => cidrContains(network, bytes));
    if (translated && isInside(formatAddress(bytes.subarray(translated.at, translated.at + 4)))) return true;
    return (
      NEVER.some((cidr) => cidrContains(cidr, bytes)) ||
      networks().some((cidr) => cidrContains(cidr, bytes)) ||
      isMember(address)
    );
  };
  return isInside;
}
