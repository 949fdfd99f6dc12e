import { alignClocks, type ClockNote, type PlaceClocks } from './clocks.ts';
import {
  connectionsFor,
  type FlowKey,
  type FlowSighting,
  type ProxyConnection,
  sequencesOf,
  sightingsOf,
} from './flow.ts';
import { type End, type Leg, legsOf, type Translators } from './hops.ts';
import { type Answer, answerOf, answersTo, type SocketResult } from './outcome.ts';
import { inOrder, type Sighting } from './sighting.ts';

/** A proxy of a node. */
export interface TracedProxy {
  readonly node: string;
  /** Returns the connections that it has opened for clients since before the trace began. */
  readonly connections: () => readonly ProxyConnection[];
}

/** The knowledge of a flow beside its packets. */
export interface FlowOptions {
  readonly origin: { readonly place: string };
  readonly destination: End;
  readonly translators: Translators;
  /** The node whose proxy accepts the connection and opens others to endpoints; null: no proxy. */
  readonly proxy: TracedProxy | null;
}

/** The result of the sightings of a flow. */
export interface Judged {
  readonly own: FlowSighting[];
  /** Null: no proxy. */
  readonly relayed: FlowSighting[] | null;
  readonly answer: Answer | null;
  /** False: the proxy has accepted the connection, and has not reported a connection to an endpoint yet. */
  readonly isComplete: boolean;
  /** The corrections of the clocks of other machines. */
  readonly clocks: readonly ClockNote[];
}

/** What judges sightings. */
export interface JudgeOptions extends Pick<FlowOptions, 'proxy' | 'origin'> {
  /** Null: one clock stamps all packets. */
  readonly clocks: PlaceClocks | null;
}

/** Judges the sightings of several flows as parts of one. `socket`: the report of the client's socket. */
export function judge(
  { proxy, origin, clocks }: JudgeOptions,
  sightings: readonly Sighting[],
  key: FlowKey,
  socket: SocketResult,
): Judged {
  const { sightings: aligned, notes } = clocks ? alignClocks(sightings, clocks) : { sightings, notes: [] };
  const ordered = inOrder(aligned);
  /** The corrections of the clocks of the machines that the flow passed. */
  const notesOf = (flow: readonly Sighting[]) => {
    const passed = new Set(flow.map(({ place }) => clocks?.of(place)));
    return notes.filter(({ machine }) => passed.has(machine));
  };
  const own = sightingsOf(ordered, key);
  const answer = (relayed: FlowSighting[] | null) => answerOf(own, relayed, socket, origin.place);
  if (proxy === null || key.protocol !== 'TCP')
    return { own, relayed: null, answer: answer(null), isComplete: true, clocks: notesOf(own) };
  const connections = connectionsFor(own, proxy.node, proxy.connections());
  const relayed = sequencesOf(ordered, proxy.node, connections).flatMap((sequence) =>
    sightingsOf(ordered, { protocol: 'TCP', sequence }),
  );
  const isAccepted = own.some(({ kind }) => kind === 'SYN-ACK');
  const isComplete = !isAccepted || connections.length > 0;
  return { own, relayed, answer: answer(relayed), isComplete, clocks: notesOf([...own, ...relayed]) };
}

/** Describes the hops of a flow, and when it was answered. `untilUs`: of LegOptions; absent: all packets were followed. */
export function describeFlow(
  { origin, destination, translators }: FlowOptions,
  own: readonly FlowSighting[],
  relayed: readonly FlowSighting[] | null,
  answer: Answer,
  untilUs = Number.POSITIVE_INFINITY,
): { readonly legs: readonly Leg[]; readonly answeredAfterMs: number | null } {
  const startNs = own[0]?.timeNs ?? 0n;
  const common = { startNs, asked: destination, translators, untilUs };
  const legs = [
    ...legsOf(own, { ...common, isRelayed: false }),
    ...legsOf(relayed ?? [], { ...common, isRelayed: true }),
  ].sort((a, b) => (a.hops[0]?.sinceUs ?? 0) - (b.hops[0]?.sinceUs ?? 0));
  const isSuccess = answer.kind === 'answered';
  const decides = ({ way, kind }: FlowSighting) =>
    way === 'back' &&
    (isSuccess ? kind === 'SYN-ACK' || kind === 'answer' : kind === 'RST' || kind === 'error');
  const isAnswer = answersTo(own, origin.place);
  const back = own.find((one) => decides(one) && isAnswer(one));
  // Behind a proxy the connection is answered once the endpoint has accepted it.
  const last = isSuccess ? (relayed?.findLast(decides) ?? back) : back;
  const isDecided = last !== undefined && answer.kind !== 'nothing';
  return { legs, answeredAfterMs: isDecided ? Number(last.timeNs - startNs) / 1e6 : null };
}
