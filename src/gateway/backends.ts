import { compareText } from './identity.ts';
import type { Backend, BackendKey, BackendTls } from './route-map.ts';
import type { KnownService, ServicePort } from './service-index.ts';

/** Collects the backends that a map names. */
export interface BackendSet {
  add(
    service: KnownService,
    port: ServicePort,
    protocol: Backend['protocol'],
    tls: BackendTls | null,
  ): BackendKey;
  result(): readonly Backend[];
}

export function createBackendSet(): BackendSet {
  const backends = new Map<BackendKey, Backend>();
  return {
    add({ namespace, name }, { port }, protocol, tls) {
      const way = protocol === 'http1' ? '' : `+${protocol}`;
      const key = `${namespace}/${name}:${port}${way}${tlsPart(tls)}`;
      if (!backends.has(key)) backends.set(key, { key, namespace, service: name, port, protocol, tls });
      return key;
    },
    result: () => [...backends.values()].sort((a, b) => compareText(a.key, b.key)),
  };
}

/** Of verified TLS, the policy is the same for each use of a port; the client certificate is each Gateway's own. */
function tlsPart(tls: BackendTls | null): string {
  if (tls === null) return '';
  if (!tls.verify) return '+tls-unverified';
  return tls.certificate === null ? '+tls' : `+tls+${tls.certificate}`;
}
