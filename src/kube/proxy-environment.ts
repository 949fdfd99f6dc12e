import { canonicalAddress, cidrContains, LOOPBACK, parseCidr } from '../lib/address.ts';

/** The environment's proxies, for connections without one of their own (`proxy-url`), as client-go uses them. */
export interface ProxyVariables {
  /** HTTPS_PROXY: for servers with TLS. */
  readonly https: string;
  /** HTTP_PROXY: for servers without. */
  readonly http: string;
  /** NO_PROXY: "10.0.0.0/8,.internal,host:6443". */
  readonly none: string;
}

/** Names of the variables; programs look for the first, then for the same in lower case. */
export const PROXY_VARIABLES = ['HTTPS_PROXY', 'HTTP_PROXY', 'NO_PROXY'] as const;

/** Reads the variables; null: no proxy is named. */
export function readProxyVariables(env: NodeJS.ProcessEnv): ProxyVariables | null {
  const [https, http, none] = PROXY_VARIABLES.map((name) => env[name] || env[name.toLowerCase()] || '');
  if (!https && !http) return null;
  return { https: https ?? '', http: http ?? '', none: none ?? '' };
}

/** Returns the URL of the proxy for a server; null: it is connected to directly. */
export function environmentProxy(variables: ProxyVariables, server: URL): string | null {
  const proxy = server.protocol === 'https:' ? variables.https : variables.http;
  if (proxy === '' || isExempt(server, variables.none)) return null;
  // "proxy.example:3128" is a URL with the scheme "proxy.example:".
  return /^[a-z][a-z0-9+.-]*:\/\//i.test(proxy) ? proxy : `http://${proxy}`;
}

/** Returns whether connections to a server pass no proxy: one on loopback, or that NO_PROXY names. */
function isExempt({ hostname, port, protocol }: URL, none: string): boolean {
  const host = hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '');
  const address = canonicalAddress(host);
  if (host === 'localhost' || (address !== null && isLoopback(address))) return true;
  const used = port || (protocol === 'https:' ? '443' : '80');
  return none
    .toLowerCase()
    .split(',')
    .map((entry) => entry.trim())
    .some((entry) => entry !== '' && matches(entry, host, address, used));
}

const isLoopback = (address: string): boolean =>
  cidrContains(LOOPBACK[address.includes(':') ? 'ipv6' : 'ipv4'], address);

/** Returns whether an entry of NO_PROXY names this host. */
function matches(entry: string, host: string, address: string | null, port: string): boolean {
  if (entry === '*') return true;
  const network = parseCidr(entry);
  if (network !== null) return address !== null && cidrContains(network, address);
  const { name, only } = splitPort(entry);
  if (only !== null && only !== port) return false;
  const named = canonicalAddress(name);
  if (named !== null) return named === address;
  const domain = name.replace(/^\*/, '');
  // ".example" and "*.example" are the domains below it, "example" is also the host itself.
  if (domain.startsWith('.')) return host.endsWith(domain);
  return host === domain || host.endsWith(`.${domain}`);
}

/** Splits "host:6443" and "[fd00::1]:6443"; an IPv6 address may be without brackets if there is no port. */
function splitPort(entry: string): { readonly name: string; readonly only: string | null } {
  const bracketed = /^\[([^\]]*)\](?::(\d+))?$/.exec(entry);
  if (bracketed) return { name: bracketed[1] ?? '', only: bracketed[2] ?? null };
  const plain = /^([^:]*):(\d+)$/.exec(entry);
  return plain ? { name: plain[1] ?? '', only: plain[2] ?? null } : { name: entry, only: null };
}
