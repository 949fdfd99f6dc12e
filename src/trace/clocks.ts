import type { Packet } from '../kernel/packet.ts';
import type { ObservedPlace, Sighting } from './sighting.ts';

/** How far a clock is ahead of another one, in nanoseconds. */
export interface ClockBounds {
  readonly low: bigint;
  readonly high: bigint;
}

/** The clocks that stamped the packets of a trace, one for each machine. */
export interface PlaceClocks {
  /** Returns the machine of a place. */
  of(place: ObservedPlace): string;
  /** The machine whose clock is used. */
  readonly reference: string;
  /** How far the clock of each machine is ahead of the observer's, by round trips of requests. */
  readonly bounds: ReadonlyMap<string, ClockBounds>;
}

/** The correction of the clock of a machine. */
export interface ClockNote {
  readonly machine: string;
  /** The machine to whose clock its times were brought. */
  readonly reference: string;
  /** The microseconds taken from its times; 0: none, because the packets do not contradict it. */
  readonly shiftUs: number;
  /** The greatest error of the shift, in microseconds; null: unknown. */
  readonly errorUs: number | null;
  /**
   * The evidence: packets that passed in both directions; only in one, so that the duration of their way is
   * not known; or the round trips of requests.
   */
  readonly by: 'both-ways' | 'one-way' | 'requests';
}

/** Sightings with times of one clock. */
export interface AlignedSightings {
  readonly sightings: readonly Sighting[];
  readonly notes: readonly ClockNote[];
}

/**
 * Brings times of several machines to the clock of one of them. No packet arrives before it was sent: a packet that leaves
 * one machine and enters another limits how far their clocks can differ, and the answer limits it from the other side. A
 * clock that agrees within these limits is left as it is.
 */
export function alignClocks(sightings: readonly Sighting[], clocks: PlaceClocks): AlignedSightings {
  const { reference } = clocks;
  const machines = new Set(sightings.map(({ place }) => clocks.of(place)));
  machines.add(reference);
  const limits = passagesOf(sightings, clocks);
  const offsets = new Map([[reference, 0n]]);
  const notes: ClockNote[] = [];
  // Machines that exchanged packets with one whose clock is known come first.
  const waiting = [...machines].filter((machine) => machine !== reference);
  while (waiting.length > 0) {
    const next = Math.max(
      0,
      waiting.findIndex((machine) => packetBounds(machine, offsets, limits) !== null),
    );
    const [machine = ''] = waiting.splice(next, 1);
    const packets = packetBounds(machine, offsets, limits);
    const { offset, errorNs, by } = chooseOffset(packets, requestBounds(machine, reference, clocks.bounds));
    offsets.set(machine, offset);
    const errorUs = errorNs === null ? null : Number(errorNs) / 1000;
    notes.push({ machine, reference, shiftUs: Number(offset) / 1000, errorUs, by });
  }
  const shifted = sightings.map((one) => {
    const offset = offsets.get(clocks.of(one.place)) ?? 0n;
    return offset === 0n ? one : { ...one, timeNs: one.timeNs - offset };
  });
  return { sightings: shifted, notes };
}

/** A limit that is not known is null. */
interface OpenBounds {
  readonly low: bigint | null;
  readonly high: bigint | null;
}

/** By sender and receiver: the shortest time from sending to receiving, by their own clocks. */
type Passages = ReadonlyMap<string, ReadonlyMap<string, bigint>>;

/** The first times at which a machine sent and received a packet. */
interface Passing {
  readonly machine: string;
  out: bigint | null;
  in: bigint | null;
}

function passagesOf(sightings: readonly Sighting[], clocks: PlaceClocks): Passages {
  const packets = new Map<string, Map<string, Passing>>();
  for (const { place, packet, direction, timeNs } of sightings) {
    const machine = clocks.of(place);
    const key = packetKey(packet);
    const passings = packets.get(key) ?? new Map<string, Passing>();
    packets.set(key, passings);
    const passing = passings.get(machine) ?? { machine, out: null, in: null };
    passings.set(machine, passing);
    const before = passing[direction];
    if (before === null || timeNs < before) passing[direction] = timeNs;
  }
  const passages = new Map<string, Map<string, bigint>>();
  for (const passings of packets.values()) {
    for (const from of passings.values()) {
      for (const to of passings.values()) {
        if (from === to || from.out === null || to.in === null) continue;
        // On a network without routers its direction does not show.
        if (to.out !== null && from.in !== null) continue;
        const receivers = passages.get(from.machine) ?? new Map<string, bigint>();
        passages.set(from.machine, receivers);
        const time = to.in - from.out;
        const shortest = receivers.get(to.machine);
        if (shortest === undefined || time < shortest) receivers.set(to.machine, time);
      }
    }
  }
  return passages;
}

/** The same on both sides of a link: addresses are translated, and the hop limit is lowered, inside machines only. */
function packetKey({ source, destination, protocol, hopLimit, ports, tcp, icmp, payload }: Packet): string {
  const fields = [source, destination, protocol, hopLimit, ports?.source, ports?.destination];
  const content = tcp
    ? [tcp.sequence, tcp.acknowledgment, tcp.flags]
    : icmp
      ? [icmp.type, icmp.code]
      : [Buffer.from(payload).toString('latin1')];
  return [...fields, ...content].join(' ');
}

/** Returns how far a clock can be ahead of the reference, by packets exchanged with machines whose offsets are known. */
function packetBounds(
  machine: string,
  offsets: ReadonlyMap<string, bigint>,
  passages: Passages,
): OpenBounds | null {
  let low: bigint | null = null;
  let high: bigint | null = null;
  for (const [other, offset] of offsets) {
    const to = passages.get(other)?.get(machine);
    if (to !== undefined && (high === null || offset + to < high)) high = offset + to;
    const from = passages.get(machine)?.get(other);
    if (from !== undefined && (low === null || offset - from > low)) low = offset - from;
  }
  return low === null && high === null ? null : { low, high };
}

function requestBounds(
  machine: string,
  reference: string,
  bounds: ReadonlyMap<string, ClockBounds>,
): ClockBounds | null {
  const own = bounds.get(machine);
  const other = bounds.get(reference);
  return own && other ? { low: own.low - other.high, high: own.high - other.low } : null;
}

function chooseOffset(
  packets: OpenBounds | null,
  requests: ClockBounds | null,
): { readonly offset: bigint; readonly errorNs: bigint | null; readonly by: ClockNote['by'] } {
  if (packets === null) {
    if (requests === null) return { offset: 0n, errorNs: null, by: 'requests' };
    const { low, high } = requests;
    const offset = contains(requests, 0n) ? 0n : (low + high) / 2n;
    return { offset, errorNs: farthest(requests, offset), by: 'requests' };
  }
  const { low, high } = packets;
  if (low !== null && high !== null) {
    const offset = contains({ low, high }, 0n) ? 0n : (low + high) / 2n;
    return { offset, errorNs: farthest({ low, high }, offset), by: 'both-ways' };
  }
  // The duration of the way is not known: as short as possible, unless both clocks may be right.
  const limits = { low: low ?? requests?.low ?? null, high: high ?? requests?.high ?? null };
  const isRightAsItIs = (limits.low ?? 0n) <= 0n && (limits.high ?? 0n) >= 0n;
  const nearest = high === null ? (low ?? 0n) + 1n : high - 1n;
  return { offset: isRightAsItIs ? 0n : nearest, errorNs: null, by: 'one-way' };
}

const contains = ({ low, high }: ClockBounds, value: bigint) => low <= value && value <= high;

function farthest({ low, high }: ClockBounds, value: bigint): bigint {
  const [below, above] = [value - low, high - value];
  return below > above ? below : above;
}
