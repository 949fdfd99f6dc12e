import { canonicalAddress } from '../lib/address.ts';

/** A URL of http or https as a client reads it. */
export interface RequestUrl {
  readonly text: string;
  readonly secure: boolean;
  /** The host in lower case, without brackets and a final dot. */
  readonly name: string;
  /** The host as canonical address; null: it is a name. */
  readonly address: string | null;
  readonly port: number;
  /** Value of the Host header: without the port that the scheme has anyway. */
  readonly host: string;
  /** Server name of the ClientHello: clients send none for an address, and no final dot. */
  readonly serverName: string | null;
  /** Path and query, as written: clients that normalise the path send another one. */
  readonly target: string;
}

/** Reads a URL; null: it is none of http or https. */
export function readRequestUrl(text: string): RequestUrl | null {
  const [, scheme, authority = '', rest = ''] = /^(https?):\/\/([^/?#]*)([^#]*)/is.exec(text.trim()) ?? [];
  if (scheme === undefined) return null;
  const [, host = '', digits] =
    /^(\[[^\]]*\]|[^:]+)(?::([0-9]{1,5}))?$/.exec(authority.replace(/^.*@/, '')) ?? [];
  if (host === '') return null;
  const secure = scheme.toLowerCase() === 'https';
  const standard = secure ? 443 : 80;
  const port = digits === undefined ? standard : Number(digits);
  if (port < 1 || port > 65535) return null;
  const name = host
    .toLowerCase()
    .replace(/^\[(.*)\]$/, '$1')
    .replace(/\.$/, '');
  const address = canonicalAddress(name);
  return {
    text,
    secure,
    name,
    address,
    port,
    host: port === standard ? host : `${host}:${port}`,
    serverName: !secure ? null : address === null ? name : '',
    target: rest.startsWith('/') ? rest : `/${rest}`,
  };
}
