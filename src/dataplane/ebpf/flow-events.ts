import type { Outcome } from '../../failover/outcome.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import type { SocketAddress } from '../../lib/address.ts';
import type { FlowEvent, FlowEventKind } from '../flow-event.ts';
import { formatMapped, type MappedEndpoint, readEvent } from './entries.ts';
import { EVENT_KIND } from './generated/layout.ts';

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
]);

/** Decodes a record of the event ring; returns null for a kind that this release does not know. */
export function readFlowEvent(record: Uint8Array): FlowEvent | null {
  const event = readEvent(record);
  const kind = KINDS.get(event.kind);
  if (kind === undefined) return null;
  const end = ({ address, port }: MappedEndpoint): SocketAddress => ({ ip: formatMapped(address), port });
  return {
    kind,
    protocol: event.protocol === PROTOCOL_NUMBER.UDP ? 'UDP' : 'TCP',
    client: end(event.client),
    service: end(event.service),
    endpoint: end(event.endpoint),
    proxy: null,
    // Programs report the duration of an ejection in milliseconds.
    micros: kind === 'ejected' ? event.micros * 1000 : event.micros,
    at: event.at,
  };
}

/** Returns the outcome of an event for the ejection policy; null: none. */
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
