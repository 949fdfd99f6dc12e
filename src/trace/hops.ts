import type { Packet } from '../kernel/packet.ts';
import { hostPort } from '../lib/address.ts';
import type { FlowSighting, PacketKind, Way } from './flow.ts';

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
  /** The kernel objects behind it, in the words of explain; empty: unknown. */
  readonly by: readonly string[];
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
  /** When it was sent again the same way, in microseconds since the first sighting of the flow. */
  readonly repeatsUs: readonly number[];
}

/** The kinds of packets that are shown. The rest of a connection repeats their hops. */
const SHOWN: ReadonlySet<PacketKind> = new Set(['SYN', 'SYN-ACK', 'RST', 'datagram', 'answer', 'error']);

/** A kernel object that translates packets, in the words of explain. */
export interface Translator {
  readonly object: string;
  /** The only address and port that it translates to ("10.244.1.2:80"); null: several, or it is not known. */
  readonly to: string | null;
}

/** What translates each address of a packet. */
export interface Translators {
  readonly destination: readonly Translator[];
  readonly source: readonly Translator[];
}

export interface LegOptions {
  /** The first sighting of the flow. */
  readonly startNs: bigint;
  /** The destination that the client asked for, which may have been translated before the first device; null: unknown. */
  readonly asked: End | null;
  readonly translators: Translators;
  readonly isRelayed: boolean;
  /**
   * Until when all packets were followed to their ends, in microseconds since the first sighting of the flow. A packet that was
   * sent again later may have been seen on a part of its way only, and is left out.
   */
  readonly untilUs: number;
}

/** Groups the sightings of a connection, in order of time, by packet. A packet that is sent again another way is another leg. */
export function legsOf(sightings: readonly FlowSighting[], options: LegOptions): Leg[] {
  const legs: (Leg & { readonly repeatsUs: number[] })[] = [];
  for (const packet of packetsOf(sightings)) {
    const leg = legOf(packet, options);
    if (!leg) continue;
    const alike = legs.filter(({ kind }) => kind === leg.kind);
    const same = alike.find((one) => wayText(one) === wayText(leg));
    const sinceUs = leg.hops[0]?.sinceUs ?? 0;
    if (alike.length > 0 && sinceUs > options.untilUs) continue;
    if (same) same.repeatsUs.push(sinceUs);
    else legs.push({ ...leg, repeatsUs: [] });
  }
  return legs;
}

/**
 * Groups sightings by packet, in the order of their first ones. A device passes a packet once in each direction: what it
 * passes again was sent again, and what follows belongs to the latest packet that was not seen there yet.
 */
function packetsOf(sightings: readonly FlowSighting[]): FlowSighting[][] {
  const isShown = ({ kind, way }: FlowSighting) => SHOWN.has(kind) && (way === 'back' || kind !== 'RST');
  const shown = sightings.filter(isShown);
  const first = shown[0] && placeText(shown[0]);
  const alike = new Map<string, SeenPacket[]>();
  const packets: FlowSighting[][] = [];
  let round = 0;
  for (const one of shown) {
    const text = placeText(one);
    if (one.way === 'there' && text === first) round++;
    const key = `${one.kind} ${packetText(one, round)}`;
    const open = alike.get(key) ?? [];
    alike.set(key, open);
    const packet = open.findLast(({ places }) => !places.has(text));
    if (packet) {
      packet.places.add(text);
      packet.sightings.push(one);
      continue;
    }
    const begun = { places: new Set([text]), sightings: [one] };
    open.push(begun);
    packets.push(begun.sightings);
  }
  return packets;
}

/** A packet and where it has been seen. */
interface SeenPacket {
  readonly places: Set<string>;
  readonly sightings: FlowSighting[];
}

/**
 * What distinguishes a packet from others of its kind: the timestamp of a segment, or of the one that an error is about; if
 * there is none, how often the request was sent before (`round`).
 */
function packetText({ packet: { tcp, icmp } }: FlowSighting, round: number): string {
  const segment = tcp ?? icmp?.about?.tcp;
  return `${segment?.sequence} ${segment?.acknowledgment} ${segment?.timestamp ?? `round ${round}`}`;
}

const placeText = ({ place, device, direction }: FlowSighting) => `${place.name} ${device.name} ${direction}`;
const wayText = ({ hops }: Leg) =>
  JSON.stringify(
    hops.map(({ place, device, direction, source, destination }) => [
      ...[place, device, direction, source, destination],
    ]),
  );

function legOf(
  sightings: readonly FlowSighting[],
  { startNs, asked, translators, isRelayed }: LegOptions,
): Leg | null {
  const [head] = sightings;
  if (!head) return null;
  const { way, kind } = head;
  // On the way back connection tracking, or the program that translated, restores the addresses.
  const by = way === 'there' ? translators : { source: [], destination: [] };
  let source: End | null = null;
  let destination: End | null = way === 'there' ? asked : null;
  const hops = sightings.map((one): Hop => {
    const hop = hopOf(one, Number(one.timeNs - startNs) / 1000);
    const changes = [
      ...changeOf('source', source, hop.source, by.source),
      ...changeOf('destination', destination, hop.destination, by.destination),
    ];
    source = hop.source;
    destination = hop.destination;
    return { ...hop, changes };
  });
  return { way, kind, error: errorText(head), isRelayed, hops, repeatsUs: [] };
}

function hopOf({ place, device, direction, packet }: FlowSighting, sinceUs: number): Omit<Hop, 'changes'> {
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
  translators: readonly Translator[],
): Change[] {
  if (before === null || (before.ip === after.ip && before.port === after.port)) return [];
  const text = endText(after);
  const by = translators.flatMap(({ object, to }) => (to === null || to === text ? object : []));
  return [{ field, before: endText(before), after: text, by }];
}

/** "10.244.1.2:80", "[fd00::1]:80"; the bare address if there is no port. */
export function endText(end: End): string {
  return end.port === 0 ? end.ip : hostPort(end);
}
