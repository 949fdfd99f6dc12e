import { decide } from './decide.ts';
import type { Decision, GatewayRequest } from './decision.ts';
import type { RequestGateways } from './request-gateways.ts';
import { readHost } from './request-host.ts';
import type { RequestUrl } from './request-url.ts';
import type {
  CookieAffinity,
  Forward,
  GatewayKey,
  HeaderChanges,
  HostPattern,
  PathMatch,
  RouteRef,
  RouteRow,
  ValueMatch,
  WeightedBackend,
} from './route-map.ts';
import { findUnaccepted, type Unaccepted } from './unaccepted.ts';

/** What a gateway does with a request. */
export interface ExplainedRequest {
  readonly method: 'GET';
  readonly url: string;
  readonly gateway: GatewayKey;
  /** Where the client connects to; null: the gateway has no address yet. */
  readonly address: string | null;
  readonly port: number;
  /** Other gateways that have the URL's name as well. */
  readonly others: readonly GatewayKey[];
  readonly listener: string | null;
  readonly route: RouteRef | null;
  readonly match: ExplainedMatch | null;
  /** `passed`: bytes are passed on by the server name; `closed`: the connection is closed, or its handshake refused. */
  readonly result: 'forwarded' | 'redirected' | 'answered' | 'closed' | 'passed';
  /** Of a redirect or an answer of the gateway itself. */
  readonly status: number | null;
  readonly reason: string | null;
  readonly location: string | null;
  readonly filters: ExplainedFilters;
  readonly backends: readonly ExplainedBackend[];
  readonly timeouts: Forward['timeouts'] | null;
  readonly retry: Forward['retry'];
  readonly affinity: CookieAffinity | null;
  /** Objects for this host or path that are not accepted, or in part only. */
  readonly unaccepted: readonly Unaccepted[];
  readonly notes: readonly string[];
  /** The command that explains the connection from the proxy of a node to the backend; null: there is none. */
  readonly next: string | null;
}

export interface ExplainedMatch {
  /** "": every host. */
  readonly hostname: HostPattern;
  readonly path: PathMatch;
  readonly method: string | null;
  readonly headers: readonly ValueMatch[];
  readonly query: readonly ValueMatch[];
}

export interface ExplainedFilters {
  /** What the backend sees in place of the request's; null: the same. */
  readonly host: string | null;
  readonly target: string | null;
  readonly request: HeaderChanges;
  readonly response: HeaderChanges;
  /** Origins that may read answers; null: no CORS. */
  readonly cors: readonly string[] | null;
  readonly mirrors: readonly { readonly backend: string; readonly share: number }[];
  readonly bodyLimit: number | null;
}

export interface ExplainedBackend {
  /** "NAMESPACE/NAME" of the Service; null: its share is answered with an error. */
  readonly service: string | null;
  readonly port: number | null;
  readonly protocol: 'http1' | 'h2c' | 'websocket' | 'tcp' | 'udp' | null;
  readonly tls: boolean;
  /** 0 to 1. */
  readonly share: number;
  readonly reason: string | null;
  readonly request: HeaderChanges;
  readonly response: HeaderChanges;
}

/** Where a request goes, by what is known before it is sent. */
export interface RequestWay {
  readonly gateway: GatewayKey;
  readonly others: readonly GatewayKey[];
  readonly address: string | null;
  /** The client's address as the gateway sees it; null: not known. */
  readonly source: string | null;
}

const NO_CHANGES: HeaderChanges = { set: [], add: [], remove: [] };
const NO_FILTERS: ExplainedFilters = {
  ...{ host: null, target: null, request: NO_CHANGES, response: NO_CHANGES },
  ...{ cors: null, mirrors: [], bodyLimit: null },
};
/** More would hide the answer. */
const MAX_UNACCEPTED = 8;

/** Explains what a gateway does with GET of a URL. */
export function explainRequest(
  gateways: RequestGateways,
  url: RequestUrl,
  { gateway, others, address, source }: RequestWay,
): ExplainedRequest {
  const request: GatewayRequest = {
    ...{ gateway, port: url.port, transport: 'tcp', serverName: url.serverName, method: 'GET' },
    ...{ host: url.host, target: url.target, headers: [], source },
  };
  const decision = decide(gateways.index, request);
  const row = rowOf(gateways, request, decision);
  const unaccepted = findUnaccepted(gateways.objects, gateways.attached, url)
    .filter((one) => one.gateway === gateway)
    .sort((a, b) => Number(b.named) - Number(a.named))
    .slice(0, MAX_UNACCEPTED)
    .map(({ gateway: _gateway, named: _named, ...said }) => said);
  return {
    ...{ method: 'GET', url: url.text, gateway, address, port: url.port, others },
    ...{ listener: decision.listener, route: 'route' in decision ? decision.route : null },
    match: row && matchOf(row),
    ...{ status: null, reason: null, location: null, filters: NO_FILTERS, backends: [] },
    ...{ timeouts: null, retry: null, affinity: null },
    ...outcomeOf(gateways, url, decision, row?.row ?? null),
    ...{ unaccepted, notes: [], next: null },
  };
}

interface FoundRow {
  readonly hostname: HostPattern;
  readonly row: RouteRow;
}

/** Finds the row of a decision: that of its id in the table of the request's host. */
function rowOf({ index }: RequestGateways, request: GatewayRequest, decision: Decision): FoundRow | null {
  const id = 'row' in decision ? decision.row : null;
  const port = index.port(request.gateway, request.port, request.transport);
  const host = readHost(request.host);
  if (id === null || host === null || port === null || port.kind === 'stream') return null;
  const table = port.listeners.find(host)?.hosts.find(host)?.table;
  const row = table?.rows.find((one) => one.id === id);
  return table && row ? { hostname: table.hostname, row } : null;
}

const matchOf = ({ hostname, row }: FoundRow): ExplainedMatch => ({
  hostname,
  path: row.path,
  method: row.method,
  headers: row.headers,
  query: row.query,
});

type Outcome = Pick<ExplainedRequest, 'result'> & Partial<ExplainedRequest>;

function outcomeOf(
  gateways: RequestGateways,
  url: RequestUrl,
  decision: Decision,
  row: RouteRow | null,
): Outcome {
  switch (decision.kind) {
    case 'close':
      return { result: 'closed', reason: decision.reason };
    case 'error':
      return { result: 'answered', status: decision.status, reason: decision.reason };
    case 'redirect': {
      const { status, location, response } = decision;
      return { result: 'redirected', status, location, filters: { ...NO_FILTERS, response } };
    }
    case 'preflight':
      return { result: 'answered', status: decision.status, reason: 'a preflight of CORS' };
    case 'stream': {
      const reason = decision.terminated
        ? 'TLS ends at the gateway, and the bytes are passed on'
        : 'the bytes are passed on by the server name';
      return { result: 'passed', reason, backends: backendsOf(gateways, decision.backends) };
    }
    case 'forward': {
      const { host, target, request, response, mirrors, bodyLimit, timeouts, retry, affinity } = decision;
      return {
        result: 'forwarded',
        filters: {
          host: host === url.host ? null : host,
          target: target === url.target ? null : target,
          request,
          response,
          cors: row?.action.kind === 'forward' && row.action.cors !== null ? row.action.cors.origins : null,
          mirrors: mirrors.map(({ backend, numerator, denominator }) => ({
            backend: shownBackend(gateways, backend),
            share: denominator === 0 ? 0 : numerator / denominator,
          })),
          bodyLimit,
        },
        backends: backendsOf(gateways, decision.backends),
        ...{ timeouts, retry, affinity },
      };
    }
  }
}

function shownBackend({ routeMap }: RequestGateways, key: string): string {
  const found = routeMap.backends.find((one) => one.key === key);
  return found ? `${found.namespace}/${found.service}:${found.port}` : key;
}

function backendsOf(
  { routeMap }: RequestGateways,
  weighted: readonly WeightedBackend[],
): readonly ExplainedBackend[] {
  const total = weighted.reduce((sum, { weight }) => sum + weight, 0);
  return weighted.map(({ backend, weight, reason, request, response }) => {
    const found = backend === null ? undefined : routeMap.backends.find(({ key }) => key === backend);
    return {
      service: found ? `${found.namespace}/${found.service}` : null,
      port: found?.port ?? null,
      protocol: found?.protocol ?? null,
      tls: found !== undefined && found.tls !== null,
      share: total === 0 ? 0 : weight / total,
      ...{ reason, request, response },
    };
  });
}

/** Returns the command that explains the connection from a node's proxy to the backend with the largest share. */
export function nextCommand({ backends }: Pick<ExplainedRequest, 'backends'>, node: string): string | null {
  let best: ExplainedBackend | null = null;
  for (const one of backends)
    if (one.service !== null && one.share > 0 && (best === null || one.share > best.share)) best = one;
  return best && `fairlead explain node/${node} svc/${best.service}:${best.port}`;
}
