import { indexPaths, type PathIndex } from './path-index.ts';
import type {
  GatewayKey,
  HostPattern,
  HostTable,
  HttpListener,
  PortPlan,
  RouteMap,
  StreamPort,
  TlsHost,
  TlsListener,
} from './route-map.ts';

/** A RouteMap prepared for decisions. It is made once a map: hosts and paths are then found without a scan. */
export interface RouteIndex {
  port(gateway: GatewayKey, port: number, transport: 'tcp' | 'udp'): IndexedPort | null;
}

export type IndexedPort =
  | { readonly kind: 'http'; readonly listeners: HostLookup<IndexedListener<HttpListener>> }
  | { readonly kind: 'tls'; readonly listeners: HostLookup<IndexedListener<TlsListener>> }
  | { readonly kind: 'stream'; readonly plan: StreamPort };

export interface IndexedListener<L> {
  readonly listener: L;
  readonly hosts: HostLookup<IndexedTable>;
  readonly names: HostLookup<TlsHost>;
}

export interface IndexedTable {
  readonly table: HostTable;
  /** Computed at the first use: most hosts of a large map are not asked for by every process. */
  paths(): PathIndex;
}

/** Finds what belongs to the most specific pattern of a name. */
export interface HostLookup<T> {
  find(name: string): T | null;
}

export function indexRoutes(map: RouteMap): RouteIndex {
  const ports = new Map<string, IndexedPort>();
  for (const { key, ports: plans } of map.gateways)
    for (const plan of plans) ports.set(`${key} ${plan.port} ${transportOf(plan)}`, indexPort(plan));
  return { port: (gateway, port, transport) => ports.get(`${gateway} ${port} ${transport}`) ?? null };
}

const transportOf = ({ kind }: PortPlan): 'tcp' | 'udp' => (kind === 'udp' ? 'udp' : 'tcp');

function indexPort(plan: PortPlan): IndexedPort {
  if (plan.kind === 'http')
    return { kind: 'http', listeners: hostLookup(plan.listeners, (listener) => indexListener(listener)) };
  if (plan.kind === 'tls')
    return { kind: 'tls', listeners: hostLookup(plan.listeners, (listener) => indexListener(listener)) };
  return { kind: 'stream', plan };
}

function indexListener<L extends HttpListener | TlsListener>(listener: L): IndexedListener<L> {
  const routed = 'kind' in listener && listener.kind !== 'https' ? listener.hosts : [];
  const tables = !('kind' in listener) || listener.kind === 'https' ? listener.hosts : [];
  return {
    listener,
    hosts: hostLookup(tables, (table) => {
      let paths: PathIndex | null = null;
      return {
        table,
        paths: () => {
          paths ??= indexPaths(table);
          return paths;
        },
      };
    }),
    names: hostLookup(routed, (host) => host),
  };
}

/** Indexes items by hostname. The first of several with the same one counts. */
function hostLookup<I extends { readonly hostname: HostPattern; readonly oneLabel?: boolean }, T>(
  items: readonly I[],
  convert: (item: I) => T,
): HostLookup<T> {
  const any = new Map<HostPattern, T>();
  const one = new Map<HostPattern, T>();
  for (const item of items) {
    const map = item.oneLabel === true ? one : any;
    if (!map.has(item.hostname)) map.set(item.hostname, convert(item));
  }
  return {
    find(name) {
      const whole = any.get(name);
      if (whole !== undefined && name !== '') return whole;
      let first = true;
      for (let dot = name.indexOf('.', 1); dot >= 0; dot = name.indexOf('.', dot + 1)) {
        const pattern = `*${name.slice(dot)}`;
        const found = (first ? one.get(pattern) : undefined) ?? any.get(pattern);
        if (found !== undefined) return found;
        first = false;
      }
      return any.get('') ?? null;
    },
  };
}
