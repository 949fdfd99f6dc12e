import { hostPort } from '../lib/address.ts';
import type { FlowSighting, PacketKind, Way } from './flow.ts';
import type { Packet } from './packet.ts';

/** One end of a packet. */
export interface End {
  readonly ip: string;
  readonly port: number;
}

/** A field that was translated between two hops. */
export interface Change {
  readonly field: 'source' | 'destination';
  /** "10.96.0.10:80" */
  readonly before: string;
  readonly after: string;
  /** The kernel object behind it, in the words of explain; null: unknown. */
  readonly by: readonly string[] | null;
}

/** A device that passed a packet. */
export interface Hop {
  /** Microseconds since the first sighting of the flow. */
  readonly sinceUs: number;
  /** "pod default/client", "node-1", "outside". */
  readonly place: string;
  readonly device: string;
  /** The device in words. */
  readonly deviceText: string;
  readonly direction: 'in' | 'out';
  readonly source: End;
  readonly destination: End;
  /** The outer addresses inside VXLAN; null: not in a tunnel. */
  readonly tunnel: { readonly source: string; readonly destination: string } | null;
  readonly changes: readonly Change[];
  /** Later sightings of the same packet here, in microseconds since the first sighting: it was sent again. */
  readonly repeatsUs: readonly number[];
}

/** The hops of one packet of the flow. */
export interface Leg {
  readonly way: Way;
  readonly kind: PacketKind;
  /** An ICMP error in words; null: another kind. */
  readonly error: string | null;
  /** It belongs to a connection that a proxy opened for the client's. */
  readonly isRelayed: boolean;
  readonly hops: readonly Hop[];
}

/** The kinds of packets that are shown. The rest of a connection repeats their hops. */
const SHOWN: ReadonlySet<PacketKind> = new Set(['SYN', 'SYN-ACK', 'RST', 'datagram', 'answer', 'error']);

/** What translated a packet, in the words of explain. */
export interface Translators {
  readonly destination: readonly string[] | null;
  readonly source: readonly string[] | null;
}

/**
 * Groups the sightings of a connection, in order of time, by packet. `startNs`: the first sighting of the flow. `asked`: the
 * destination that the client asked for, which may have been translated before the first device.
 */
export function legsOf(
  sightings: readonly FlowSighting[],
  options: {
    readonly startNs: bigint;
    readonly asked: End | null;
    readonly translators: Translators;
    readonly isRelayed: boolean;
  },
): Leg[] {
  const legs = new Map<PacketKind, { way: Way; error: string | null; hops: Map<string, MutableHop> }>();
  for (const one of sightings) {
    if (!SHOWN.has(one.kind) || (one.way === 'there' && one.kind === 'RST')) continue;
    const leg = legs.get(one.kind) ?? { way: one.way, error: errorText(one), hops: new Map() };
    legs.set(one.kind, leg);
    const sinceUs = Number(one.timeNs - options.startNs) / 1000;
    const hop = hopOf(one, sinceUs);
    const key = JSON.stringify([hop.place, hop.device, hop.direction, hop.source, hop.destination]);
    const known = leg.hops.get(key);
    if (known) known.repeatsUs.push(sinceUs);
    else leg.hops.set(key, hop);
  }
  return [...legs].map(([kind, { way, error, hops }]): Leg => {
    let source: End | null = null;
    let destination: End | null = way === 'there' ? options.asked : null;
    const changed = [...hops.values()].map((hop): Hop => {
      const by = way === 'there' ? options.translators : UNDONE;
      const changes = [
        ...changeOf('source', source, hop.source, by.source),
        ...changeOf('destination', destination, hop.destination, by.destination),
      ];
      source = hop.source;
      destination = hop.destination;
      return { ...hop, changes };
    });
    return { way, kind, error, isRelayed: options.isRelayed, hops: changed };
  });
}

/** On the way back connection tracking, or the program that translated, restores the addresses. */
const UNDONE: Translators = { source: null, destination: null };

type MutableHop = Omit<Hop, 'repeatsUs' | 'changes'> & { readonly repeatsUs: number[] };

function hopOf({ place, device, direction, packet }: FlowSighting, sinceUs: number): MutableHop {
  const { source, destination } = endsOf(packet);
  return {
    sinceUs,
    place: place.name,
    device: device.name,
    deviceText: device.text,
    direction,
    source,
    destination,
    tunnel: packet.tunnel,
    repeatsUs: [],
  };
}

/** The ends of a packet; an ICMP error has no ports of its own. */
function endsOf({ source, destination, ports }: Packet): { source: End; destination: End } {
  return {
    source: { ip: source, port: ports?.source ?? 0 },
    destination: { ip: destination, port: ports?.destination ?? 0 },
  };
}

function errorText({ packet }: FlowSighting): string | null {
  return packet.icmp ? `ICMP ${packet.icmp.text}` : null;
}

function changeOf(
  field: Change['field'],
  before: End | null,
  after: End,
  by: readonly string[] | null,
): Change[] {
  if (before === null || (before.ip === after.ip && before.port === after.port)) return [];
  return [{ field, before: endText(before), after: endText(after), by }];
}

/** "10.244.1.2:80", "[fd00::1]:80"; the bare address if there is no port. */
export function endText(end: End): string {
  return end.port === 0 ? end.ip : hostPort(end);
}
