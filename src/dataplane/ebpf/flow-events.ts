import type { Protocol } from '../../service/model.ts';
import type { Outcome } from '../failover/outcome.ts';
import { PROTOCOL_NUMBER } from '../words.ts';
import { formatMapped } from './kernel-contents.ts';

/** bpf/events.h, enum event_kind, in its order. */
const KINDS = [
  'chosen',
  'established',
  'timeout',
  'reset',
  'suspected',
  'recovered',
  'rescued',
  'closed',
  'given-up',
  'unreachable',
] as const;

export interface FlowEnd {
  /** Canonical. */
  readonly ip: string;
  readonly port: number;
}

/** What the programs saw of a flow through a Service. */
export interface FlowEvent {
  /**
   * `chosen`: a socket's datagrams go to this endpoint; `established`: a connection was answered after `micros`;
   * `timeout`, `reset`, `unreachable`: the endpoint did not answer a connection's first packet, refused it, or the
   * network said that it cannot be reached; `rescued`: the flow
   * goes to this endpoint instead of the one before; `closed`, `given-up`: a connection ended `micros` after it was
   * begun, or before it was answered. About the endpoint: `suspected`: new connections are kept away from it for
   * `micros`; `recovered`: it has answered, the first time since it failed somebody.
   */
  readonly kind: (typeof KINDS)[number];
  readonly protocol: Protocol;
  readonly client: FlowEnd;
  readonly service: FlowEnd;
  readonly endpoint: FlowEnd;
  readonly micros: number;
  /** Nanoseconds of the monotonic clock (`process.hrtime.bigint()`). */
  readonly at: bigint;
}

/** Reads a record of the ring of events; null when it is of a kind that this release does not know. */
export function readFlowEvent(record: Uint8Array): FlowEvent | null {
  const view = new DataView(record.buffer, record.byteOffset, record.byteLength);
  const end = (address: number, port: number): FlowEnd => ({
    ip: formatMapped(record.subarray(address, address + 16)),
    port: view.getUint16(port),
  });
  const kind = KINDS[(record[63] ?? 0) - 1];
  if (kind === undefined) return null;
  const micros = view.getUint32(64, true);
  return {
    kind,
    protocol: record[62] === PROTOCOL_NUMBER.UDP ? 'UDP' : 'TCP',
    client: end(8, 56),
    service: end(24, 58),
    endpoint: end(40, 60),
    micros: kind === 'suspected' ? micros * 1000 : micros,
    at: view.getBigUint64(0, true),
  };
}

/** What an event says about its endpoint to those who eject endpoints; null: nothing. */
export function outcomeOf({ kind, protocol, service, endpoint, client }: FlowEvent): Outcome | null {
  const report = { protocol, destination: service, endpoint, client: client.ip };
  switch (kind) {
    case 'timeout':
    case 'reset':
      return { kind, ...report };
    case 'unreachable':
      return { kind: 'timeout', ...report };
    case 'recovered':
      return { kind: 'success', ...report };
    default:
      return null;
  }
}
