import type { Decision, GatewayRequest } from '../decision.ts';
import { type GatewayObject, type GatewayObjects, noObjects } from '../objects.ts';
import type { RouteAction, RouteMap, RouteRow } from '../route-map.ts';

/** Objects for tests of the gateways; times are minutes after midnight, so that a smaller number is older. */
export interface Meta {
  readonly namespace?: string;
  readonly age?: number;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly labels?: Readonly<Record<string, string>>;
  readonly generation?: number;
}

export function object(name: string, spec: unknown, meta: Meta = {}): GatewayObject {
  const { namespace = 'default', age = 0, annotations = {}, labels = {}, generation = 1 } = meta;
  const creationTimestamp = new Date(Date.UTC(2026, 0, 1) + age * 60_000).toISOString();
  return { metadata: { name, namespace, generation, annotations, labels, creationTimestamp }, spec };
}

export function service(name: string, meta: Meta = {}, appProtocol?: string): GatewayObject {
  const ports = [
    { name: 'http', port: 80, ...(appProtocol === undefined ? {} : { appProtocol }) },
    { name: 'alt', port: 8080 },
  ];
  return object(name, { type: 'ClusterIP', ports }, meta);
}

export const namespaceObject = (
  name: string,
  labels: Readonly<Record<string, string>> = {},
): GatewayObject => ({
  metadata: { name, labels: { 'kubernetes.io/metadata.name': name, ...labels } },
});

export const ingressClass = (
  name = 'fairlead',
  annotations: Readonly<Record<string, string>> = {},
): GatewayObject => object(name, { controller: 'fairlead.dev/ingress' }, { annotations });

/** A rule's path of an Ingress to port 80 of a Service. */
export const ingressPath = (path: string, name: string, pathType = 'Prefix') => ({
  path,
  pathType,
  backend: { service: { name, port: { number: 80 } } },
});

export function ingress(
  name: string,
  rules: readonly { readonly host?: string; readonly paths: readonly unknown[] }[],
  meta: Meta = {},
  more: Readonly<Record<string, unknown>> = {},
): GatewayObject {
  const spec = {
    ingressClassName: 'fairlead',
    rules: rules.map(({ host, paths }) => ({ ...(host === undefined ? {} : { host }), http: { paths } })),
    ...more,
  };
  return object(name, spec, meta);
}

export const objects = (parts: Partial<GatewayObjects>): GatewayObjects => ({ ...noObjects(), ...parts });

/** Returns a request to port 80 (443 with a server name) of the Ingresses, or of another gateway. */
export function request(url: string, more: Partial<GatewayRequest> = {}): GatewayRequest {
  const [, scheme = '', host = '', target = '/'] = /^(\w+):\/\/([^/?]*)(.*)$/s.exec(url) ?? [];
  const secure = scheme === 'https';
  return {
    gateway: 'ingress/fairlead',
    port: secure ? 443 : 80,
    transport: 'tcp',
    serverName: secure ? host.replace(/:\d+$/, '') : null,
    method: 'GET',
    host,
    target: target === '' ? '/' : target,
    headers: [],
    source: '192.0.2.1',
    ...more,
  };
}

/** Returns a decision as short text: "web 70, web-v2 30", "404", "301 https://a.example/", "close". */
export function outcome(decision: Decision): string {
  switch (decision.kind) {
    case 'forward':
    case 'stream': {
      const { backends } = decision;
      const name = (key: string | null) =>
        key === null ? '500' : key.replace(/^default\//, '').replace(/:80\b/, '');
      if (backends.length === 1) return name(backends[0]?.backend ?? null);
      return backends.map(({ backend, weight }) => `${name(backend)} ${weight}`).join(', ');
    }
    case 'error':
      return String(decision.status);
    case 'redirect':
      return `${decision.status} ${decision.location}`;
    case 'preflight':
      return 'preflight';
    case 'close':
      return 'close';
  }
}

/** Returns the rows of every table of a map. */
export function allRows(map: RouteMap): readonly RouteRow[] {
  return map.gateways.flatMap(({ ports }) =>
    ports.flatMap((port) =>
      port.kind === 'http' || port.kind === 'tls'
        ? port.listeners.flatMap((listener) =>
            'kind' in listener && listener.kind !== 'https' ? [] : listener.hosts.flatMap(({ rows }) => rows),
          )
        : [],
    ),
  );
}

export const actionsOf = (map: RouteMap): readonly RouteAction[] => allRows(map).map(({ action }) => action);

export const gatewayClass = (
  name = 'fairlead',
  more: Readonly<Record<string, unknown>> = {},
): GatewayObject => object(name, { controllerName: 'fairlead.dev/gateway', ...more });

/** A listener of protocol HTTP on port 80 that takes routes of all namespaces. */
export const listener = (name: string, more: Readonly<Record<string, unknown>> = {}) => ({
  name,
  port: 80,
  protocol: 'HTTP',
  allowedRoutes: { namespaces: { from: 'All' } },
  ...more,
});

export const tlsListener = (
  name: string,
  hostname: string | undefined,
  more: Readonly<Record<string, unknown>> = {},
) =>
  listener(name, {
    port: 443,
    protocol: 'HTTPS',
    ...(hostname === undefined ? {} : { hostname }),
    tls: { certificateRefs: [{ name: 'tls' }] },
    ...more,
  });

export function gateway(
  name: string,
  listeners: readonly unknown[],
  meta: Meta = {},
  more: Readonly<Record<string, unknown>> = {},
): GatewayObject {
  return object(name, { gatewayClassName: 'fairlead', listeners, ...more }, meta);
}

/** A route that names one Gateway, "gw" if `parents` is not given. */
export function route(
  name: string,
  rules: readonly unknown[],
  meta: Meta = {},
  more: Readonly<Record<string, unknown>> = {},
): GatewayObject {
  return object(name, { parentRefs: [{ name: 'gw', namespace: 'default' }], rules, ...more }, meta);
}

/** A rule of an HTTPRoute to port 80 of a Service. */
export const rule = (
  service: string,
  match: unknown = null,
  more: Readonly<Record<string, unknown>> = {},
) => ({
  ...(match === null ? {} : { matches: [match] }),
  backendRefs: [{ name: service, port: 80 }],
  ...more,
});

export const prefix = (value: string, more: Readonly<Record<string, unknown>> = {}) => ({
  path: { type: 'PathPrefix', value },
  ...more,
});
export const exact = (value: string, more: Readonly<Record<string, unknown>> = {}) => ({
  path: { type: 'Exact', value },
  ...more,
});
