import { canonicalAddress } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';

/** The address of a name server. `address` may have an IPv6 scope ("fe80::1%eth0"). */
export interface UpstreamAddress {
  readonly address: string;
  readonly port: number;
}

/** Returns the name servers of a resolv.conf (resolver(5)) except those in `exclude`: a server must not forward to itself. */
export function upstreamsFromResolvConf(text: string, exclude: readonly string[] = []): string[] {
  const own = new Set(exclude.map((address) => canonicalAddress(address) ?? address));
  const servers: string[] = [];
  for (const line of text.split('\n')) {
    const [keyword, value] = line.trim().split(/\s+/);
    if (keyword !== 'nameserver' || !value) continue;
    const [address = '', scope] = value.split('%');
    const canonical = canonicalAddress(address);
    if (canonical === null || own.has(canonical)) continue;
    const server = scope === undefined ? canonical : `${canonical}%${scope}`;
    if (!servers.includes(server)) servers.push(server);
  }
  return servers;
}

/** Reads "10.0.0.1", "10.0.0.1:5353", "fd00::1", "[fd00::1]:53". Throws FairleadError "bad-config" naming the text. */
export function parseUpstream(text: string): UpstreamAddress {
  const bracketed = /^\[(?<address>[^\]]+)\](?::(?<port>[0-9]{1,5}))?$/.exec(text)?.groups;
  const plain = /^(?<address>[0-9.]+)(?::(?<port>[0-9]{1,5}))?$/.exec(text)?.groups;
  const groups = bracketed ?? plain ?? { address: text };
  const [address = '', scope] = (groups['address'] ?? '').split('%');
  const canonical = canonicalAddress(address);
  const port = Number(groups['port'] ?? 53);
  if (canonical === null || port < 1 || port > 65535) {
    throw new FairleadError(`"${text}" is not the address of a name server`, {
      op: 'read DNS upstreams',
      code: 'bad-config',
      object: text,
      hint: 'use an address, or address and port: 10.0.0.1, 10.0.0.1:5353, [fd00::1]:53',
    });
  }
  return { address: scope === undefined ? canonical : `${canonical}%${scope}`, port };
}
