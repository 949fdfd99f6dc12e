import type { FlowEvent } from '../dataplane/flow-event.ts';
import { familyOf, hostPort, type SocketAddress } from '../lib/address.ts';
import type { PortRef, ServiceMap } from '../service/model.ts';
import { frontendKey } from '../service/service-compiler.ts';
import type { ConnectionOutcome, SeenConnection } from './connection-table.ts';
import { type FlowLine, type FlowsEntry, type FlowVerdict, verdictOf } from './flow-line.ts';
import type { NameLookup } from './name-lookups.ts';
import { policyDenial, type ReasonTables, reasonOf, refusalText } from './reason.ts';
import type { StalledSegment } from './stalled-segments.ts';

/** Joins what the node's mode reports and what the packets show, so that each flow is reported once. */
export interface FlowMerge {
  /** An event of the node's mode. */
  event(event: FlowEvent): void;
  /** A connection that the packets show, after the mode had time to report it. */
  connection(seen: SeenConnection): void;
  lookup(lookup: NameLookup): void;
  /** A connection that does not go on. */
  stall(stalled: StalledSegment): void;
}

export interface FlowMergeOptions {
  readonly tables: () => ReasonTables;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** Nanoseconds of the monotonic clock. */
  readonly monotonic: () => bigint;
  readonly emit: (entry: FlowsEntry) => void;
}

/** How many clients' connections are remembered, so that they are not reported twice. */
const MAX_REMEMBERED = 16_384;

const KIND_OF: Readonly<Record<ConnectionOutcome, FlowLine['kind']>> = {
  answered: 'established',
  refused: 'reset',
  unreachable: 'unreachable',
  unanswered: 'timeout',
  reset: 'aborted',
};

export function createFlowMerge({ tables, now, monotonic, emit }: FlowMergeOptions): FlowMerge {
  /** The mode's latest report of a client's connection. */
  const reported = createMemory<FlowVerdict | null>();
  /** Where connections went that were answered, by the client, and by the proxy's end of the connection to the endpoint. */
  const ways = createMemory<Pick<FlowLine, 'client' | 'service' | 'endpoint'>>();
  const send = (line: FlowLine) => {
    if (line.kind === 'established') {
      const { client, service, endpoint, proxy } = line;
      for (const end of [client, proxy]) if (end) ways.put(hostPort(end), { client, service, endpoint });
    }
    emit(line);
  };
  /** Connections that were reported as failed from their packets. */
  const failed = createMemory<true>();

  return {
    event(event) {
      const { kind, protocol, client, service, endpoint, proxy, micros, at } = event;
      const verdict = verdictOf(kind);
      // Connections that a program rejects have no packets.
      if (protocol === 'TCP' && kind !== 'rejected') {
        for (const end of [client, proxy]) {
          // The end of a connection does not change how it began.
          if (end && (verdict !== null || reported.get(hostPort(end)) === undefined))
            reported.put(hostPort(end), verdict);
        }
        // Connection tracking gives up on an unanswered connection minutes later.
        if (verdict === 'no-answer' && failed.get(hostPort(client))) return;
      }
      const { map, policies } = tables();
      const isSilent = verdict === 'no-answer' || kind === 'denied';
      const denial =
        isSilent && endpoint
          ? policyDenial({ client, endpoint, protocol, isOwn: false }, { map, policies })
          : null;
      const cause = kind === 'reset' && protocol === 'TCP' ? refusalText('RST', endpoint ?? service) : null;
      const agoMs = Math.max(0, Number(monotonic() - at) / 1e6);
      const owner = map && ownerOf(service, protocol, map);
      send({
        ...{ type: 'flow', time: new Date(now() - agoMs).toISOString(), kind, protocol, client },
        verdict: denial === null ? verdict : 'dropped',
        service: { ...service, name: owner && nameOf(owner) },
        ...{ endpoint, proxy, micros },
        reason: kind === 'rejected' ? rejection(client, service, { map, policies }) : (denial ?? cause),
      });
    },
    connection(seen) {
      const { outcome, client, destination, endpoint, isOwn, micros, beganNs } = seen;
      const { map, policies } = tables();
      const owner = map && ownerOf(destination, 'TCP', map);
      const known = reported.get(hostPort(client));
      const isFailure = outcome !== 'answered';
      if (known !== undefined && (outcome !== 'reset' || known !== 'delivered')) return;
      if (!isFailure && owner) return;
      // Probes of pods and the agent's own connections.
      if (isOwn && !owner) return;
      const { kind: why, text } = reasonOf(seen, { map, policies });
      const kind = why ?? KIND_OF[outcome];
      if (isFailure) failed.put(hostPort(client), true);
      const isTranslated = hostPort(destination) !== hostPort(endpoint);
      send({
        ...{
          type: 'flow',
          time: endOf(beganNs, micros),
          kind,
          verdict: verdictOf(kind),
          protocol: 'TCP',
          client,
        },
        service: owner && { ...destination, name: nameOf(owner) },
        endpoint: owner && !isTranslated ? null : endpoint,
        ...{ proxy: null, micros, reason: text },
      });
    },
    stall({ sender, receiver, sent, beganNs, micros }) {
      const [asClient, asServer] = [ways.get(hostPort(sender)), ways.get(hostPort(receiver))];
      // Servers have the ports that many clients know.
      const isClient = asClient !== undefined || (asServer === undefined && sender.port > receiver.port);
      const [client, server] = isClient ? [sender, receiver] : [receiver, sender];
      const { map } = tables();
      const owner = map && ownerOf(server, 'TCP', map);
      const known = asClient ?? asServer;
      emit({
        ...{ type: 'flow', time: endOf(beganNs, micros), kind: 'stalled', verdict: verdictOf('stalled') },
        ...{ protocol: 'TCP', client: known?.client ?? client, proxy: null, micros },
        service: known ? known.service : owner && { ...server, name: nameOf(owner) },
        endpoint: known ? known.endpoint : owner ? null : server,
        reason: `established, then no progress: a full segment of the ${isClient ? 'client' : 'server'} was sent ${sent} times without an acknowledgment; a smaller MTU on the way? see trace and status`,
      });
    },
    lookup({ beganNs, ...lookup }) {
      const verdict = verdictOfLookup(lookup);
      emit({ type: 'dns', kind: 'dns', time: endOf(beganNs, lookup.micros), verdict, ...lookup });
    },
  };
}

/** Returns why the rules of a Service reject a client. */
function rejection(client: SocketAddress, service: SocketAddress, tables: ReasonTables): string | null {
  const { ipv4 = null, ipv6 = null } = tables.map?.node ?? {};
  return reasonOf(
    {
      ...{ client, destination: service, endpoint: service, outcome: 'refused', cause: null },
      isOwn: client.ip === ipv4 || client.ip === ipv6,
    },
    tables,
  ).text;
}

function verdictOfLookup({
  rcode,
  answers,
  reason,
}: Pick<NameLookup, 'rcode' | 'answers' | 'reason'>): FlowVerdict {
  if (reason !== null) return 'dropped';
  switch (rcode) {
    case null:
      return 'no-answer';
    case 'NOERROR':
      return answers.length > 0 ? 'delivered' : 'not-found';
    case 'NXDOMAIN':
      return 'not-found';
    default:
      return 'rejected';
  }
}

/** When the outcome came. */
const endOf = (beganNs: bigint, micros: number): string =>
  new Date(Number(beganNs / 1_000_000n) + micros / 1000).toISOString();

/** Values by key; the oldest are dropped. */
function createMemory<T>() {
  const values = new Map<string, T>();
  return {
    get: (key: string): T | undefined => values.get(key),
    put(key: string, value: T) {
      values.delete(key);
      values.set(key, value);
      const [oldest] = values.keys();
      if (values.size > MAX_REMEMBERED && oldest !== undefined) values.delete(oldest);
    },
  };
}

/** Returns the port of a Service that has this address. */
function ownerOf(
  service: SocketAddress,
  protocol: FlowEvent['protocol'],
  { frontends }: ServiceMap,
): PortRef | null {
  const family = familyOf(service.ip);
  if (family === null) return null;
  const keys = [service.ip, null].map((address) => frontendKey(family, address, protocol, service.port));
  for (const key of keys) {
    const frontend = frontends.get(key);
    if (frontend) return frontend.owner;
  }
  return null;
}

const nameOf = ({ namespace, name, portName }: PortRef): string =>
  `${namespace}/${name}${portName === '' ? '' : `:${portName}`}`;
