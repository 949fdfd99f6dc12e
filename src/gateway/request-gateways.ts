import { ingressAddresses } from '../kube/load-balancer.ts';
import type { Service } from '../kube/types.ts';
import { canonicalAddress } from '../lib/address.ts';
import { type Attached, attach } from './attach.ts';
import { gatewayOf } from './gateway-service.ts';
import { compareHosts, hostMatches } from './host-pattern.ts';
import { compareText } from './identity.ts';
import type { GatewayObjects } from './objects.ts';
import { withFallback } from './references.ts';
import type { RequestUrl } from './request-url.ts';
import { indexRoutes, type RouteIndex } from './route-index.ts';
import type { GatewayKey, GatewayPlan, HostPattern, PortPlan, RouteMap } from './route-map.ts';
import { findUnaccepted } from './unaccepted.ts';

/** The gateways of a cluster, prepared for questions about requests. */
export interface RequestGateways {
  readonly objects: GatewayObjects;
  readonly attached: Attached;
  /** What proxies do: with a certificate that none trusts in place of those that Ingresses lack. */
  readonly routeMap: RouteMap;
  readonly index: RouteIndex;
  readonly places: readonly GatewayPlace[];
}

/** Where a gateway is reached. */
export interface GatewayPlace {
  readonly key: GatewayKey;
  /** Of its load balancer; external ones. */
  readonly outer: readonly string[];
  /** Cluster IPs. */
  readonly inner: readonly string[];
}

/** `objects.services`: all, with those of the gateways. */
export function readRequestGateways(objects: GatewayObjects): RequestGateways {
  const places = objects.services.flatMap((object): readonly GatewayPlace[] => {
    const service = object as Service;
    const key = gatewayOf(service);
    if (key === null) return [];
    const canonical = (all: readonly string[]) => all.flatMap((one) => canonicalAddress(one) ?? []);
    const { clusterIPs = [], externalIPs = [] } = service.spec ?? {};
    return [
      { key, outer: canonical([...ingressAddresses(service), ...externalIPs]), inner: canonical(clusterIPs) },
    ];
  });
  const addresses = new Map(places.map(({ key, outer }) => [key, outer]));
  const known = { ...objects, addresses };
  const attached = attach(known);
  const certificates = withFallback(known);
  const isSame = [...certificates].every(([key, problem]) => known.certificates.get(key) === problem);
  const { routeMap } = isSame ? attached : attach({ ...known, certificates });
  return { objects: known, attached, routeMap, index: indexRoutes(routeMap), places };
}

/** Returns the gateway that has an address; null: none. */
export const gatewayAt = ({ places }: RequestGateways, address: string): GatewayKey | null =>
  places.find(({ outer, inner }) => outer.includes(address) || inner.includes(address))?.key ?? null;

/**
 * Returns the gateways that have the name of a URL at its port, those with the most specific pattern first. Patterns for every name do
 * not count: a client gets to such a gateway by its address only.
 */
export function gatewaysNamed(gateways: RequestGateways, url: RequestUrl): readonly GatewayKey[] {
  if (url.address !== null) return [];
  const isAsked = ({ port, kind }: PortPlan) => port === url.port && kind === (url.secure ? 'tls' : 'http');
  const taking = byPattern(gateways, (plans) => bestPattern(plans.filter(isAsked), url.name));
  if (taking.length > 0) return taking;
  // The name is at another port, and a request to this one is refused.
  const elsewhere = byPattern(gateways, (plans) =>
    plans.some(({ port }) => port === url.port) ? bestPattern(plans, url.name) : null,
  );
  if (elsewhere.length > 0) return elsewhere;
  // The host of a route, or of a listener, that is refused is in no plan.
  const refused = findUnaccepted(gateways.objects, gateways.attached, url).filter(
    ({ gateway, named }) => named && hasPort(gateways, gateway, url.port),
  );
  return [...new Set(refused.map(({ gateway }) => gateway))].sort(compareText);
}

function hasPort({ routeMap, objects }: RequestGateways, key: GatewayKey, port: number): boolean {
  const plan = routeMap.gateways.find((one: GatewayPlan) => one.key === key);
  if (plan?.ports.some((one) => one.port === port)) return true;
  return objects.gateways.some(({ metadata, spec }) => {
    if (`gateway/${metadata?.namespace}/${metadata?.name}` !== key) return false;
    const listeners = (spec as { listeners?: unknown } | undefined)?.listeners;
    return (
      Array.isArray(listeners) && listeners.some((one) => (one as { port?: unknown } | null)?.port === port)
    );
  });
}

function byPattern(
  { routeMap }: RequestGateways,
  patternOf: (plans: readonly PortPlan[]) => HostPattern | null,
): readonly GatewayKey[] {
  const found = routeMap.gateways.flatMap(({ key, ports }) => {
    const pattern = patternOf(ports);
    return pattern === null ? [] : [{ key, pattern }];
  });
  return found
    .sort((a, b) => compareHosts(a.pattern, b.pattern) || compareText(a.key, b.key))
    .map(({ key }) => key);
}

/** Returns the most specific pattern of listeners and their hosts that a name has; null: only that for every name, or none. */
function bestPattern(plans: readonly PortPlan[], name: string): HostPattern | null {
  let best: HostPattern | null = null;
  const look = (pattern: HostPattern, oneLabel = false) => {
    if (pattern === '' || !hostMatches(pattern, name, oneLabel)) return;
    if (best === null || compareHosts(pattern, best) < 0) best = pattern;
  };
  for (const plan of plans) {
    if (plan.kind !== 'http' && plan.kind !== 'tls') continue;
    for (const { hostname, hosts } of plan.listeners) {
      look(hostname);
      for (const host of hosts) look(host.hostname, 'oneLabel' in host && host.oneLabel);
    }
  }
  return best;
}
