import type { Outcome } from '../../failover/outcome.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import type { SocketAddress } from '../../lib/address.ts';
import type { FlowEvent, FlowEventKind } from '../flow-event.ts';
import { formatMapped, readEndpoint, viewOf } from './entries.ts';
import { EVENT, EVENT_KIND } from './generated/layout.ts';
import type { RejectedClients } from './rejected-clients.ts';

const KINDS = new Map<number, FlowEventKind>([
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

/**
 * Decodes a record of the event ring; returns null for a kind that this release does not know. A rejected client without a
 * visible namespace has the unspecified address.
 */
export function readFlowEvent(record: Uint8Array, clients: RejectedClients): FlowEvent | null {
  const view = viewOf(record);
  const kind = KINDS.get(view.getUint32(EVENT.kind, true));
  if (kind === undefined) return null;
  const read = (at: number, portAt: number): SocketAddress => {
    const { address, port } = readEndpoint(record, at, portAt);
    return { ip: formatMapped(address), port };
  };
  let client = read(EVENT.client, EVENT.client_port);
  const service = read(EVENT.service, EVENT.service_port);
  const isRejected = kind === 'rejected';
  if (isRejected) {
    // Instead of the client's address, the programs know the cookie of its network namespace.
    const found = clients.addressOf(view.getBigUint64(EVENT.client, true), service.ip);
    client = { ...client, ip: found ?? UNKNOWN_CLIENT[service.ip.includes(':') ? 'ipv6' : 'ipv4'] };
  }
  const micros = view.getUint32(EVENT.micros, true);
  return {
    kind,
    protocol: record[EVENT.protocol] === PROTOCOL_NUMBER.UDP ? 'UDP' : 'TCP',
    client,
    service,
    endpoint: isRejected ? null : read(EVENT.endpoint, EVENT.endpoint_port),
    proxy: null,
    // Programs report the duration of an ejection in milliseconds.
    micros: kind === 'ejected' ? micros * 1000 : micros,
    at: view.getBigUint64(EVENT.at, true),
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
