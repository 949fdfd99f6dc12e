import type { AuthorityKey, CertificateKey, GatewayKey } from './route-map.ts';

/**
 * The API objects that a RouteMap is computed from. Nothing in them is trusted: a wrong type or value becomes a condition or
 * a finding.
 */

export interface ObjectMeta {
  readonly name?: string | undefined;
  readonly namespace?: string | undefined;
  readonly generation?: number | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly annotations?: Readonly<Record<string, string>> | undefined;
  /** RFC 3339. */
  readonly creationTimestamp?: string | undefined;
}

/** Any object: its kind is known by the list that it is in. */
export interface GatewayObject {
  readonly metadata?: ObjectMeta | undefined;
  readonly spec?: unknown;
  readonly status?: unknown;
}

type List = readonly GatewayObject[];

export interface GatewayObjects {
  readonly ingressClasses: List;
  readonly ingresses: List;
  readonly gatewayClasses: List;
  readonly gateways: List;
  readonly listenerSets: List;
  readonly httpRoutes: List;
  readonly grpcRoutes: List;
  readonly tlsRoutes: List;
  readonly tcpRoutes: List;
  readonly udpRoutes: List;
  readonly referenceGrants: List;
  readonly backendTlsPolicies: List;
  readonly services: List;
  readonly namespaces: List;
  /** The TLS Secrets that exist, each with what makes it unusable; null: it is usable. `certificateProblem` computes it. */
  readonly certificates: ReadonlyMap<CertificateKey, string | null>;
  /** The Secrets and ConfigMaps that exist, each with what makes its `ca.crt` unusable; null: it is usable. */
  readonly authorities: ReadonlyMap<AuthorityKey, string | null>;
  /** The addresses that a Gateway has; absent: none yet. */
  readonly addresses: ReadonlyMap<GatewayKey, readonly string[]>;
}

/** Returns objects with every list empty. */
export function noObjects(): GatewayObjects {
  return {
    ingressClasses: [],
    ingresses: [],
    gatewayClasses: [],
    gateways: [],
    listenerSets: [],
    httpRoutes: [],
    grpcRoutes: [],
    tlsRoutes: [],
    tcpRoutes: [],
    udpRoutes: [],
    referenceGrants: [],
    backendTlsPolicies: [],
    services: [],
    namespaces: [],
    certificates: new Map(),
    authorities: new Map(),
    addresses: new Map(),
  };
}

export const INGRESS_CONTROLLER = 'fairlead.dev/ingress';
export const GATEWAY_CONTROLLER = 'fairlead.dev/gateway';
export const DEFAULT_CLASS_ANNOTATION = 'ingressclass.kubernetes.io/is-default-class';
export const LEGACY_CLASS_ANNOTATION = 'kubernetes.io/ingress.class';
