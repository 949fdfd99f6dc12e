import { encodeQuestion } from '../dns/encode.ts';
import { TYPE } from '../dns/message.ts';
import type { Segment } from '../kernel/tcp-segment.ts';
import type { PlaceClocks } from './clocks.ts';
import type { MovedCounter } from './counters.ts';
import { type FlowKey, SEQUENCE_WINDOW } from './flow.ts';
import type { FlowFilter } from './flow-filter.ts';
import type { SocketResult } from './outcome.ts';
import { MAX_PROBE_BYTES, type SocketEnds } from './packet-sizes.ts';
import type { Sighting } from './sighting.ts';

/** A rule that dropped the packet, as the kernel reported it. */
export interface DroppingRule {
  readonly place: string;
  /** "table inet filter, chain forward, rule with handle 7", as `explain` names rules. */
  readonly where: string;
}

/** A packet that a trace sends, by what identifies it. */
export type TracedPacket =
  /** `relayPorts`: the ports of connections that a proxy may open on its behalf. */
  | { readonly protocol: 'TCP'; readonly sequence: number; readonly relayPorts: readonly number[] }
  /** `id`: eight hexadecimal digits, part of its text; `ports`: those that it may be sent to. */
  | {
      readonly protocol: 'UDP';
      readonly id: string;
      readonly ports: readonly number[];
      /** The datagram is this question to a name server, with a part of `id` as its number. */
      readonly question?: DnsQuestion;
    };

export interface DnsQuestion {
  readonly name: string;
  readonly type: 'A' | 'AAAA';
}

/** The observations at a trace's places, from before its packet is sent. */
export interface Observation {
  readonly sightings: readonly Sighting[];
  /** The reports of the client's socket until now. */
  readonly result: SocketResult;
  /** Null: one clock stamps all packets. */
  readonly clocks: PlaceClocks | null;
  /** Throws FairleadError if the trace cannot go on. */
  check(): void;
  /** Waits for the last frames and counters of packets that have passed. */
  settle(): Promise<void>;
  /** Returns the counters of undelivered packets that have risen at a place. */
  moved(place: string): readonly MovedCounter[];
  /** Sends a segment from a place that its own kernel does not send; absent: it cannot. */
  sendSegment?(place: string, segment: Segment): void;
  /** Returns the ends of the established connections of a place, as its sockets have them; absent: not known. */
  connections?(place: string): readonly SocketEnds[];
  /** Returns the rules that dropped packets of the flow, as the kernel reports them; absent: it is not asked. */
  rules?(): readonly DroppingRule[];
  /** Returns how many frames were lost because a machine was too busy. */
  lost(): number;
  close(): void;
}

/** How much of a question identifies it: more may be cut off where it is seen in a tunnel. */
const QUESTION_BYTES = 40;

/** Returns the text that a datagram carries. */
export const datagramText = (id: string): string => `trace-${id}`;

const questionBytes = (id: string, { name, type }: DnsQuestion): Uint8Array =>
  encodeQuestion(Number.parseInt(id.slice(-4), 16), name, TYPE[type]);

/** Returns the payload of a datagram to a port: the question, a question for a name that contains its text, or the text. */
export function datagramPayload(packet: Extract<TracedPacket, { protocol: 'UDP' }>, to: number): Uint8Array {
  if (packet.question) return questionBytes(packet.id, packet.question);
  const text = datagramText(packet.id);
  // RFC 6761: a name that never exists.
  return to === DNS_PORT ? encodeQuestion(1, `${text}.invalid`, TYPE.A) : Buffer.from(`${text}\n`);
}

const DNS_PORT = 53;

/** Returns what identifies a packet wherever it is seen. */
export const keyOf = (packet: TracedPacket): FlowKey =>
  packet.protocol === 'TCP'
    ? { protocol: 'TCP', sequence: packet.sequence }
    : { protocol: 'UDP', nonce: nonceOf(packet) };

const nonceOf = ({ id, question }: Extract<TracedPacket, { protocol: 'UDP' }>): Uint8Array =>
  question ? questionBytes(id, question).subarray(0, QUESTION_BYTES) : Buffer.from(datagramText(id));

/** Returns the kernel's filter for a packet. `from`: the local port of a datagram; null: it is sent elsewhere. */
export function filterOf(packet: TracedPacket, from: number | null): FlowFilter {
  if (packet.protocol === 'UDP') {
    const { protocol, ports } = packet;
    return { protocol, ports: [...new Set([...(from === null ? [] : [from]), ...ports])] };
  }
  const { protocol, sequence, relayPorts } = packet;
  // The segments that measure sizes come before the SYN.
  const first = (sequence - MAX_PROBE_BYTES) >>> 0;
  return { protocol, sequence: first, window: MAX_PROBE_BYTES + SEQUENCE_WINDOW, ports: relayPorts };
}
