import type { DnsLine, FlowLine } from '../flows/flow-line.ts';
import type { EdgeVerdict, EdgeView, FlowTick } from './view.ts';

/** Who has an address, for edges. */
export interface AddressBook {
  ownerOf(ip: string): string | null;
  nodeOf(ip: string): string | null;
  serviceOf(ip: string): string | null;
}

/** Adds up the flows of all nodes between two ticks. Its memory is bounded, regardless of the number of flows. */
export interface EdgeCounter {
  /** `node`: the node that reported the entry. */
  add(entry: FlowLine | DnsLine, node: string): void;
  /** Returns the flows since the previous call. */
  take(seconds: number): FlowTick;
}

interface Edge {
  readonly client: string;
  readonly service: string | null;
  readonly endpoint: string | null;
  readonly verdict: EdgeVerdict;
  count: number;
  latencySumUs: number;
  latencyCount: number;
  reason: string | null;
}

/** Edges that are kept apart within a tick; more are counted by their Services only. */
const MAX_KEPT = 4000;
/** Services that are counted within a tick. */
const MAX_SERVICES = 20_000;
/** Edges that a tick shows: those that fail first, then the busiest. */
export const MAX_SHOWN = 600;

export function createEdgeCounter(book: AddressBook): EdgeCounter {
  let edges = new Map<string, Edge>();
  let services = new Map<string, [count: number, failed: number]>();
  let total = 0;
  let unkept = 0;

  const add = (edge: Omit<Edge, 'count' | 'latencySumUs' | 'latencyCount'>, micros: number | null) => {
    total++;
    const { client, service, endpoint, verdict, reason } = edge;
    if (service !== null) {
      const counts = services.get(service);
      if (counts) {
        counts[0]++;
        if (isFailure(verdict)) counts[1]++;
      } else if (services.size < MAX_SERVICES) services.set(service, [1, isFailure(verdict) ? 1 : 0]);
    }
    const key = `${client} ${service ?? ''} ${endpoint ?? ''} ${verdict}`;
    let kept = edges.get(key);
    if (!kept) {
      if (edges.size >= MAX_KEPT) {
        unkept++;
        return;
      }
      kept = { ...edge, count: 0, latencySumUs: 0, latencyCount: 0 };
      edges.set(key, kept);
    }
    kept.count++;
    kept.reason = reason ?? kept.reason;
    if (micros !== null) {
      kept.latencySumUs += micros;
      kept.latencyCount++;
    }
  };
  const nameOf = (ip: string) => book.ownerOf(ip) ?? ip;

  return {
    add(entry, node) {
      const { client } = entry;
      if (entry.type === 'dns') {
        // The node of the client shows a lookup; other nodes see the same packets.
        if ((book.nodeOf(client.ip) ?? node) !== node) return;
        const service = book.serviceOf(entry.server.ip);
        const reason =
          entry.verdict === 'delivered'
            ? null
            : `lookup of ${entry.name}: ${entry.reason ?? entry.rcode ?? 'no answer'}`;
        const endpoint = service === null ? nameOf(entry.server.ip) : null;
        const { verdict, micros } = entry;
        add({ client: nameOf(client.ip), service, endpoint, verdict, reason }, micros);
        return;
      }
      const verdict: EdgeVerdict | null = entry.kind === 'chosen' ? 'sent' : entry.verdict;
      // It is counted when it begins, or fails.
      if (verdict === null || entry.kind === 'aborted' || entry.kind === 'recovered') return;
      if (entry.service === null && (book.nodeOf(client.ip) ?? node) !== node) return;
      const service = entry.service === null ? null : serviceName(entry.service);
      const endpoint = entry.endpoint === null ? null : nameOf(entry.endpoint.ip);
      const { reason } = entry;
      add(
        { client: nameOf(client.ip), service, endpoint, verdict, reason },
        verdict === 'delivered' ? entry.micros : null,
      );
    },
    take(seconds) {
      const all = [...edges.values()].sort(
        (a, b) => Number(isFailure(b.verdict)) - Number(isFailure(a.verdict)) || b.count - a.count,
      );
      const tick: FlowTick = {
        seconds,
        edges: all.slice(0, MAX_SHOWN).map(viewEdge),
        total,
        omittedEdges: Math.max(0, all.length - MAX_SHOWN) + unkept,
        services: Object.fromEntries(services),
      };
      edges = new Map();
      services = new Map();
      total = 0;
      unkept = 0;
      return tick;
    },
  };
}

/** Reports whether a verdict is a failure. */
export const isFailure = (verdict: EdgeVerdict): boolean => verdict !== 'delivered' && verdict !== 'sent';

function viewEdge({ latencySumUs, latencyCount, ...edge }: Edge): EdgeView {
  return { ...edge, latencyMs: latencyCount === 0 ? null : latencySumUs / latencyCount / 1000 };
}

/** "namespace/name" of "namespace/name:port name"; the address if no Service has it now. */
function serviceName({ name, ip, port }: { name: string | null; ip: string; port: number }): string {
  if (name === null) return `${ip}:${port}`;
  const colon = name.indexOf(':');
  return colon === -1 ? name : name.slice(0, colon);
}
