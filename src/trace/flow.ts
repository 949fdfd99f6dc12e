import { type Packet, TCP_FLAG } from './packet.ts';
import type { Sighting } from './sighting.ts';

/** What identifies the packets of a traced flow wherever they are seen: fields that no translation changes. */
export type FlowKey =
  /** The sequence number of the SYN, chosen by the trace. */
  | { readonly protocol: 'TCP'; readonly sequence: number }
  /** Bytes at the start of the datagram's payload, chosen by the trace, or anywhere in it. */
  | { readonly protocol: 'UDP'; readonly nonce: Uint8Array };

/** How many bytes after its SYN a traced connection sends at most. */
export const SEQUENCE_WINDOW = 2048;

export type Way = 'there' | 'back';
/** `answer`: a datagram back; `error`: an ICMP error. */
export type PacketKind = 'SYN' | 'SYN-ACK' | 'RST' | 'segment' | 'datagram' | 'answer' | 'error';

/** A sighting of a packet of the flow. */
export interface FlowSighting extends Sighting {
  readonly way: Way;
  readonly kind: PacketKind;
}

/** Selects the sightings of one flow. `sightings`: in order of time. */
export function sightingsOf(sightings: readonly Sighting[], key: FlowKey): FlowSighting[] {
  return key.protocol === 'TCP' ? ofConnection(sightings, key.sequence) : ofDatagrams(sightings, key.nonce);
}

function ofConnection(sightings: readonly Sighting[], sequence: number): FlowSighting[] {
  const isNear = (value: number) => (value - sequence) >>> 0 < SEQUENCE_WINDOW;
  return sightings.flatMap((one): FlowSighting[] => {
    const { tcp, icmp } = one.packet;
    if (icmp) {
      const about = icmp.about?.tcp;
      return about && isNear(about.sequence) ? [{ ...one, way: 'back', kind: 'error' }] : [];
    }
    if (!tcp) return [];
    if (isNear(tcp.sequence) && !isAnswerTo(tcp, isNear))
      return [{ ...one, way: 'there', kind: kindOf(tcp.flags) }];
    return isAnswerTo(tcp, isNear) ? [{ ...one, way: 'back', kind: kindOf(tcp.flags) }] : [];
  });
}

/** A reset of a closed port has the sequence number 0 (RFC 9293, section 3.5.2), which may be near too. */
function isAnswerTo({ flags, acknowledgment }: { flags: number; acknowledgment: number }, isNear: Near) {
  return (flags & TCP_FLAG.ack) !== 0 && isNear(acknowledgment);
}

type Near = (value: number) => boolean;

function kindOf(flags: number): PacketKind {
  if (flags & TCP_FLAG.rst) return 'RST';
  if (flags & TCP_FLAG.syn) return flags & TCP_FLAG.ack ? 'SYN-ACK' : 'SYN';
  return 'segment';
}

/**
 * The first sighting goes there. From then on a datagram goes back if it has the reversed addresses of one that went there,
 * and there if it has the nonce: a proxy sends it on from an address of its own.
 */
function ofDatagrams(sightings: readonly Sighting[], nonce: Uint8Array): FlowSighting[] {
  const there = new Set<string>();
  return sightings.flatMap((one): FlowSighting[] => {
    const { packet } = one;
    const about = packet.icmp?.about;
    if (about) {
      const isOurs = there.has(tuple(about)) || there.has(reversed(about));
      return isOurs ? [{ ...one, way: 'back', kind: 'error' }] : [];
    }
    if (!packet.ports || packet.tcp) return [];
    if (there.has(reversed(packet)) && !there.has(tuple(packet)))
      return [{ ...one, way: 'back', kind: 'answer' }];
    if (!contains(packet.payload, nonce)) return [];
    there.add(tuple(packet));
    return [{ ...one, way: 'there', kind: 'datagram' }];
  });
}

/**
 * Finds the connections that a proxy opened for a traced one: from its node to one of the endpoints, after the client's
 * connection was accepted there (`after`) and before it was reset (`until`). Returns their first sequence numbers: the first
 * one, and one to another endpoint after each refusal.
 */
export function relayedConnections(
  sightings: readonly Sighting[],
  node: string,
  endpoints: ReadonlySet<string>,
  { after, until }: { readonly after: bigint; readonly until: bigint | null },
): number[] {
  const found: number[] = [];
  const tried = new Set<string>();
  for (const { place, packet, timeNs } of sightings) {
    const { tcp, ports } = packet;
    if (!tcp || !ports || place.name !== node || kindOf(tcp.flags) !== 'SYN') continue;
    if (timeNs < after || (until !== null && timeNs > until)) continue;
    const endpoint = `${packet.destination} ${ports.destination}`;
    if (!endpoints.has(endpoint) || tried.has(endpoint)) continue;
    const last = found.at(-1);
    if (last !== undefined && !wasRefused(sightings, last, timeNs)) continue;
    found.push(tcp.sequence);
    tried.add(endpoint);
  }
  return found;
}

function wasRefused(sightings: readonly Sighting[], sequence: number, before: bigint): boolean {
  return ofConnection(sightings, sequence).some(
    ({ kind, way, timeNs }) => way === 'back' && kind !== 'SYN-ACK' && kind !== 'segment' && timeNs <= before,
  );
}

const tuple = ({ source, destination, ports }: Packet) =>
  `${source} ${ports?.source} ${destination} ${ports?.destination}`;
const reversed = ({ source, destination, ports }: Packet) =>
  `${destination} ${ports?.destination} ${source} ${ports?.source}`;

function contains(bytes: Uint8Array, part: Uint8Array): boolean {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).includes(Buffer.from(part));
}
