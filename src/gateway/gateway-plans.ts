import type { AttachedRoutes, HttpAttachment, StreamAttachment } from './attach-routes.ts';
import type { GatewayFindings } from './findings.ts';
import { allListeners } from './gateway-reader.ts';
import { compareHosts, intersectHosts } from './host-pattern.ts';
import { hostTables, tooManyRows } from './host-tables.ts';
import { compareText, keyOf } from './identity.ts';
import { isServed, type KnownGateway, type Listener } from './listener.ts';
import type { GatewayObject } from './objects.ts';
import { type PlacedRow, prepareRows } from './placed-rows.ts';
import { record } from './raw.ts';
import type {
  GatewayPlan,
  HostPattern,
  HttpListener,
  PortPlan,
  RouteRef,
  StreamPort,
  TlsHost,
  TlsListener,
} from './route-map.ts';

/** Returns what a Gateway serves: the listeners that are accepted, by port. */
export function gatewayPlan(
  gateway: KnownGateway,
  { http, streams }: AttachedRoutes,
  findings: GatewayFindings,
): GatewayPlan {
  const { key, owner, addresses, refusal } = gateway;
  const ports = new Map<string, Listener[]>();
  if (refusal === null)
    for (const listener of allListeners(gateway)) {
      if (!isServed(listener)) continue;
      const place = `${listener.protocol === 'UDP' ? 'udp' : 'tcp'} ${listener.port}`;
      const known = ports.get(place);
      if (known) known.push(listener);
      else ports.set(place, [listener]);
    }
  const plans = [...ports.values()].flatMap(
    (listeners) => portPlan(listeners, http, streams, findings) ?? [],
  );
  const sorted = plans.sort((a, b) => a.port - b.port || compareText(a.kind, b.kind));
  return { key, addresses, ...infrastructureOf(owner.object), ports: sorted };
}

const KEY = /^(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$/;
const LABEL_VALUE = /^(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$/;
/** As the API's schema. */
const MAX_INFRASTRUCTURE = 8;

/** Returns the labels and annotations of spec.infrastructure. Those of this project are not taken from there. */
function infrastructureOf({ spec }: GatewayObject): Pick<GatewayPlan, 'infrastructure'> {
  const { labels, annotations } = record(record(spec)['infrastructure']);
  const read = (values: unknown, value: RegExp) =>
    Object.fromEntries(
      Object.entries(record(values))
        .filter(
          (entry): entry is [string, string] =>
            KEY.test(entry[0]) &&
            !/(?:^|\.)(?:fairlead\.dev|kubernetes\.io)\//.test(entry[0]) &&
            typeof entry[1] === 'string' &&
            value.test(entry[1]),
        )
        .slice(0, MAX_INFRASTRUCTURE),
    );
  const infrastructure = {
    labels: read(labels, LABEL_VALUE),
    annotations: read(annotations, /^[^\x00]{0,4096}$/),
  };
  const count = Object.keys(infrastructure.labels).length + Object.keys(infrastructure.annotations).length;
  return count === 0 ? {} : { infrastructure };
}

function portPlan(
  listeners: Listener[],
  http: AttachedRoutes['http'],
  streams: AttachedRoutes['streams'],
  findings: GatewayFindings,
): PortPlan | null {
  listeners.sort((a, b) => compareHosts(a.hostname, b.hostname));
  const [first] = listeners;
  if (!first) return null;
  const { port } = first;
  switch (first.protocol) {
    case 'HTTP':
      return {
        kind: 'http',
        port,
        listeners: listeners.map((listener) =>
          httpListener(listener, http.get(listener) ?? [], listeners.length, findings),
        ),
      };
    case 'HTTPS':
    case 'TLS':
      return {
        kind: 'tls',
        port,
        listeners: listeners.flatMap(
          (listener) =>
            tlsListener(
              listener,
              http.get(listener) ?? [],
              streams.get(listener) ?? [],
              listeners.length,
              findings,
            ) ?? [],
        ),
      };
    case 'TCP':
    case 'UDP':
      return streamPort(first, streams.get(first) ?? []);
    default:
      return null;
  }
}

function httpListener(
  { mapName, hostname, owner }: Listener,
  attached: readonly HttpAttachment[],
  listeners: number,
  findings: GatewayFindings,
): HttpListener {
  const { tables, cutAt } = hostTables(prepareRows(attached.flatMap(placedRows)), hostname, listeners);
  if (cutAt !== null) {
    const { namespace, name } = owner.identity;
    findings.add(
      { kind: owner.kind, namespace, name },
      'TooManyRows',
      tooManyRows(`listener ${mapName}`, cutAt),
    );
  }
  return { name: mapName, hostname, hosts: tables };
}

function placedRows({ identity, hostnames, rows }: HttpAttachment): readonly PlacedRow[] {
  const owner = keyOf(identity);
  return hostnames.flatMap((hostname) =>
    rows.map(({ rank, place, row }) => ({ hostname, oneLabel: false, rank, owner, place, row })),
  );
}

function tlsListener(
  listener: Listener,
  http: readonly HttpAttachment[],
  streams: readonly StreamAttachment[],
  listeners: number,
  findings: GatewayFindings,
): TlsListener | null {
  const { mapName: name, hostname, passthrough, protocol, tls } = listener;
  if (passthrough) return { kind: 'passthrough', name, hostname, hosts: tlsHosts(streams, hostname) };
  if (tls === null) return null;
  if (protocol === 'TLS')
    return { kind: 'terminate', name, hostname, tls, hosts: tlsHosts(streams, hostname) };
  return { kind: 'https', ...httpListener(listener, http, listeners, findings), tls };
}

/** Returns the hosts of TLSRoutes, the most specific first. Of several routes with the same one, the oldest has it. */
function tlsHosts(attached: readonly StreamAttachment[], listener: HostPattern): readonly TlsHost[] {
  const hosts = new Map<HostPattern, { readonly own: HostPattern; readonly host: TlsHost }>();
  for (const { kind, identity, hostnames, backends } of attached)
    for (const own of hostnames) {
      const hostname = intersectHosts(own, listener);
      if (hostname === null) continue;
      const known = hosts.get(hostname);
      // A wider hostname that the listener cuts yields to a whole one of a younger route.
      if (known && compareHosts(known.own, own) <= 0) continue;
      hosts.set(hostname, { own, host: { hostname, route: routeRef(kind, identity), backends } });
    }
  return [...hosts.values()].map(({ host }) => host).sort((a, b) => compareHosts(a.hostname, b.hostname));
}

const routeRef = (kind: RouteRef['kind'], { namespace, name }: HttpAttachment['identity']): RouteRef => ({
  kind,
  namespace,
  name,
  rule: 0,
});

/** Of several routes at a port the oldest has it. */
function streamPort({ port, protocol, mapName }: Listener, [first]: readonly StreamAttachment[]): StreamPort {
  return {
    kind: protocol === 'UDP' ? 'udp' : 'tcp',
    port,
    listener: mapName,
    route: first ? routeRef(first.kind, first.identity) : null,
    backends: first?.backends ?? [],
  };
}
