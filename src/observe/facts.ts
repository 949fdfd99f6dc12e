import type { IPFamily } from '../lib/address.ts';
import type { Explanation } from './explanation.ts';
import type { EntryRequest, FactRequest, Place, SocketProtocol } from './fact-requests.ts';
import type { Filters } from './filter-rules.ts';

/**
 * The inputs of `explain` in addition to API objects and forwarding tables. An explanation is computed from the known
 * facts; it names the missing ones, the caller collects them, and it is computed again.
 */

/** A socket that accepts new connections, or datagrams from any peer. */
export interface ListeningSocket {
  /** Canonical; "0.0.0.0" and "::" mean every address. */
  readonly address: string;
  readonly port: number;
  /** A socket on "::" does not accept IPv4 (IPV6_V6ONLY). */
  readonly v6Only: boolean;
  /** So many connections wait to be accepted that the kernel drops others. */
  readonly isFull: boolean;
}

/** The route that the kernel chooses; `type` as in ip-route(8). */
export interface RouteFound {
  readonly type: string;
  /** Null: the destination is on the link. */
  readonly via: string | null;
  /** The source address of a process that uses the route. */
  readonly source: string | null;
  /**
   * The source address of masqueraded packets: an address of the device, independent of the route's preferred source.
   */
  readonly masqueradeSource: string | null;
  /** Index of the device; absent: unknown. */
  readonly device?: number | undefined;
}

/** One question to a name server and its result. */
export interface NameTry {
  /** The full name in the question, without the final dot. */
  readonly name: string;
  /** The name server's address. */
  readonly server: string;
  /** An RCODE by its name, "no answer", or the system's error. */
  readonly result: string;
  /** Targets of CNAME records, in order. */
  readonly aliases: readonly string[];
  readonly addresses: readonly string[];
}

/** The resolution of a name at the origin of the flow, as by the C library. */
export interface NameLog {
  readonly servers: readonly string[];
  readonly search: readonly string[];
  readonly ndots: number;
  /** Found in /etc/hosts, without questions. */
  readonly fromHosts: boolean;
  readonly tries: readonly NameTry[];
  /** In the order of the answer; empty: the name does not resolve. */
  readonly addresses: readonly string[];
}

export type FactAnswer =
  | { readonly kind: 'sockets'; readonly sockets: readonly ListeningSocket[] }
  /** Null: no route exists. */
  | { readonly kind: 'route'; readonly route: RouteFound | null }
  | { readonly kind: 'names'; readonly log: NameLog }
  /** Whether `fairlead fault` has planted a fault there. */
  | { readonly kind: 'fault'; readonly isPlanted: boolean }
  /** The tables of other programs there. */
  | { readonly kind: 'filters'; readonly filters: Filters }
  | { readonly kind: 'entry'; readonly explanation: Explanation }
  /** The fact could not be collected. */
  | { readonly kind: 'failed'; readonly reason: string };

/** A request and its answer. */
export type Fact = readonly [FactRequest, FactAnswer];

/** Facts as `explain` reads them; undefined: not known, which `missing` or `failures` records. */
export interface Facts {
  sockets(place: Place, protocol: SocketProtocol): readonly ListeningSocket[] | undefined;
  route(place: Place, destination: string): RouteFound | null | undefined;
  fault(place: Place): boolean | undefined;
  /** Absent in tests: no tables of other programs. */
  filters?(place: Place): Filters | undefined;
  names(place: Place, name: string, family: IPFamily | null): NameLog | undefined;
  entry(packet: Omit<EntryRequest, 'kind'>): Explanation | undefined;
  /** Requests without an answer. */
  readonly missing: readonly FactRequest[];
  /** The errors of requests that failed. */
  readonly failures: readonly string[];
}

/** Known facts by `factKey`. */
export type FactIndex = ReadonlyMap<string, FactAnswer>;

export const indexFacts = (facts: Iterable<Fact>): FactIndex =>
  new Map([...facts].map(([request, answer]) => [factKey(request), answer]));

/** Returns known facts for one explanation. */
export function knownFacts(known: FactIndex): Facts {
  const missing = new Map<string, FactRequest>();
  const failures = new Set<string>();
  const find = (request: FactRequest): FactAnswer | undefined => {
    const key = factKey(request);
    const answer = known.get(key);
    if (!answer) missing.set(key, request);
    if (answer?.kind === 'failed') failures.add(answer.reason);
    return answer;
  };
  return {
    sockets(place, protocol) {
      const answer = find({ kind: 'sockets', place: ofNetwork(place), protocol });
      return answer?.kind === 'sockets' ? answer.sockets : undefined;
    },
    route(place, destination) {
      const answer = find({ kind: 'route', place: ofNetwork(place), destination });
      return answer?.kind === 'route' ? answer.route : undefined;
    },
    fault(place) {
      const answer = find({ kind: 'fault', place: ofNetwork(place) });
      return answer?.kind === 'fault' ? answer.isPlanted : undefined;
    },
    filters(place) {
      const answer = find({ kind: 'filters', place: ofNetwork(place) });
      return answer?.kind === 'filters' ? answer.filters : undefined;
    },
    names(place, name, family) {
      const answer = find({ kind: 'names', place, name, family });
      return answer?.kind === 'names' ? answer.log : undefined;
    },
    entry(packet) {
      const answer = find({ kind: 'entry', ...packet });
      return answer?.kind === 'entry' ? answer.explanation : undefined;
    },
    get missing() {
      return [...missing.values()];
    },
    get failures() {
      return [...failures];
    },
  };
}

export const factKey = (request: FactRequest): string => JSON.stringify(request);

/** Pods with hostNetwork share their node's sockets and routes. */
function ofNetwork(place: Place): Place {
  return place.kind === 'host-pod' ? { kind: 'node', node: place.node } : place;
}
