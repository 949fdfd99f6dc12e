import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import { addressWords, be16Port, writeAddress } from '../../nft/encoding.ts';
import type { Frontend, PortRef } from '../../service/model.ts';

/**
 * The key of a map of frontends. `address`: destination, protocol and port, for Services' addresses.
 * `port`: protocol and port, for node ports.
 */
export type Keying = 'address' | 'port';
export const KEYINGS: readonly Keying[] = ['address', 'port'];

export const keyingOf = ({ address }: Pick<Frontend, 'address'>): Keying =>
  address === null ? 'port' : 'address';

/** Returns the key of a frontend's elements. Throws FairleadError EINVAL for an address of another family. */
export function frontendKey({
  address,
  family,
  port,
  protocol,
}: Pick<Frontend, 'address' | 'family' | 'port' | 'protocol'>): Uint32Array {
  const words = address === null ? 0 : addressWords(family);
  const key = new Uint32Array(words + 2);
  if (address !== null) writeAddress(address, family, key, 0);
  key[words] = PROTOCOL_NUMBER[protocol];
  key[words + 1] = be16Port(port);
  return key;
}

/** Returns an address and port in map encoding. */
export function addressAndPort(ip: string, port: number, family: Frontend['family']): Uint32Array {
  const width = addressWords(family);
  const words = new Uint32Array(width + 1);
  writeAddress(ip, family, words, 0);
  words[width] = be16Port(port);
  return words;
}

/** Returns "10.96.0.10 . tcp . 80", the key in the notation of `nft list`. */
export function frontendKeyText({ address, protocol, port }: Frontend): string {
  return `${address === null ? '' : `${address} . `}${protocol.toLowerCase()} . ${port}`;
}

/** Returns "namespace/name:port", the form in kube-proxy's comments and hashes. */
export const portName = ({ namespace, name, portName: port }: PortRef): string =>
  `${namespace}/${name}${port === '' ? '' : `:${port}`}`;

/** Returns the comment that `nft list` shows on a frontend's elements. */
export const commentOf = ({ owner }: Pick<Frontend, 'owner'>): string => portName(owner);
