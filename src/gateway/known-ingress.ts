import type { BackendTlsPolicies } from './backend-tls.ts';
import type { BackendSet } from './backends.ts';
import type { GatewayFindings } from './findings.ts';
import { hostMatches } from './host-pattern.ts';
import type { Identity } from './identity.ts';
import type { IngressSettings } from './ingress-annotations.ts';
import type { GatewayObject } from './objects.ts';
import type { HostPattern } from './route-map.ts';
import type { ServiceIndex } from './service-index.ts';

/** One Ingress of a class, with its annotations read. */
export interface KnownIngress {
  readonly object: GatewayObject;
  readonly identity: Identity;
  readonly settings: IngressSettings;
  /** Hosts of `spec.tls`. */
  readonly tlsHosts: readonly HostPattern[];
}

export interface IngressContext {
  readonly services: ServiceIndex;
  readonly backends: BackendSet;
  readonly policies: BackendTlsPolicies;
  readonly findings: GatewayFindings;
}

export const subject = ({ namespace, name }: Identity) => ({ kind: 'Ingress', namespace, name });

/** Reports whether `spec.tls` of an Ingress names a host. */
export function hasTls({ tlsHosts }: KnownIngress, host: HostPattern): boolean {
  return tlsHosts.some(
    (pattern) => pattern === host || (!host.startsWith('*') && hostMatches(pattern, host, true)),
  );
}
