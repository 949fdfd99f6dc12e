import { familyOf } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import type { ClockNote } from './clocks.ts';
import type { MovedCounter } from './counters.ts';
import { type FlowSighting, SEQUENCE_WINDOW } from './flow.ts';
import type { End, Leg } from './hops.ts';
import { describeFlow, type FlowOptions, judge } from './judge.ts';
import type { DroppingRule } from './observation.ts';
import { type DnsQuestion, keyOf, type Observation, type TracedPacket } from './observation.ts';
import { type Answer, unanswered } from './outcome.ts';
import { measureSizes, type PacketSize } from './packet-sizes.ts';

export interface TraceOptions extends FlowOptions {
  readonly protocol: 'TCP' | 'UDP';
  /** The endpoints that the packet may be sent to. */
  readonly endpoints: readonly End[];
  /** The kind of datagram; absent: a short text. */
  readonly question?: DnsQuestion;
  /** Random, from 1 to MAX_SEQUENCE. */
  readonly sequence: number;
  /** Attaches observers to all places that the packet may pass, and sends it. */
  readonly observe: (packet: TracedPacket) => Promise<Observation>;
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
  /** Rules that dropped packets of the flow, at places where other programs have nf_tables tables. */
  readonly drops: readonly DroppingRule[];
  /** What passes of the largest packets of the connection, in each direction; empty: not measured. */
  readonly sizes: readonly PacketSize[];
  /** Frames that could not be read because the machine was too busy. */
  readonly lostFrames: number;
  /** The clocks of other machines than the client's; empty: there is one clock. */
  readonly clocks: readonly ClockNote[];
}

/** The window of a connection must not pass 2^32. */
export const MAX_SEQUENCE = 0xffffffff - SEQUENCE_WINDOW;
/** More ports would make the filter too long for its jumps. */
export const MAX_PORTS = 40;

const CHECK_EVERY_MS = 20;

/** Sends one connection or datagram and follows it through all places. Throws FairleadError if a place cannot be observed. */
export async function trace(options: TraceOptions): Promise<TraceResult> {
  const { sleep, now, patienceMs } = options;
  const packet = packetOf(options);
  const key = keyOf(packet);
  const observation = await options.observe(packet);
  try {
    const judged = () =>
      judge({ ...options, clocks: observation.clocks }, observation.sightings, key, observation.result);
    const sentAt = now();
    const deadline = sentAt + patienceMs;
    let answer: Answer | null = null;
    let isComplete = false;
    while (!(answer && isComplete) && now() < deadline) {
      await sleep(CHECK_EVERY_MS);
      observation.check();
      ({ answer, isComplete } = judged());
    }
    // Packets that have begun until now pass their last places while the observation settles.
    const untilUs = (now() - sentAt) * 1000;
    await observation.settle();
    const { own, relayed, clocks, ...last } = judged();
    const final = last.answer ?? answer ?? unanswered(own, relayed);
    const end = endOf(final, options);
    const described = describeFlow(options, own, relayed, final, untilUs);
    return {
      ...described,
      answer: final,
      drops: observation.rules?.() ?? [],
      sizes:
        final.kind === 'answered'
          ? await sizesOf(options, observation, { own, relayed }, described.answeredAfterMs)
          : [],
      counters:
        end === null
          ? []
          : ownCounters(observation.moved(end), options, countSent([...own, ...(relayed ?? [])])),
      lostFrames: observation.lost(),
      clocks,
    };
  } finally {
    observation.close();
  }
}

/** Counts the packets that began a way, sent again ones included. */
function countSent(sightings: readonly FlowSighting[]): number {
  const first = new Map<string, string>();
  return sightings.filter(({ kind, way, place, device, direction, packet }) => {
    if (way !== 'there' || (kind !== 'SYN' && kind !== 'datagram')) return false;
    const at = `${place.name} ${device.name} ${direction}`;
    const key = String(packet.tcp?.sequence ?? '');
    if (!first.has(key)) first.set(key, at);
    return first.get(key) === at;
  }).length;
}

/** Selects the counters that only the packets of the flow can have raised: others are of other traffic, at least in part. */
function ownCounters(
  counters: readonly MovedCounter[],
  { protocol, destination }: Pick<TraceOptions, 'protocol' | 'destination'>,
  sent: number,
): MovedCounter[] {
  const isV6 = familyOf(destination.ip) === 'ipv6';
  return counters.filter(({ name, by }) => {
    if (by > Math.max(1, sent)) return false;
    if (name.startsWith('nft ')) return true;
    if (/^(Tcp|TcpExt) /.test(name)) return protocol === 'TCP';
    if (/^Udp6?/.test(name)) return protocol === 'UDP' && name.startsWith('Udp6') === isV6;
    return name.includes('6') === isV6;
  });
}

/** A packet of a connection that has been answered is waited for at least so long. */
const MIN_PATIENCE_MS = 150;
const MAX_PATIENCE_MS = 2000;

/** Measures the largest packets of the client's connection, and of the connection that a proxy opened for it. */
async function sizesOf(
  options: TraceOptions,
  observation: Observation,
  {
    own,
    relayed,
  }: { readonly own: readonly FlowSighting[]; readonly relayed: readonly FlowSighting[] | null },
  answeredAfterMs: number | null,
): Promise<PacketSize[]> {
  const { sendSegment, connections } = observation;
  if (options.protocol !== 'TCP' || !sendSegment || !connections) return [];
  const patienceMs = Math.min(MAX_PATIENCE_MS, Math.max(MIN_PATIENCE_MS, 4 * (answeredAfterMs ?? 0)));
  const sizes: PacketSize[] = [];
  for (const [flow, isRelayed] of [
    [own, false],
    [answeredOf(relayed ?? []), true],
  ] as const) {
    sizes.push(
      ...(await measureSizes({
        ...{ flow, isRelayed, connections, patienceMs },
        sightings: () => observation.sightings,
        send: sendSegment,
        sleep: options.sleep,
        now: options.now,
      })),
    );
  }
  return sizes;
}

/** Selects the connection of a proxy that an endpoint has accepted. */
function answeredOf(relayed: readonly FlowSighting[]): readonly FlowSighting[] {
  const answer = relayed.findLast(({ kind }) => kind === 'SYN-ACK')?.packet.tcp;
  if (!answer) return [];
  const sequence = (answer.acknowledgment - 1) >>> 0;
  return relayed.filter(({ packet: { tcp }, way }) =>
    way === 'there' ? tcp?.sequence === sequence : tcp?.acknowledgment === answer.acknowledgment,
  );
}

function packetOf(options: TraceOptions): TracedPacket {
  const { protocol, destination, endpoints, sequence, proxy, question } = options;
  const ports = [...new Set(endpoints.map(({ port }) => port))];
  if (ports.length > MAX_PORTS) {
    throw new FairleadError(`the endpoints have ${ports.length} different ports; at most ${MAX_PORTS}`, {
      op: 'trace',
      code: 'unsupported',
      hint: 'trace a connection to one endpoint, by its address',
    });
  }
  if (protocol === 'TCP') return { protocol, sequence, relayPorts: proxy === null ? [] : ports };
  const id = sequence.toString(16).padStart(8, '0');
  return {
    ...{ protocol, id, ports: [...new Set([destination.port, ...ports])] },
    ...(question ? { question } : {}),
  };
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
