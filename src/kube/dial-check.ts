import { lookup as resolveName } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import { addressBytes, type Cidr, cidrContains, LOOPBACK, parseCidr } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';

/** Decides whether this program may connect to an address that an object, or a server, names. */
export type MayDial = (address: string) => boolean;

/** Addresses at which the node itself, its link or its cloud answers: Go's IP.IsGlobalUnicast is false for all but the last row. */
const REFUSED: readonly Cidr[] = [
  ...['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '255.255.255.255/32'],
  ...['::/128', '::1/128', 'fe80::/10', 'ff00::/8'],
  // Metadata services outside 169.254.0.0/16: AWS, Google Cloud (IPv6); Alibaba, Azure, Oracle.
  ...['fd00:ec2::254/128', 'fd20:ce::254/128', '100.100.100.200/32', '168.63.129.16/32', '192.0.0.192/32'],
].flatMap((text) => parseCidr(text) ?? []);

/** Where IPv6 addresses contain an IPv4 address: mapped, compatible, NAT64 (RFC 6052), 6to4 (RFC 3056). */
const EMBEDDED: readonly (readonly [network: Cidr | null, at: number])[] = [
  [parseCidr('::ffff:0:0/96'), 12],
  [parseCidr('::/96'), 12],
  [parseCidr('64:ff9b::/96'), 12],
  [parseCidr('2002::/16'), 2],
];

/**
 * Reports whether the API server may connect to the address of a pod, an endpoint or a node (as upstream's IsProxyableIP,
 * and no metadata service): a client that may write a status must not reach the loopback of a node or of the API server.
 * Registries of images are dialed by the same rule.
 */
export const isProxyable: MayDial = (address) => {
  const bytes = addressBytes(address);
  if (!bytes) return false;
  const isRefused = (one: Uint8Array) => REFUSED.some((cidr) => cidrContains(cidr, one));
  return (
    !isRefused(bytes) &&
    !EMBEDDED.some(
      ([network, at]) => network && cidrContains(network, bytes) && isRefused(bytes.subarray(at, at + 4)),
    )
  );
};

/** As `isProxyable`, and allows loopback: for a server whose name says that it is there. */
export const isProxyableOrLoopback: MayDial = (address) => isLoopback(address) || isProxyable(address);

function isLoopback(address: string): boolean {
  const bytes = addressBytes(address);
  return bytes !== null && cidrContains(LOOPBACK[bytes.length === 4 ? 'ipv4' : 'ipv6'], bytes);
}

const refusal = (host: string): FairleadError =>
  new FairleadError('address not allowed', { op: 'connect', code: 'EACCES', object: host });

/**
 * Returns the options of a connection to a host, which is an address or a name. A name is resolved once, and only an
 * address that has passed the check is dialed: a second answer of its DNS server has no effect. Throws FairleadError for an
 * address that is not allowed.
 */
export function checkedTarget(host: string, mayDial: MayDial): { host: string; lookup?: LookupFunction } {
  if (isIP(host) === 0) return { host, lookup: checkedLookup(mayDial) };
  if (!mayDial(host)) throw refusal(host);
  return { host };
}

const checkedLookup =
  (mayDial: MayDial): LookupFunction =>
  (name, options, callback) => {
    resolveName(name, { ...options, all: true }, (error, found) => {
      const allowed = (found ?? []).filter(({ address }) => mayDial(address));
      const [first] = allowed;
      if (error) callback(error, '');
      else if (!first) callback(refusal(name) as NodeJS.ErrnoException, '');
      else if (options.all) callback(null, allowed);
      else callback(null, first.address, first.family);
    });
  };
