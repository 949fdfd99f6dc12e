import type { PlaceClocks } from './clocks.ts';
import type { MovedCounter } from './counters.ts';
import { type FlowKey, SEQUENCE_WINDOW } from './flow.ts';
import type { FlowFilter } from './flow-filter.ts';
import type { SocketResult } from './outcome.ts';
import type { Sighting } from './sighting.ts';

/** A packet that a trace sends, by what identifies it. */
export type TracedPacket =
  /** `relayPorts`: the ports of connections that a proxy may open on its behalf. */
  | { readonly protocol: 'TCP'; readonly sequence: number; readonly relayPorts: readonly number[] }
  /** `id`: eight hexadecimal digits, part of its text; `ports`: those that it may be sent to. */
  | { readonly protocol: 'UDP'; readonly id: string; readonly ports: readonly number[] };

/** What the observers of a trace's places see, from before its packet is sent. */
export interface Observation {
  readonly sightings: readonly Sighting[];
  /** What the client's socket has reported until now. */
  readonly result: SocketResult;
  /** Null: one clock stamps all packets. */
  readonly clocks: PlaceClocks | null;
  /** Throws FairleadError if the trace cannot go on. */
  check(): void;
  /** Waits for the last frames and counters of packets that have passed. */
  settle(): Promise<void>;
  /** Returns the counters of undelivered packets that have risen at a place. */
  moved(place: string): readonly MovedCounter[];
  /** Returns how many frames were lost because a machine was too busy. */
  lost(): number;
  close(): void;
}

/** Returns the text that a datagram carries. */
export const datagramText = (id: string): string => `trace-${id}`;

/** Returns what identifies a packet wherever it is seen. */
export const keyOf = (packet: TracedPacket): FlowKey =>
  packet.protocol === 'TCP'
    ? { protocol: 'TCP', sequence: packet.sequence }
    : { protocol: 'UDP', nonce: Buffer.from(datagramText(packet.id)) };

/** Returns the kernel's filter for a packet. `from`: the local port of a datagram; null: it is sent elsewhere. */
export function filterOf(packet: TracedPacket, from: number | null): FlowFilter {
  if (packet.protocol === 'UDP') {
    const { protocol, ports } = packet;
    return { protocol, ports: [...new Set([...(from === null ? [] : [from]), ...ports])] };
  }
  const { protocol, sequence, relayPorts } = packet;
  return { protocol, sequence, window: SEQUENCE_WINDOW, ports: relayPorts };
}
