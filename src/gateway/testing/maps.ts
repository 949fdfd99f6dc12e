import type {
  Backend,
  Forward,
  HostTable,
  HttpListener,
  PathMatch,
  RouteAction,
  RouteMap,
  RouteRow,
} from '../route-map.ts';

/** Builders of route maps for tests: every field that a test does not name has its simplest value. */

export const NO_CHANGES = { set: [], add: [], remove: [] } as const;

export function forward(
  backends: string | readonly (readonly [string | null, number])[],
  more: Partial<Forward> = {},
): Forward {
  const list = typeof backends === 'string' ? [[backends, 1] as const] : backends;
  return {
    kind: 'forward',
    protocol: 'http',
    backends: list.map(([backend, weight]) => ({
      backend,
      weight,
      request: NO_CHANGES,
      response: NO_CHANGES,
      reason: null,
    })),
    request: NO_CHANGES,
    response: NO_CHANGES,
    rewrite: null,
    mirrors: [],
    cors: null,
    timeouts: { request: null, backend: null, connect: null },
    retry: null,
    affinity: null,
    bodyLimit: null,
    sources: [],
    ...more,
  };
}

export function row(
  id: string,
  path: PathMatch | string,
  action: RouteAction | string,
  more: Partial<RouteRow> = {},
): RouteRow {
  return {
    id,
    route: { kind: 'HTTPRoute', namespace: 'default', name: id, rule: 0 },
    path: typeof path === 'string' ? { kind: 'prefix', path } : path,
    method: null,
    headers: [],
    query: [],
    action: typeof action === 'string' ? forward(action) : action,
    ...more,
  };
}

export const table = (hostname: string, rows: readonly RouteRow[], oneLabel = false): HostTable => ({
  hostname,
  oneLabel,
  rows,
});

export const listener = (hostname: string, hosts: readonly HostTable[], name = 'http'): HttpListener => ({
  name,
  hostname,
  hosts,
});

export function backend(key: string, more: Partial<Backend> = {}): Backend {
  const [place = '', port = '80'] = key.split(':');
  const [namespace = '', service = ''] = place.split('/');
  return { key, namespace, service, port: Number.parseInt(port, 10), protocol: 'http1', tls: null, ...more };
}

/** A map with one gateway, one port for HTTP, and the backends that its rows name. */
export function httpMap(listeners: readonly HttpListener[], more: readonly Backend[] = []): RouteMap {
  const named = listeners
    .flatMap(({ hosts }) => hosts)
    .flatMap(({ rows }) => rows)
    .flatMap(({ action }) => (action.kind === 'forward' ? action.backends : []))
    .flatMap(({ backend: key }) => key ?? []);
  const keys = [...new Set(named)].filter((key) => !more.some((one) => one.key === key));
  return {
    gateways: [{ key: 'ingress/fairlead', addresses: [], ports: [{ kind: 'http', port: 80, listeners }] }],
    backends: [...more, ...keys.map((key) => backend(key))].sort((a, b) => (a.key < b.key ? -1 : 1)),
  };
}
