import { type PacketTaps, preparePacketTaps } from '../kernel/packet-tap.ts';
import { familyOf } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import { type Counters, type MovedCounter, movedCounters } from './counters.ts';
import { type FlowKey, SEQUENCE_WINDOW } from './flow.ts';
import type { FlowFilter } from './flow-filter.ts';
import type { End, Leg } from './hops.ts';
import { describeFlow, type FlowOptions, judge } from './judge.ts';
import { type Answer, unanswered } from './outcome.ts';
import { type Probe, type ProbeOrigin, prepareTcpProbe, prepareUdpProbe } from './probe.ts';
import { readCounters } from './read-counters.ts';
import { openRecorder, type TracedPlace } from './recorder.ts';

export interface TraceOptions extends FlowOptions {
  readonly places: readonly TracedPlace[];
  /** The name of the client's place, and where its socket is opened. */
  readonly origin: ProbeOrigin & { readonly place: string };
  readonly protocol: 'TCP' | 'UDP';
  /** The endpoints that the packet may be sent to. */
  readonly endpoints: readonly End[];
  /** UDP port of VXLAN; null: none. */
  readonly tunnelPort: number | null;
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
  const taps = await preparePacketTaps(options.sleep);
  try {
    return await follow(options, taps);
  } finally {
    taps.close();
  }
}

async function follow(options: TraceOptions, opener: PacketTaps): Promise<TraceResult> {
  const { places, destination, sleep } = options;
  // Its socket must be used in the same turn of the event loop, before it notices that it is not connected.
  const { probe, key, filter } = prepare(options);
  try {
    const recorder = openRecorder(opener, { places, filter, tunnelPort: options.tunnelPort });
    const judged = () => judge(options, recorder.sightings, key, probe.result);
    const before = new Map(places.map((place) => [place.name, readCounters(place.netns)]));
    probe.send(destination.ip, destination.port);
    const deadline = options.now() + options.patienceMs;
    let answer: Answer | null = null;
    let isComplete = false;
    while (!(answer && isComplete) && options.now() < deadline) {
      await sleep(CHECK_EVERY_MS);
      recorder.check();
      ({ answer, isComplete } = judged());
    }
    await sleep(SETTLE_MS);
    // On a busy machine the timer can come before the frames of the same turn.
    recorder.drain();
    const { own, relayed, ...last } = judged();
    const final = last.answer ?? answer ?? unanswered(own, relayed);
    return {
      ...describeFlow(options, own, relayed, final),
      answer: final,
      counters: places
        .filter(({ name }) => name === endOf(final, options))
        .flatMap((one) => moved(one, before)),
      lostFrames: recorder.lost(),
    };
  } finally {
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
    const relayPorts = options.proxy === null ? [] : ports;
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

function moved(place: TracedPlace, before: ReadonlyMap<string, Counters>): MovedCounter[] {
  return movedCounters(place.name, before.get(place.name) ?? new Map(), readCounters(place.netns));
}
