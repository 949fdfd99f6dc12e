import { canonicalAddress } from '../lib/address.ts';

/** The settings of a resolv.conf that determine the queries (resolver(5)). */
export interface ResolverSettings {
  readonly servers: readonly string[];
  readonly search: readonly string[];
  readonly ndots: number;
}

/** Maximum number of name servers that glibc uses (MAXNS). */
const MAX_SERVERS = 3;

export function readResolverSettings(text: string): ResolverSettings {
  const servers: string[] = [];
  let search: readonly string[] = [];
  let ndots = 1;
  for (const line of text.split('\n')) {
    const [keyword, ...values] = line.trim().split(/\s+/);
    const [value = ''] = values;
    if (keyword === 'nameserver' && value !== '') servers.push(canonicalAddress(value) ?? value);
    else if (keyword === 'search' || keyword === 'domain') search = values;
    else if (keyword === 'options') {
      for (const option of values) ndots = Number(/^ndots:([0-9]+)$/.exec(option)?.[1] ?? ndots);
    }
  }
  return { servers: servers.slice(0, MAX_SERVERS), search, ndots };
}

/** Returns the full names to query, in order: the search path first if the name has fewer dots than `ndots`. */
export function namesToAsk(name: string, { search, ndots }: ResolverSettings): string[] {
  if (name.endsWith('.')) return [name.slice(0, -1)];
  const searched = search.filter((domain) => domain !== '.').map((domain) => `${name}.${domain}`);
  return name.split('.').length - 1 >= ndots ? [name, ...searched] : [...searched, name];
}

/** Returns the canonical addresses of a name in a hosts(5) file. */
export function addressesInHosts(text: string, name: string): string[] {
  const wanted = name.toLowerCase();
  return text.split('\n').flatMap((line) => {
    const [address = '', ...names] = (line.split('#')[0] ?? '').trim().split(/\s+/);
    return names.some((one) => one.toLowerCase() === wanted) ? (canonicalAddress(address) ?? []) : [];
  });
}
