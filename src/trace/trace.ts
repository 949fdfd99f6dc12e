import type { NetnsRef } from '../kernel/netns.ts';
import { enablePacketTimestamps, openPacketTap, type PacketTap } from '../kernel/packet-tap.ts';
import { familyOf } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import { type Counters, type MovedCounter, movedCounters } from './counters.ts';
import { type FlowKey, type FlowSighting, relayedConnections, SEQUENCE_WINDOW, sightingsOf } from './flow.ts';
import { type FlowFilter, flowFilter } from './flow-filter.ts';
import { type End, type Leg, legsOf, type Translators } from './hops.ts';
import { type Answer, answerOf, unanswered } from './outcome.ts';
import { readFrame } from './packet.ts';
import { type Probe, type ProbeOrigin, prepareTcpProbe, prepareUdpProbe } from './probe.ts';
import { readCounters } from './read-counters.ts';
import { inOrder, type ObservedPlace, type Sighting } from './sighting.ts';

/** A place whose network namespace can be entered. */
export interface TracedPlace extends ObservedPlace {
  readonly netns: NetnsRef;
}

export interface TraceOptions {
  readonly places: readonly TracedPlace[];
  /** The name of the client's place, and where its socket is opened. */
  readonly origin: ProbeOrigin & { readonly place: string };
  readonly protocol: 'TCP' | 'UDP';
  readonly destination: End;
  /** The endpoints that the packet may be sent to. */
  readonly endpoints: readonly End[];
  /** The node whose proxy accepts the connection and opens another one; null: no proxy. */
  readonly proxyNode: string | null;
  /** UDP port of VXLAN; null: none. */
  readonly tunnelPort: number | null;
  readonly translators: Translators;
  /** Random, from 1 to MAX_SEQUENCE. */
  readonly sequence: number;
  /** How long an answer may take. */
  readonly patienceMs: number;
  readonly sleep: (ms: number) => Promise<void>;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** The real way of one connection or datagram. */
export interface TraceResult {
  readonly legs: readonly Leg[];
  readonly answer: Answer;
  /** Milliseconds from the first sighting to the answer at the client; null: no answer. */
  readonly answeredAfterMs: number | null;
  /** Counters of undelivered packets that rose meanwhile at the place where the flow ended, of all its traffic. */
  readonly counters: readonly MovedCounter[];
  /** Frames that could not be read because the machine was too busy. */
  readonly lostFrames: number;
}

/** The window of a connection must not pass 2^32. */
export const MAX_SEQUENCE = 0xffffffff - SEQUENCE_WINDOW;

/** Enough for the headers, also inside VXLAN, and the nonce of a datagram. */
const SNAP_BYTES = 320;
const CHECK_EVERY_MS = 20;
/** How long the last frames and counters may take to arrive after the answer. */
const SETTLE_MS = 40;
/** More ports would make the filter too long for its jumps. */
const MAX_PORTS = 40;

/**
 * Sends one connection or datagram and follows it through all places. Whatever it opens ends with the process. Throws
 * FairleadError if a place cannot be observed.
 */
export async function trace(options: TraceOptions): Promise<TraceResult> {
  const timestamps = await enablePacketTimestamps(options.sleep);
  try {
    return await follow(options);
  } finally {
    timestamps.close();
  }
}

async function follow(options: TraceOptions): Promise<TraceResult> {
  const { places, destination, sleep } = options;
  // Its socket must be used in the same turn of the event loop, before it notices that it is not connected.
  const { probe, key, filter } = prepare(options);
  const sightings: Sighting[] = [];
  const taps: PacketTap[] = [];
  const failures: FairleadError[] = [];
  try {
    const program = flowFilter(filter, options.tunnelPort, SNAP_BYTES);
    for (const place of places) {
      taps.push(
        openPacketTap({
          netns: place.netns,
          filter: program,
          snapBytes: SNAP_BYTES,
          onFrame({ data, device: index, direction, isForOther, timeNs }) {
            const device = place.devices.get(index);
            if (!device || (isForOther && !device.isPort)) return;
            const packet = readFrame(data, options.tunnelPort);
            if (packet) sightings.push({ place, device, direction, timeNs, packet });
          },
          onError(error) {
            // A device went down; the others continue.
            if (error.code !== 'ENETDOWN') failures.push(error);
          },
        }),
      );
    }
    const before = new Map(places.map((place) => [place.name, readCounters(place.netns)]));
    probe.send(destination.ip, destination.port);
    const deadline = options.now() + options.patienceMs;
    let answer: Answer | null = null;
    while (answer === null && options.now() < deadline) {
      await sleep(CHECK_EVERY_MS);
      if (failures[0]) throw failures[0];
      answer = judge(options, sightings, key, probe).answer;
    }
    await sleep(SETTLE_MS);
    // On a busy machine the timer can come before the frames of the same turn.
    for (const tap of taps) tap.drain();
    const { own, relayed, ...last } = judge(options, sightings, key, probe);
    const final = last.answer ?? answer ?? unanswered(own, relayed);
    return {
      ...describe(options, own, relayed, final),
      answer: final,
      counters: places
        .filter(({ name }) => name === endOf(final, options))
        .flatMap((one) => moved(one, before)),
      lostFrames: taps.reduce((sum, tap) => sum + tap.dropped(), 0),
    };
  } finally {
    for (const tap of taps) tap.close();
    probe.close();
  }
}

function prepare(options: TraceOptions): { probe: Probe; key: FlowKey; filter: FlowFilter } {
  const { origin, protocol, destination, endpoints, sequence } = options;
  const family = familyOf(destination.ip) ?? 'ipv4';
  const ports = [...new Set(endpoints.map(({ port }) => port))];
  if (ports.length > MAX_PORTS) {
    throw new FairleadError(`the endpoints have ${ports.length} different ports; at most ${MAX_PORTS}`, {
      op: 'trace',
      code: 'unsupported',
      hint: 'trace a connection to one endpoint, by its address',
    });
  }
  if (protocol === 'TCP') {
    const probe = prepareTcpProbe(origin, family, sequence);
    const relayPorts = options.proxyNode === null ? [] : ports;
    const filter = { protocol, sequence, window: SEQUENCE_WINDOW, ports: relayPorts } as const;
    return { probe, key: { protocol, sequence }, filter };
  }
  const probe = prepareUdpProbe(origin, family, sequence.toString(16).padStart(8, '0'));
  const all = [...new Set([probe.port, destination.port, ...ports])];
  return { probe, key: { protocol, nonce: probe.nonce }, filter: { protocol, ports: all } };
}

/** Returns the place where an unanswered flow ended; null: it was answered. */
function endOf(answer: Answer, { origin }: TraceOptions): string | null {
  switch (answer.kind) {
    case 'answered':
      return null;
    case 'nothing':
      return answer.last?.place ?? origin.place;
    case 'refused':
    case 'unreachable':
      return answer.by ?? origin.place;
  }
}

interface Judged {
  readonly own: FlowSighting[];
  /** Null: no proxy. */
  readonly relayed: FlowSighting[] | null;
  readonly answer: Answer | null;
}

function judge(
  options: TraceOptions,
  sightings: readonly Sighting[],
  key: FlowKey,
  { result }: Probe,
): Judged {
  const ordered = inOrder(sightings);
  const own = sightingsOf(ordered, key);
  const relayed = relayedSightings(options, ordered, own);
  return { own, relayed, answer: answerOf(own, relayed, result, options.origin.place) };
}

function relayedSightings(
  { proxyNode, protocol, endpoints }: TraceOptions,
  ordered: readonly Sighting[],
  own: readonly FlowSighting[],
): FlowSighting[] | null {
  if (proxyNode === null || protocol !== 'TCP') return null;
  const accepted = own.find(({ kind }) => kind === 'SYN-ACK');
  if (!accepted) return [];
  const wanted = new Set(endpoints.map(({ ip, port }) => `${ip} ${port}`));
  const reset = own.find(({ way, kind }) => way === 'back' && kind === 'RST');
  const period = { after: accepted.timeNs, until: reset?.timeNs ?? null };
  const sequences = relayedConnections(ordered, proxyNode, wanted, period);
  return sequences.flatMap((sequence) => sightingsOf(ordered, { protocol: 'TCP', sequence }));
}

function describe(
  { origin, destination, translators }: TraceOptions,
  own: readonly FlowSighting[],
  relayed: readonly FlowSighting[] | null,
  answer: Answer,
): Pick<TraceResult, 'legs' | 'answeredAfterMs'> {
  const startNs = own[0]?.timeNs ?? 0n;
  const common = { startNs, asked: destination, translators };
  const legs = [
    ...legsOf(own, { ...common, isRelayed: false }),
    ...legsOf(relayed ?? [], { ...common, isRelayed: true }),
  ].sort((a, b) => (a.hops[0]?.sinceUs ?? 0) - (b.hops[0]?.sinceUs ?? 0));
  const isSuccess = answer.kind === 'answered';
  const decides = ({ way, kind }: FlowSighting) =>
    way === 'back' &&
    (isSuccess ? kind === 'SYN-ACK' || kind === 'answer' : kind === 'RST' || kind === 'error');
  const back = own.find((one) => decides(one) && one.place.name === origin.place);
  // Behind a proxy the connection is answered once the endpoint has accepted it.
  const last = isSuccess ? (relayed?.findLast(decides) ?? back) : back;
  const isDecided = last !== undefined && answer.kind !== 'nothing';
  return { legs, answeredAfterMs: isDecided ? Number(last.timeNs - startNs) / 1e6 : null };
}

function moved(place: TracedPlace, before: ReadonlyMap<string, Counters>): MovedCounter[] {
  return movedCounters(place.name, before.get(place.name) ?? new Map(), readCounters(place.netns));
}
