import type { BackendTlsPolicies } from './backend-tls.ts';
import type { BackendSet } from './backends.ts';
import { type Verdict, verdict } from './conditions.ts';
import { keyOf } from './identity.ts';
import { integer, optionalText, portNumber, type Raw, show, text } from './raw.ts';
import type { ReferenceGrants, ReferenceSource } from './reference-grants.ts';
import type { Backend, BackendKey, BackendTls, CertificateKey } from './route-map.ts';
import type { ServiceIndex, ServicePort } from './service-index.ts';

export interface BackendContext {
  readonly services: ServiceIndex;
  readonly grants: ReferenceGrants;
  readonly backends: BackendSet;
  readonly policies: BackendTlsPolicies;
}

/** A reference of a route to a backend, as resolved. */
export type ResolvedBackend =
  | { readonly key: BackendKey; readonly service: string }
  /** `condition`: what ResolvedRefs says; null: the reference is resolved, but connections have to fail. */
  | {
      readonly key: null;
      readonly service: string | null;
      readonly reason: string;
      readonly condition: Verdict | null;
    };

type Use = 'http' | 'grpc' | 'tcp' | 'udp' | 'tls';

/** Resolves a backendRef: kind, grant, Service, port, protocol, and the policy for TLS to it. */
export function resolveBackend(
  reference: Raw,
  source: ReferenceSource,
  use: Use,
  clientCertificate: CertificateKey | null,
  { services, grants, backends, policies }: BackendContext,
): ResolvedBackend {
  const failed = (reason: string, message: string): ResolvedBackend => ({
    key: null,
    service: null,
    reason: message,
    condition: verdict(false, reason, message),
  });
  const name = text(reference['name']);
  const namespace = optionalText(reference['namespace']) ?? source.namespace;
  const group = text(reference['group']);
  const kind = optionalText(reference['kind']) ?? 'Service';
  if (group !== '' || kind !== 'Service')
    return failed('InvalidKind', `${show(group === '' ? kind : `${group}/${kind}`)} is not a Service`);
  if (!grants.allow(source, { kind: 'Service', namespace, name }))
    return failed(
      'RefNotPermitted',
      `no ReferenceGrant of namespace ${show(namespace)} lets a ${source.kind} of namespace ${source.namespace} use Service ${show(name)}`,
    );
  const shown = keyOf({ namespace, name });
  const service = services.get(shown);
  if (!service) return failed('BackendNotFound', `Service ${show(shown)} does not exist`);
  if (service.external)
    return failed('InvalidKind', `Service ${shown} is of type ExternalName: use one with endpoints`);
  const number = portNumber(reference['port']);
  const transport = use === 'udp' ? 'UDP' : 'TCP';
  const ports = service.ports.filter(({ port }) => port === number);
  const port = ports.find(({ protocol }) => protocol === transport);
  if (!port)
    return ports.length > 0
      ? failed('UnsupportedProtocol', `port ${number} of Service ${shown} is not ${transport}`)
      : failed('BackendNotFound', `Service ${shown} has no port ${show(reference['port'])}`);
  // TLS to TCP backends is for routes whose own TLS ended at the gateway.
  const choice = use === 'http' || use === 'grpc' || use === 'tls' ? policies.choose(shown, port) : null;
  if (choice !== null && choice.tls === null) {
    const reason = `BackendTLSPolicy ${choice.policy} is not valid, so Service ${shown} cannot be reached`;
    return { key: null, service: shown, reason, condition: null };
  }
  const tls: BackendTls | null = choice?.tls ? { ...choice.tls, certificate: clientCertificate } : null;
  const protocol = protocolOf(use, port, tls !== null);
  if (protocol === null)
    return failed(
      'UnsupportedProtocol',
      `appProtocol ${show(port.appProtocol)} of port ${number} of Service ${shown} is not possible here`,
    );
  return { key: backends.add(service, port, protocol, tls), service: shown };
}

/**
 * Returns how a port is spoken to; null: not by this kind of route. Other values of appProtocol are hints for others. A
 * policy for TLS counts beside it: h2c is HTTP/2 over TLS then.
 */
function protocolOf(use: Use, { appProtocol }: ServicePort, secure: boolean): Backend['protocol'] | null {
  if (use === 'tls' || use === 'tcp') return 'tcp';
  if (use === 'udp') return 'udp';
  switch (appProtocol) {
    case 'kubernetes.io/h2c':
      return 'h2c';
    case 'kubernetes.io/ws':
      return use === 'http' ? 'websocket' : null;
    case 'kubernetes.io/wss':
      return use === 'http' && secure ? 'websocket' : null;
    default:
      return use === 'grpc' ? 'h2c' : 'http1';
  }
}

/** Returns the weight of a backendRef; 1 without one. */
export const weightOf = (reference: Raw): number =>
  reference['weight'] === undefined || reference['weight'] === null
    ? 1
    : (integer(reference['weight'], 0, 1_000_000) ?? 0);
