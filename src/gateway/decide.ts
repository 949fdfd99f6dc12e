import { cidrContains, parseCidr } from '../lib/address.ts';
import { corsHeaders, isPreflight, preflightHeaders } from './cors.ts';
import type { Decision, GatewayRequest } from './decision.ts';
import { findRow, type IndexedRow, type RequestParts } from './path-index.ts';
import { readHost } from './request-host.ts';
import { pathRefusal } from './request-path.ts';
import { locationOf, rewritePath } from './rewrite.ts';
import type { HostLookup, IndexedListener, RouteIndex } from './route-index.ts';
import type { Forward, HttpListener, RouteRow, StreamPort, TlsListener } from './route-map.ts';

/** Interprets a RouteMap: what a gateway must do with a request. Every rendering of the map has to agree. */
export function decide(index: RouteIndex, request: GatewayRequest): Decision {
  const port = index.port(request.gateway, request.port, request.transport);
  if (port === null) return close(null, `no listener has port ${request.port}`);
  if (port.kind === 'stream') return decideStream(port.plan);
  if (port.kind === 'http') {
    if (request.serverName !== null) return close(null, `port ${request.port} has no TLS`);
    return decideHttp(port.listeners, request, null);
  }
  if (request.serverName === null) return close(null, `port ${request.port} has TLS only`);
  const serverName = request.serverName.toLowerCase();
  const found = port.listeners.find(serverName);
  if (!found) return close(null, `no listener has the server name ${request.serverName || '(none)'}`);
  const { listener } = found;
  if (listener.kind === 'https') return decideHttp(port.listeners, request, listener.name);
  const host = found.names.find(serverName);
  if (!host) return close(listener.name, 'no route has this server name');
  const terminated = listener.kind === 'terminate';
  return host.backends.length === 0
    ? close(listener.name, 'the route has no backends')
    : { kind: 'stream', listener: listener.name, route: host.route, terminated, backends: host.backends };
}

const close = (listener: string | null, reason: string): Decision => ({ kind: 'close', listener, reason });

function decideStream({ listener, route, backends }: StreamPort): Decision {
  if (route === null) return close(listener, 'no route is attached');
  if (backends.length === 0) return close(listener, 'the route has no backends');
  return { kind: 'stream', listener, route, terminated: false, backends };
}

const failed = (listener: string | null, status: number, reason: string): Decision => ({
  kind: 'error',
  listener,
  row: null,
  route: null,
  status,
  reason,
});

/** `connection`: the listener that the server name chose; null: without TLS. */
function decideHttp(
  listeners: HostLookup<IndexedListener<HttpListener | TlsListener>>,
  request: GatewayRequest,
  connection: string | null,
): Decision {
  const host = readHost(request.host);
  if (host === null) return failed(connection, 400, 'the Host header is missing or not a host');
  const mark = request.target.indexOf('?');
  const path = mark < 0 ? request.target : request.target.slice(0, mark);
  const refusal = pathRefusal(path);
  if (refusal !== null) return failed(connection, 400, `the path ${refusal}`);
  const found = listeners.find(host);
  if (!found) return failed(connection, 404, 'no listener has this host');
  const { name } = found.listener;
  if (connection !== null && name !== connection)
    return failed(connection, 421, `the connection is for listener ${connection}, the host for ${name}`);
  const table = found.hosts.find(host);
  if (!table) return failed(name, 404, 'no route has this host');
  const query = mark < 0 ? '' : request.target.slice(mark);
  const parts = partsOf(request, path, query);
  const row = findRow(table.paths(), parts);
  if (!row) return failed(name, 404, 'no route matches');
  return applyAction(row, { request, parts, host, query, listener: name, secure: connection !== null });
}

interface Matched {
  readonly request: GatewayRequest;
  readonly parts: RequestParts;
  readonly host: string;
  readonly query: string;
  readonly listener: string;
  readonly secure: boolean;
}

function partsOf(request: GatewayRequest, path: string, query: string): RequestParts {
  const headers = request.headers.map(({ name, value }) => ({ name: name.toLowerCase(), value }));
  return {
    path,
    method: request.method,
    headers,
    header: (name) => headers.filter((header) => header.name === name).map(({ value }) => value),
    query: (name) => firstParameter(query, name),
  };
}

/** Returns the first value of a parameter as it was sent, without decoding; null: there is none. */
function firstParameter(query: string, name: string): string | null {
  for (const part of query.slice(1).split('&')) {
    const equals = part.indexOf('=');
    if ((equals < 0 ? part : part.slice(0, equals)) === name) return equals < 0 ? '' : part.slice(equals + 1);
  }
  return null;
}

function applyAction(found: IndexedRow, matched: Matched): Decision {
  const { row } = found;
  const { action } = row;
  const decided = { listener: matched.listener, row: row.id, route: row.route };
  switch (action.kind) {
    case 'error':
      return { kind: 'error', ...decided, status: action.status, reason: action.reason };
    case 'redirect': {
      const path = rewritePath(action.path, matched.parts.path, row.path, groupsOf(found, matched));
      const place = { ...matched, port: matched.request.port, path };
      return {
        kind: 'redirect',
        ...decided,
        status: action.status,
        location: locationOf(action, place),
        response: action.response,
      };
    }
    case 'forward':
      return forward(found, row, action, matched);
  }
}

const groupsOf = ({ path }: IndexedRow, { parts }: Matched): readonly (string | undefined)[] | null =>
  path?.match(parts.path) ?? null;

function forward(found: IndexedRow, row: RouteRow, action: Forward, matched: Matched): Decision {
  const { request, parts, query, listener } = matched;
  const decided = { listener, row: row.id, route: row.route };
  if (!sourceAllowed(action.sources, request.source))
    return {
      kind: 'error',
      ...decided,
      status: 403,
      reason: `the client ${request.source} is of no allowed range`,
    };
  const [origin] = action.cors === null ? [] : parts.header('origin');
  if (action.cors !== null && origin !== undefined && isPreflight(request.method, parts.header)) {
    const [method = ''] = parts.header('access-control-request-method');
    const [names = null] = parts.header('access-control-request-headers');
    return {
      kind: 'preflight',
      ...decided,
      status: 200,
      headers: preflightHeaders(action.cors, origin, method, names),
    };
  }
  const length = action.bodyLimit === null ? 0 : Number(parts.header('content-length')[0] ?? 0);
  if (action.bodyLimit !== null && length > action.bodyLimit)
    return {
      kind: 'error',
      ...decided,
      status: 413,
      reason: `the body is larger than ${action.bodyLimit} bytes`,
    };
  const { rewrite } = action;
  const path =
    rewrite === null || rewrite.path === null
      ? parts.path
      : rewritePath(rewrite.path, parts.path, row.path, groupsOf(found, matched));
  return {
    kind: 'forward',
    ...decided,
    protocol: action.protocol,
    backends: action.backends,
    host: rewrite?.host ?? request.host,
    target: path + query,
    request: action.request,
    response: action.response,
    cors: action.cors === null || origin === undefined ? [] : corsHeaders(action.cors, origin),
    mirrors: action.mirrors,
    timeouts: action.timeouts,
    retry: action.retry,
    affinity: action.affinity,
    bodyLimit: action.bodyLimit,
  };
}

/** Reports whether a client may send this request. One whose address is not known may not, if there are ranges. */
function sourceAllowed(ranges: readonly string[], source: string | null): boolean {
  if (ranges.length === 0) return true;
  if (source === null) return false;
  return ranges.some((range) => {
    const cidr = parseCidr(range);
    return cidr !== null && cidrContains(cidr, source);
  });
}
