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
      const secret = tls === null ? '' : tls.verify ? '+tls' : '+tls-unverified';
      const key = `${namespace}/${name}:${port}${way}${secret}`;
      if (!backends.has(key)) backends.set(key, { key, namespace, service: name, port, protocol, tls });
      return key;
    },
    result: () => [...backends.values()].sort((a, b) => compareText(a.key, b.key)),
  };
}
