import type { ExplainView, Origin } from './explain-view.ts';
import type { Cause } from './explanation.ts';

interface Query {
  readonly source: string;
  readonly destination: string;
  readonly port: number;
  readonly protocol: string;
}

const DNS_PORT = 53;

/** The node drops a part of the DNS queries over UDP of a client that sends more than it may. */
export function limitedClient(
  view: ExplainView,
  { label }: Origin,
  { source, destination, port, protocol }: Query,
): Cause | null {
  if (protocol !== 'UDP' || port !== DNS_PORT || !view.isLimited?.(source, destination)) return null;
  return {
    text: `${label} sends more DNS queries than the limit of one client: those above it are dropped without an answer`,
    object: label,
    field: null,
    fix: 'let its programs keep answers, send fewer queries, or ask over TCP (fairlead flows counts the dropped queries)',
  };
}
