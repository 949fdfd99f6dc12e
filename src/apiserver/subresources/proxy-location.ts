import { SERVICE_NAME_LABEL } from '../../kube/well-known-labels.ts';
import { at, isObject, type JsonObject, listAt, textAt } from '../object.ts';
import type { ApiServices, ResourceContext } from '../services.ts';
import { badRequest, notFound, StatusError } from '../status-error.ts';

/** The destination of a proxy request. */
export interface ProxyLocation {
  readonly scheme: 'http' | 'https';
  readonly host: string;
  readonly port: number;
  /** The node to go through; null: any. */
  readonly node: string | null;
}

/** Parses "name", "name:port", "scheme:name:port" (apimachinery net.SplitSchemeNamePort); null for any other text. */
export function splitSchemeNamePort(
  text: string,
): { scheme: 'http' | 'https'; name: string; port: string } | null {
  const parts = text.split(':');
  const [scheme, name, port] =
    parts.length === 1
      ? ['', parts[0], '']
      : parts.length === 2
        ? ['', parts[0], parts[1]]
        : parts.length === 3
          ? parts
          : ['', '', ''];
  if (!name || (scheme !== '' && scheme !== 'http' && scheme !== 'https')) return null;
  return { scheme: scheme === 'https' ? 'https' : 'http', name, port: port ?? '' };
}

function split(context: ResourceContext, what: string) {
  const found = splitSchemeNamePort(context.name);
  if (!found) throw badRequest(`invalid ${what} request ${JSON.stringify(context.name)}`);
  return found;
}

const unavailable = (message: string) => new StatusError(503, 'ServiceUnavailable', message, {});

/**
 * Returns the address of a pod with the port of the request, else of its first container port, else of the scheme.
 * Throws StatusError 400 or 404.
 */
export function podLocation(services: ApiServices, context: ResourceContext): ProxyLocation {
  const { scheme, name, port } = split(context, 'pod');
  const pod = services.store.get('pods', `${context.namespace}/${name}`)?.object;
  if (!pod) throw notFound(context.kind, name);
  const host = textAt(listAt(pod, 'status', 'podIPs')[0], 'ip') || textAt(pod, 'status', 'podIP');
  if (host === '') throw badRequest('address not allowed');
  const ports = listAt(pod, 'spec', 'containers').flatMap((container) => listAt(container, 'ports'));
  const named = ports.find((one) => one['name'] === port);
  const number =
    port === ''
      ? Number(ports[0]?.['containerPort'] ?? (scheme === 'https' ? 443 : 80))
      : Number(named?.['containerPort'] ?? port);
  if (!Number.isInteger(number) || number < 1 || number > 65535) {
    throw badRequest(`invalid port ${JSON.stringify(port)} of pod ${JSON.stringify(name)}`);
  }
  return { scheme, host, port: number, node: textAt(pod, 'spec', 'nodeName') || null };
}

/**
 * Returns the address of a server on a node; null for the node's own server (no port, or its own). Throws StatusError
 * 400 or 404.
 */
export function nodeLocation(
  services: ApiServices,
  context: ResourceContext,
): { location: ProxyLocation | null; name: string } {
  const { scheme, name, port } = split(context, 'node');
  const node = services.store.get('nodes', `/${name}`)?.object;
  if (!node) throw notFound(context.kind, name);
  const own = at(node, 'status', 'daemonEndpoints', 'kubeletEndpoint', 'Port');
  if (port === '' || Number(port) === own) return { location: null, name };
  const address = listAt(node, 'status', 'addresses').find((one) => one['type'] === 'InternalIP');
  if (!address) throw unavailable(`node ${name} has not reported an address yet`);
  const number = Number(port);
  if (!Number.isInteger(number) || number < 1 || number > 65535) {
    throw badRequest(`invalid port ${JSON.stringify(port)} of node ${JSON.stringify(name)}`);
  }
  return { location: { scheme, host: String(address['address']), port: number, node: name }, name };
}

/** Returns a ready endpoint of a Service's port, chosen at random. Throws StatusError 400, 404 or 503. */
export function serviceLocation(services: ApiServices, context: ResourceContext): ProxyLocation {
  const { scheme, name, port } = split(context, 'service');
  const service = services.store.get('services', `${context.namespace}/${name}`)?.object;
  if (!service) throw notFound(context.kind, name);
  let portName = port;
  if (/^[0-9]+$/.test(port)) {
    const found = listAt(service, 'spec', 'ports').find((one) => one['port'] === Number(port));
    if (!found) throw unavailable(`no service port ${port} found for service ${JSON.stringify(name)}`);
    portName = String(found['name'] ?? '');
  }
  const candidates = services.store
    .list('endpointslices.discovery.k8s.io', context.namespace)
    .filter(({ object }) => object.metadata.labels?.[SERVICE_NAME_LABEL] === name)
    .flatMap(({ object }) => endpointsOf(object as unknown as JsonObject, portName));
  const chosen = candidates[Math.floor(services.random() * candidates.length)];
  if (!chosen) throw unavailable(`no endpoints available for service ${JSON.stringify(name)}`);
  return { scheme, ...chosen };
}

function endpointsOf(slice: JsonObject, portName: string): Omit<ProxyLocation, 'scheme'>[] {
  const port = listAt(slice, 'ports').find((one) => (one['name'] ?? '') === portName)?.['port'];
  if (typeof port !== 'number') return [];
  return listAt(slice, 'endpoints').flatMap((endpoint) => {
    const conditions = isObject(endpoint['conditions']) ? endpoint['conditions'] : {};
    const [host] = Array.isArray(endpoint['addresses']) ? endpoint['addresses'] : [];
    if (conditions['ready'] === false || typeof host !== 'string') return [];
    return [{ host, port, node: textAt(endpoint, 'nodeName') || null }];
  });
}
