import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import type { SocketAddress } from '../dataplane.ts';
import type { Outcome } from '../failover/outcome.ts';
import { FLOW_EVENT_KINDS, type FlowEvent } from '../flow-event.ts';
import { formatMapped } from './kernel-contents.ts';

/** Reads a record of the ring of events; null when it is of a kind that this release does not know. */
export function readFlowEvent(record: Uint8Array): FlowEvent | null {
  const view = new DataView(record.buffer, record.byteOffset, record.byteLength);
  const end = (address: number, port: number): SocketAddress => ({
    ip: formatMapped(record.subarray(address, address + 16)),
    port: view.getUint16(port),
  });
  const kind = FLOW_EVENT_KINDS[(record[63] ?? 0) - 1];
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
