import type { Outcome } from '../../failover/outcome.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import type { SocketAddress } from '../../lib/address.ts';
import type { FlowEvent, FlowEventKind } from '../flow-event.ts';
import { formatMapped, type MappedEndpoint, readEvent } from './entries.ts';
import { EVENT_KIND } from './generated/layout.ts';
import type { RejectedClients } from './rejected-clients.ts';

const KINDS: ReadonlyMap<number, FlowEventKind> = new Map<number, FlowEventKind>([
  [EVENT_KIND.CHOSEN, 'chosen'],
  [EVENT_KIND.ESTABLISHED, 'established'],
  [EVENT_KIND.TIMED_OUT, 'timeout'],
  [EVENT_KIND.RESET, 'reset'],
  [EVENT_KIND.EJECTED, 'ejected'],
  [EVENT_KIND.RECOVERED, 'recovered'],
  [EVENT_KIND.REROUTED, 'rerouted'],
  [EVENT_KIND.CLOSED, 'closed'],
  [EVENT_KIND.GIVEN_UP, 'given-up'],
  [EVENT_KIND.UNREACHABLE, 'unreachable'],
  [EVENT_KIND.REJECTED, 'rejected'],
]);

const UNKNOWN_CLIENT = { ipv4: '0.0.0.0', ipv6: '::' } as const;

/** Returns the cookie of a rejected client's network namespace, which the programs know instead of its address. */
const namespaceOf = ({ address }: MappedEndpoint): bigint =>
  new DataView(address.buffer, address.byteOffset).getBigUint64(0, true);

/**
 * Decodes a record of the event ring; returns null for a kind that this release does not know. A rejected client without a
 * visible namespace has the unspecified address.
 */
export function readFlowEvent(record: Uint8Array, clients: RejectedClients): FlowEvent | null {
  const event = readEvent(record);
  const kind = KINDS.get(event.kind);
  if (kind === undefined) return null;
  const end = ({ address, port }: MappedEndpoint): SocketAddress => ({ ip: formatMapped(address), port });
  const service = end(event.service);
  const rejectedClient = (): SocketAddress => {
    const found = clients.addressOf(namespaceOf(event.client), service.ip);
    return {
      ip: found ?? UNKNOWN_CLIENT[service.ip.includes(':') ? 'ipv6' : 'ipv4'],
      port: event.client.port,
    };
  };
  const isRejected = kind === 'rejected';
  return {
    kind,
    protocol: event.protocol === PROTOCOL_NUMBER.UDP ? 'UDP' : 'TCP',
    client: isRejected ? rejectedClient() : end(event.client),
    service,
    endpoint: isRejected ? null : end(event.endpoint),
    proxy: null,
    // Programs report the duration of an ejection in milliseconds.
    micros: kind === 'ejected' ? event.micros * 1000 : event.micros,
    at: event.at,
  };
}

/** Returns the outcome of an event for the ejection policy; null: none. */
export function outcomeOf({ kind, protocol, service, endpoint, client }: FlowEvent): Outcome | null {
  if (!endpoint) return null;
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
