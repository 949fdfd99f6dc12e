import type { Leg } from './hops.ts';

const PACKETS: Readonly<Record<Leg['kind'], string>> = {
  SYN: 'SYN',
  'SYN-ACK': 'SYN-ACK',
  RST: 'reset (RST)',
  segment: 'data',
  datagram: 'datagram',
  answer: 'answer',
  error: 'error',
};

/**
 * Returns the contents and the receiver of a leg: "SYN to the server". Through a proxy the client's connection ends there, and the proxy's
 * own connection leads on to the server. `names`: instead of the usual words for a kind of packet.
 */
export function legTitle(
  { kind, way, error, isRelayed }: Pick<Leg, 'kind' | 'way' | 'error' | 'isRelayed'>,
  isProxied: boolean,
  names: Partial<Record<Leg['kind'], string>> = {},
): string {
  const end = way === 'there' ? 'server' : 'client';
  const to = isProxied && isRelayed === (way === 'back') ? 'proxy' : end;
  return `${names[kind] ?? PACKETS[kind]} to the ${to}${error === null ? '' : `: ${error}`}`;
}
