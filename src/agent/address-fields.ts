import { parseUpstream } from '../dns/resolv-conf.ts';
import { familyOf, parseCidr } from '../lib/address.ts';
import { parseAddressRange } from '../lib/address-range.ts';
import { messageOf } from '../lib/errors.ts';

/** Returns the problem of a text as an address, or null. */
export function address(text: string): string | null {
  return familyOf(text) ? null : 'is not an IP address';
}

/** Returns the problem of a text as a network, or null. */
export function cidr(text: string): string | null {
  return parseCidr(text) ? null : 'is not a network such as 10.244.0.0/16';
}

/** Returns the problem of a text as addresses of a pool, or null. */
export function addressRange(text: string): string | null {
  return parseAddressRange(text)
    ? null
    : 'is not a network, a range such as 10.0.0.1-10.0.0.9, or an address';
}

/** Returns the problem of a text as an address and port to listen on ("0.0.0.0:10256", "[::]:10256"), or null. */
export function bindProblem(text: string): string | null {
  const match = /^(?:\[([^\]]+)\]|([^:]*)):([0-9]+)$/.exec(text);
  if (!match) return 'is not ADDRESS:PORT';
  if (familyOf(match[1] ?? match[2] ?? '') === null) return 'does not begin with an IP address';
  const port = Number(match[3]);
  return port >= 1 && port <= 65_535 ? null : 'does not end with a port from 1 to 65535';
}

/** Returns the problem of an entry of nodePortAddresses, or null. */
export function nodePortAddress(text: string): string | null {
  return ['primary', 'localhost', 'all'].includes(text) || parseCidr(text)
    ? null
    : 'is not a network or one of primary, localhost, all';
}

/** Returns the problem of a text as the address of a name server ("10.0.0.1", "[fd00::1]:5353"), or null. */
export function nameServer(text: string): string | null {
  try {
    parseUpstream(text);
    return null;
  } catch (error) {
    return messageOf(error);
  }
}

/** Returns the problem of a text as the address of an API server, or null. */
export function serverUrl(text: string): string | null {
  const url = URL.parse(text);
  return url?.protocol === 'https:' && url.search === '' && url.hash === '' && url.username === ''
    ? null
    : 'is not https://HOST:PORT';
}

/** Returns the problem of a text as a domain name, or null. */
export function domain(text: string): string | null {
  const labels = text.replace(/\.$/, '').split('.');
  return text.length <= 254 && labels.every((label) => /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/i.test(label))
    ? null
    : 'is not a domain name';
}

/** Returns the problem of a text as the name of a Service, or null. */
export function serviceName(text: string): string | null {
  return /^[a-z0-9]([a-z0-9-]*[a-z0-9])?\/[a-z0-9]([a-z0-9-]*[a-z0-9])?$/.test(text)
    ? null
    : 'is not NAMESPACE/NAME of a Service';
}
