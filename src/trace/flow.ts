import { type Packet, TCP_FLAG } from '../kernel/packet.ts';
import { hostPort, type SocketAddress } from '../lib/address.ts';
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

/** The role of a sighting in a flow. */
export type FlowPart = Pick<FlowSighting, 'way' | 'kind'>;

/** Selects the sightings of one flow. `sightings`: in order of time. */
export function sightingsOf(sightings: readonly Sighting[], key: FlowKey): FlowSighting[] {
  const partOf = createFlowSelector(key);
  return sightings.flatMap((one): FlowSighting[] => {
    const part = partOf(one);
    return part ? [{ ...one, ...part }] : [];
  });
}

/** Returns a function that tells the role of a sighting in a flow, null: none. It is called in order of time at each place. */
export function createFlowSelector(key: FlowKey): (sighting: Sighting) => FlowPart | null {
  return key.protocol === 'TCP' ? connectionSelector(key.sequence) : datagramSelector(key.nonce);
}

function connectionSelector(sequence: number): (sighting: Sighting) => FlowPart | null {
  const isNear = (value: number) => (value - sequence) >>> 0 < SEQUENCE_WINDOW;
  return ({ packet: { tcp, icmp } }) => {
    if (icmp) {
      const about = icmp.about?.tcp;
      return about && isNear(about.sequence) ? { way: 'back', kind: 'error' } : null;
    }
    if (!tcp) return null;
    const kind = kindOf(tcp.flags);
    if (isAnswerTo(tcp, isNear)) return { way: 'back', kind };
    return isNear(tcp.sequence) ? { way: 'there', kind } : null;
  };
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
 * The first sighting of a datagram goes there. From then on a datagram goes back if it has the reversed addresses of one that
 * went there, or is sent to the client; and there if it has the nonce: a proxy sends it on from an address of its own.
 */
function datagramSelector(nonce: Uint8Array): (sighting: Sighting) => FlowPart | null {
  const there = new Set<string>();
  /** The destination that the client has asked for may be translated before any device passes the datagram. */
  let client: string | null = null;
  return ({ packet }) => {
    const about = packet.icmp?.about;
    if (about) {
      // The first device that passes it may be loopback, on the way back. Some routers repeat the ports only.
      const isOurs = there.has(tuple(about)) || there.has(reversed(about)) || contains(about.payload, nonce);
      return isOurs ? { way: 'back', kind: 'error' } : null;
    }
    const { ports, source, destination } = packet;
    if (!ports || packet.tcp) return null;
    const isAnswer =
      there.has(reversed(packet)) || hostPort({ ip: destination, port: ports.destination }) === client;
    if (isAnswer && !there.has(tuple(packet))) return { way: 'back', kind: 'answer' };
    if (!contains(packet.payload, nonce)) return null;
    client ??= hostPort({ ip: source, port: ports.source });
    there.add(tuple(packet));
    return { way: 'there', kind: 'datagram' };
  };
}

/** Returns the first sequence number of the latest connection of a client; null: its SYN was not seen. */
export function firstSequence(sightings: readonly Sighting[], client: SocketAddress): number | null {
  const syn = sightings.findLast(
    ({ packet: { tcp, ports, source } }) =>
      tcp !== null && kindOf(tcp.flags) === 'SYN' && source === client.ip && ports?.source === client.port,
  );
  return syn?.packet.tcp?.sequence ?? null;
}

/** A connection that a proxy opened to an endpoint for a client, or that a network policy kept it from opening. */
export interface ProxyConnection {
  /** The client as the proxy sees it. */
  readonly client: SocketAddress;
  /** The proxy's own address and port; null: it opened none. */
  readonly proxy: SocketAddress | null;
  readonly endpoint: SocketAddress;
}

/** Selects the connections that the proxy of a node opened for a traced one. `own`: its sightings. */
export function connectionsFor(
  own: readonly FlowSighting[],
  node: string,
  connections: readonly ProxyConnection[],
): ProxyConnection[] {
  const clients = new Set(
    own
      .filter(({ way, place }) => way === 'there' && place.name === node)
      .flatMap(({ packet }) =>
        packet.ports ? hostPort({ ip: packet.source, port: packet.ports.source }) : [],
      ),
  );
  return connections.filter(({ client }) => clients.has(hostPort(client)));
}

/**
 * Returns the first sequence numbers of connections of the proxy of a node, in order of time. A connection of a pod to the same
 * endpoint may have the same port: the address tells them apart. Only where no packet has the proxy's address, because it was
 * translated, the port alone counts.
 */
export function sequencesOf(
  sightings: readonly Sighting[],
  node: string,
  connections: readonly ProxyConnection[],
): number[] {
  const syns = sightings.flatMap(({ place, packet }) => {
    // A SYN that no device of the node could pass is seen in the error about it only.
    const { tcp, ports, source, destination } = packet.icmp?.about ?? packet;
    if (!tcp || !ports || place.name !== node) return [];
    if (!packet.icmp && kindOf(tcp.flags) !== 'SYN') return [];
    const [from, to] = [
      { ip: source, port: ports.source },
      { ip: destination, port: ports.destination },
    ];
    return [{ from, to: hostPort(to), sequence: tcp.sequence }];
  });
  const found = new Set<number>();
  for (const { proxy, endpoint } of connections) {
    if (!proxy) continue;
    const tried = syns.filter(({ from, to }) => from.port === proxy.port && to === hostPort(endpoint));
    const exact = tried.filter(({ from }) => hostPort(from) === hostPort(proxy));
    for (const { sequence } of exact.length > 0 ? exact : tried) found.add(sequence);
  }
  return [...new Set(syns.map(({ sequence }) => sequence))].filter((sequence) => found.has(sequence));
}

const tuple = ({ source, destination, ports }: Packet) =>
  `${source} ${ports?.source} ${destination} ${ports?.destination}`;
const reversed = ({ source, destination, ports }: Packet) =>
  `${destination} ${ports?.destination} ${source} ${ports?.source}`;

function contains(bytes: Uint8Array, part: Uint8Array): boolean {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).includes(Buffer.from(part));
}
