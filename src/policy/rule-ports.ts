import { PROTOCOL_NUMBER } from '../kernel/protocol-numbers.ts';
import { be16Port } from '../nft/encoding.ts';
import { type Elements, elements } from '../nft/spec.ts';
import type { AddressBlock, PolicyPeer, PolicyPort } from './model.ts';

export const blocksOf = (peers: readonly PolicyPeer[] | null): AddressBlock[] =>
  (peers ?? []).flatMap((peer) => (peer.kind === 'block' ? [peer.block] : []));

export const ranges = (ports: readonly PolicyPort[]) => ports.filter((port) => port.kind === 'range');

/** A single port is compared; several need a set. */
export function needsRangeSet(ports: readonly PolicyPort[]): boolean {
  const [first, second] = ranges(ports);
  return second !== undefined || (first !== undefined && first.first !== first.last);
}

export const portBytes = (port: number): Uint8Array => Uint8Array.of(port >> 8, port & 0xff);

/** Returns the merged ranges of each protocol: intervals of a set must not overlap. */
export function portElements(set: string, ports: readonly PolicyPort[]): Elements {
  const merged: { protocol: number; first: number; last: number }[] = [];
  const sorted = ranges(ports)
    .map(({ protocol, first, last }) => ({ protocol: PROTOCOL_NUMBER[protocol], first, last }))
    .sort((a, b) => a.protocol - b.protocol || a.first - b.first);
  for (const range of sorted) {
    const previous = merged.at(-1);
    if (previous?.protocol === range.protocol && range.first <= previous.last + 1)
      previous.last = Math.max(previous.last, range.last);
    else merged.push({ ...range });
  }
  const words = merged.flatMap(({ protocol, first, last }) => [
    protocol,
    be16Port(first),
    protocol,
    be16Port(last),
  ]);
  return elements(set, Uint32Array.from(words), { count: merged.length });
}
