import { GATEWAY_NAMESPACE, serviceNameOf } from '../gateway/gateway-service.ts';
import type { EndpointSlice, Service } from '../kube/types.ts';
import { closestName } from '../lib/closest-name.ts';
import type { ErrorCode } from '../lib/error-codes.ts';
import { FairleadError } from '../lib/errors.ts';
import { parseTarget } from '../observe/explain-target.ts';

/** A TCP port of a Service, as a user names it. */
export interface ServicePort {
  readonly namespace: string;
  readonly name: string;
  /** A number, the port's name, or null: the only TCP port. */
  readonly port: number | string | null;
}

/** A port of this machine's loopback that is forwarded to a Service for as long as the cluster runs. */
export interface PublishedPort {
  readonly localPort: number;
  readonly service: ServicePort;
}

const SERVICE_FORMS = 'svc/NAME[:PORT] (svc/NAMESPACE/NAME for another namespace)';
const PUBLISHED_FORM = 'LOCALPORT:PORT/svc/NAME, such as 8080:80/svc/web, or LOCALPORT:PORT/ingress';
/** The Service of the Ingresses of class fairlead. */
const INGRESS_SERVICE = { namespace: GATEWAY_NAMESPACE, name: serviceNameOf('ingress/fairlead') };

/**
 * Parses "svc/NAME", "svc/NAMESPACE/NAME", "NAMESPACE/NAME" or "NAME", each optionally with ":PORT". Throws FairleadError
 * "bad-argument".
 */
export function parseServicePort(text: string): ServicePort {
  const { kind, namespace, name, port, protocol } = parseTarget(text);
  const isPod = kind === 'pod' && (namespace === null || /^(po|pods?)\//.test(text.trim()));
  const isName = kind === 'dns' && !name.includes('.') && !text.includes('://');
  if (isPod || (kind !== 'service' && kind !== 'pod' && !isName))
    throw refusal(text, 'is not a Service', `write ${SERVICE_FORMS}`);
  if (protocol !== null && protocol !== 'TCP')
    throw refusal(text, `has the protocol ${protocol}; only TCP is forwarded`, 'omit the protocol');
  return { namespace: namespace ?? 'default', name, port };
}

/**
 * Parses the values of --publish: "LOCALPORT:PORT/svc/NAME" or "LOCALPORT:PORT/ingress", or "none" alone. Throws FairleadError "bad-argument", also if
 * a local port is used twice.
 */
export function parsePublishedPorts(texts: readonly string[]): PublishedPort[] {
  if (texts.length === 1 && texts[0] === 'none') return [];
  const ports = texts.map((text) => {
    const match = /^([0-9]+):([a-z0-9-]+)\/([^:]+)$/.exec(text.trim());
    if (!match)
      throw refusal(text, 'cannot be read', `write ${PUBLISHED_FORM}; only 127.0.0.1 and ::1 listen`);
    const [, local = '', port = '', service = ''] = match;
    if (service === 'ingress') {
      const ingress = parseServicePort(`svc/${INGRESS_SERVICE.namespace}/${INGRESS_SERVICE.name}:${port}`);
      return { localPort: parseLocalPort(local), service: ingress };
    }
    return { localPort: parseLocalPort(local), service: parseServicePort(`${service}:${port}`) };
  });
  for (const [i, { localPort }] of ports.entries()) {
    if (ports.findIndex((one) => one.localPort === localPort) !== i)
      throw refusal(String(localPort), 'is used for two Services', 'use another local port for one of them');
  }
  return ports;
}

/** Parses a port number of this machine. Throws FairleadError "bad-argument". */
export function parseLocalPort(text: string): number {
  const port = Number(text);
  if (/^[0-9]+$/.test(text) && port >= 1 && port <= 65_535) return port;
  throw refusal(text, 'is not a port from 1 to 65535', 'choose another local port');
}

/** Renders a Service's port as the commands accept it: "svc/web:80". */
export function servicePortText({ namespace, name, port }: ServicePort): string {
  const place = namespace === 'default' ? '' : `${namespace}/`;
  return `svc/${place}${name}${port === null ? '' : `:${port}`}`;
}

/** Renders a published port as --publish accepts it: "8080:80/svc/web". */
export function publishedPortText({ localPort, service }: PublishedPort): string {
  const isIngress = service.namespace === INGRESS_SERVICE.namespace && service.name === INGRESS_SERVICE.name;
  return `${localPort}:${service.port}/${isIngress ? 'ingress' : servicePortText({ ...service, port: null })}`;
}

/** Where connections to a Service's port go. */
export interface ServiceRoute {
  /** Cluster IPs, primary family first. */
  readonly addresses: readonly string[];
  readonly port: number;
  /** Nodes that can deliver: those with a ready endpoint, for `internalTrafficPolicy: Local`. Null: all. */
  readonly nodes: readonly string[] | null;
  readonly readyEndpoints: number;
}

/**
 * Returns the route to a port of a Service (undefined: it does not exist). Throws FairleadError that names what the Service
 * lacks, and the alternative.
 */
export function routeToService(
  wanted: ServicePort,
  service: Service | undefined,
  slices: readonly EndpointSlice[],
): ServiceRoute {
  const title = `Service ${wanted.namespace}/${wanted.name}`;
  const fail = (message: string, hint: string, code: ErrorCode = 'bad-argument') =>
    new FairleadError(message, { op: 'find Service', code, hint });
  if (!service)
    throw fail(`no such Service: ${wanted.namespace}/${wanted.name}`, 'kubectl get services -A', 'not-found');
  const { spec } = service;
  if (spec?.type === 'ExternalName') {
    throw fail(
      `${title} has no cluster IP: it is an alias of ${spec.externalName}`,
      `connect to ${spec.externalName} directly`,
    );
  }
  const addresses = (spec?.clusterIPs ?? []).filter((ip) => ip !== 'None' && ip !== '');
  if (addresses.length === 0) {
    throw fail(
      `${title} is headless: it has no cluster IP`,
      `forward one of its pods: kubectl port-forward -n ${wanted.namespace} POD LOCALPORT:PORT; or make a Service with a cluster IP for the same pods`,
    );
  }
  const ports = spec?.ports ?? [];
  const tcp = ports.filter(({ protocol }) => (protocol ?? 'TCP') === 'TCP');
  const labels = tcp.map(({ name, port }) => (name ? `${port} (${name})` : String(port))).join(', ');
  const isWanted = (one: { readonly name?: string; readonly port: number }) =>
    one.port === wanted.port || one.name === wanted.port;
  const found = wanted.port === null ? tcp : tcp.filter(isWanted);
  const [port] = found;
  if (!port) {
    const other = ports.find((one) => wanted.port === null || isWanted(one));
    if (other)
      throw fail(
        `port ${other.port} of ${title} is ${other.protocol}; only TCP is forwarded`,
        tcp.length > 0
          ? `use a TCP port: ${labels}`
          : 'up --host-access=services connects this machine to cluster IPs',
      );
    throw fail(`${title} has no port ${wanted.port}`, `use a TCP port: ${labels || 'it has none'}`);
  }
  if (found.length > 1)
    throw fail(`${title} has several TCP ports: ${labels}`, `write svc/${wanted.name}:PORT`);
  const ready = slices
    .flatMap(({ endpoints }) => endpoints ?? [])
    .filter(({ conditions }) => conditions?.ready !== false);
  return {
    addresses,
    port: port.port,
    nodes:
      spec?.internalTrafficPolicy === 'Local'
        ? [...new Set(ready.flatMap(({ nodeName }) => nodeName ?? []))]
        : null,
    readyEndpoints: ready.length,
  };
}

/** Returns a hint for the name of a Service that does not exist; null: no similar name. */
export function similarService(wanted: ServicePort, services: readonly Service[]): string | null {
  const named = services.find(({ metadata }) => metadata?.name === wanted.name);
  const here = services.filter(({ metadata }) => metadata?.namespace === wanted.namespace);
  const like = closestName(
    wanted.name,
    here.flatMap(({ metadata }) => metadata?.name ?? []),
  );
  const meant = named
    ? { namespace: named.metadata?.namespace ?? '', name: wanted.name, port: null }
    : like === null
      ? null
      : { namespace: wanted.namespace, name: like, port: null };
  return meant && `did you mean ${servicePortText(meant)}?`;
}

function refusal(text: string, problem: string, hint: string): FairleadError {
  return new FairleadError(`${JSON.stringify(text)} ${problem}`, {
    op: 'read port of a Service',
    code: 'bad-argument',
    hint,
  });
}
