import { TCP_FLAG } from '../kernel/packet.ts';
import type { Segment } from '../kernel/tcp-segment.ts';
import { familyOf } from '../lib/address.ts';
import { hasCode } from '../lib/errors.ts';
import type { FlowSighting, Way } from './flow.ts';
import type { End } from './hops.ts';
import { inOrder, type Sighting } from './sighting.ts';

/** What passes of the largest packets that both ends of a connection send. */
export interface PacketSize {
  readonly way: Way;
  /** It belongs to a connection that a proxy opened for the client's. */
  readonly isRelayed: boolean;
  /** The size of the largest packets, with their IP header, that both ends have agreed on. */
  readonly full: number;
  /** The size of the largest packet that arrived: `full` if nothing is wrong. */
  readonly passes: number;
  /** Where a larger one was seen last; null: it did not leave its sender, or all arrive. */
  readonly last: PassedDevice | null;
  /** The next device of packets that arrive; null: all arrive. */
  readonly next: PassedDevice | null;
  /** The place that told the sender with an ICMP error, so that TCP sends smaller ones; null: none. */
  readonly toldBy: string | null;
}

export interface PassedDevice {
  readonly place: string;
  /** In words. */
  readonly device: string;
  /** Null: not known. */
  readonly mtu: number | null;
}

/** Whether larger packets vanish without a message to their sender, which sends them again and again. */
export const isBlackHole = ({ passes, full, toldBy }: PacketSize): boolean =>
  passes < full && toldBy === null;

/** A connection as a socket has it: rules may translate its addresses before a device shows them. */
export interface SocketEnds {
  readonly local: End;
  readonly remote: End;
}

/** How the sizes of a connection's packets are measured. */
export interface SizeOptions {
  /** The connection in order of time, with its SYN and SYN-ACK. */
  readonly flow: readonly FlowSighting[];
  readonly isRelayed: boolean;
  /** The established connections of a place. */
  readonly connections: (place: string) => readonly SocketEnds[];
  /** All that has been seen until now. */
  readonly sightings: () => readonly Sighting[];
  /** Sends a segment from a place. Throws FairleadError "EMSGSIZE" if it is too large for the first device. */
  readonly send: (place: string, segment: Segment) => void;
  /** How long a segment may take. */
  readonly patienceMs: number;
  readonly sleep: (ms: number) => Promise<void>;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

const WINDOW = 0xffff;
/** Data of the smallest segment: if it does not arrive either, the size is not the reason. */
const SMALL_BYTES = 64;
/** Sizes that are sent at once, to find between which two the limit is. */
const STEPS = 16;
const CHECK_EVERY_MS = 2;
/** More than any device passes: sequence numbers so far before that of the SYN belong to the connection. */
export const MAX_PROBE_BYTES = 65_536;

/**
 * Measures the size of packets that pass in each direction of a connection, by segments that repeat what was acknowledged before
 * any data: the peer's kernel drops them, so that no process reads anything. Of a direction that cannot be measured nothing is
 * returned.
 */
export async function measureSizes(options: SizeOptions): Promise<PacketSize[]> {
  const { flow } = options;
  const first = (way: Way) => flow.filter((one) => one.way === way && one.kind === HANDSHAKE[way]);
  const [there, back] = [first('there'), first('back')];
  const full = fullSize(there[0], back[0]);
  if (full === null) return [];
  const sizes: PacketSize[] = [];
  for (const [way, sent, answer] of [
    ['there', there, back],
    ['back', back, there],
  ] as const) {
    const [start] = sent;
    const end = arrivalOf(sent);
    const peer = answer[0]?.packet.tcp?.sequence;
    if (!start || !end || peer === undefined || start.place === end.place) continue;
    const ends = socketOf(options.connections(start.place.name), start, way);
    // A segment that belongs to no connection would be answered with a reset.
    if (!ends) continue;
    const prober = createProber(options, { start, end, peer, ends });
    const size = await prober.measure(way, full);
    if (size) sizes.push({ ...size, isRelayed: options.isRelayed });
  }
  return sizes;
}

const HANDSHAKE: Readonly<Record<Way, FlowSighting['kind']>> = { there: 'SYN', back: 'SYN-ACK' };

/** Returns the size of the largest packets of a connection (RFC 9293, section 3.7.1); null: an end did not say it. */
function fullSize(syn: FlowSighting | undefined, answer: FlowSighting | undefined): number | null {
  const limits = [syn, answer].map((one) => one?.packet.tcp?.maxSegment ?? null);
  const [own, peers] = limits;
  if (!syn || !own || !peers) return null;
  return Math.min(own, peers) + headerBytes(syn.packet.source);
}

const headerBytes = (ip: string) => (familyOf(ip) === 'ipv6' ? 60 : 40);

/** The last device that the first packet passed; null: it was only seen where it was sent. */
const arrivalOf = (sent: readonly FlowSighting[]): FlowSighting | null =>
  sent.findLast(({ direction }) => direction === 'in') ?? null;

interface Direction {
  readonly start: FlowSighting;
  readonly end: FlowSighting;
  /** The first sequence number of the other end. */
  readonly peer: number;
  readonly ends: SocketEnds;
}

/** Finds the socket that has sent a packet: by the client's port, and the address at the other end, as far as they are not translated. */
function socketOf(
  sockets: readonly SocketEnds[],
  { packet: { source, destination, ports } }: FlowSighting,
  way: Way,
): SocketEnds | null {
  const found = sockets.filter(({ local, remote }) =>
    way === 'there'
      ? local.port === ports?.source && local.ip === source
      : remote.port === ports?.destination && remote.ip === destination,
  );
  return found.length === 1 ? (found[0] ?? null) : null;
}

function createProber(options: SizeOptions, { start, end, peer, ends }: Direction) {
  const { packet, place } = start;
  const header = headerBytes(packet.source);
  const own = packet.tcp?.sequence ?? 0;
  /** Distinct for each size. */
  const sequenceOf = (size: number) => (own + 1 - (size - header)) >>> 0;
  const seen = (size: number): Sighting[] =>
    inOrder(options.sightings()).filter(
      ({ packet: { tcp } }) =>
        tcp?.sequence === sequenceOf(size) && (tcp.flags & (TCP_FLAG.syn | TCP_FLAG.ack)) === TCP_FLAG.ack,
    );
  const hasArrived = (size: number) =>
    seen(size).some(
      (one) => one.place === end.place && one.device === end.device && one.direction === end.direction,
    );
  const send = (size: number) =>
    options.send(place.name, {
      from: ends.local,
      to: ends.remote,
      sequence: sequenceOf(size),
      acknowledgment: (peer + 1) >>> 0,
      flags: TCP_FLAG.ack,
      window: WINDOW,
      dataBytes: size - header,
    });
  /** Sends packets of several sizes, and waits until the largest has arrived, or they have had their time. */
  const tryAll = async (sizes: readonly number[]): Promise<void> => {
    const largest = sizes.at(-1) ?? 0;
    // Once more, since one packet may be lost by chance.
    for (let attempt = 0; attempt < 2 && !hasArrived(largest); attempt++) {
      for (const size of sizes) {
        try {
          send(size);
        } catch (error) {
          // A device of the sender itself is smaller, or a rule there refuses it.
          if (!hasCode(error, 'EMSGSIZE', 'EPERM', 'EACCES')) throw error;
        }
      }
      const deadline = options.now() + options.patienceMs;
      while (!hasArrived(largest) && options.now() < deadline) await options.sleep(CHECK_EVERY_MS);
    }
  };
  const small = header + SMALL_BYTES;
  return {
    async measure(way: Way, full: number): Promise<Omit<PacketSize, 'isRelayed'> | null> {
      await tryAll([small]);
      if (!hasArrived(small)) return null;
      await tryAll([full]);
      if (hasArrived(full)) return { way, full, passes: full, last: null, next: null, toldBy: null };
      let [passes, fails] = [small, full];
      while (fails - passes > 1) {
        const step = Math.ceil((fails - passes) / STEPS);
        const sizes: number[] = [];
        for (let size = passes + step; size < fails; size += step) sizes.push(size);
        await tryAll(sizes);
        passes = sizes.findLast(hasArrived) ?? passes;
        fails = sizes.find((size) => size > passes) ?? fails;
      }
      return { way, full, passes, ...lostAt(seen(full), seen(passes)), toldBy: toldBy() };
    },
  };

  /** Names the two devices between which larger packets end. */
  function lostAt(larger: readonly Sighting[], smaller: readonly Sighting[]) {
    const last = larger.at(-1);
    const at = last
      ? smaller.findLastIndex(
          (one) => one.place === last.place && one.device === last.device && one.direction === last.direction,
        )
      : -1;
    const next = smaller[at + 1];
    return { last: last ? passedDevice(last) : null, next: next ? passedDevice(next) : null };
  }

  function toldBy(): string | null {
    const error = inOrder(options.sightings()).find(
      ({ packet: { icmp } }) => icmp?.text === 'packet too large' && isOwn(icmp.about?.tcp?.sequence),
    );
    return error?.place.name ?? null;
  }

  function isOwn(sequence: number | undefined): boolean {
    return sequence !== undefined && (own - sequence) >>> 0 < MAX_PROBE_BYTES;
  }
}

const passedDevice = ({ place, device }: Sighting): PassedDevice => ({
  place: place.name,
  device: device.text,
  mtu: device.mtu ?? null,
});

/** Describes what passes of the largest packets, and the fix, in lines. */
export function sizeLines(sizes: readonly PacketSize[]): string[] {
  if (sizes.length === 0) return [];
  const cut = sizes.filter(({ passes, full }) => passes < full);
  if (cut.length === 0) {
    const ways = new Set(sizes.map(({ way }) => way));
    const both = ways.size > 1 ? 'there and back' : ways.has('there') ? 'to the server' : 'to the client';
    return [`packets of ${Math.max(...sizes.map(({ full }) => full))} bytes arrive ${both}`];
  }
  return cut.flatMap((size) => {
    const { way, full, passes, toldBy } = size;
    const where = `${way === 'there' ? 'to the server' : 'to the client'} larger than ${passes} bytes`;
    if (toldBy !== null)
      return [
        `packets ${where} do not pass: ${toldBy} tells the sender (ICMP packet too large), which sends smaller ones`,
      ];
    return [
      `BLACK HOLE: packets ${where} vanish ${placeOf(size)}, and no ICMP error tells the sender: connections open, and stop at the first ${full} bytes`,
      ...causeLines(size),
    ];
  });
}

const nameOf = ({ place, device }: PassedDevice): string => `${place}, ${device}`;

function placeOf({ last, next }: PacketSize): string {
  if (last && next) return `between ${nameOf(last)} and ${nameOf(next)}`;
  return last ? `behind ${nameOf(last)}` : 'at their sender';
}

function causeLines({ full, passes, last, next }: PacketSize): string[] {
  const small = [last, next].find((one) => one?.mtu !== null && one !== null && one.mtu < full);
  if (small) {
    return [
      `  because ${nameOf(small)} has the MTU ${small.mtu}, and the other side sends ${full} bytes`,
      `  fix: give it the MTU ${full} (ip link set dev ${deviceName(small)} mtu ${full} in ${small.place}), or all nodes the MTU ${small.mtu}`,
    ];
  }
  if (last && last.place === next?.place) {
    return [
      `  because a rule or a route of ${last.place} drops packets by their size`,
      `  fix: remove it (nft -a list ruleset, ip route, on ${last.place}), or let it send ICMP "packet too large"`,
    ];
  }
  return [
    `  because a device between them has a smaller MTU, or a rule there drops packets by their size`,
    `  fix: raise the MTU between them to ${full} (fairlead status compares those of all nodes), let ICMP "packet too large" pass, or lower the MTU of all nodes to ${passes}`,
  ];
}

/** "uplink eth0" is "eth0". */
const deviceName = ({ device }: PassedDevice): string => device.split(' ').at(-1) ?? device;
