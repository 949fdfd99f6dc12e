import type { Store } from './store.ts';

/** The server's request counters. */
export interface RequestMetrics {
  /** Counts a finished request. `resource` is "" for discovery and similar paths. */
  count(verb: string, resource: string, code: number): void;
  /** Counts the start of a watch; the returned function counts its end. */
  watching(resource: string): () => void;
  /** Renders the text that Prometheus scrapes. */
  render(store: Store, collections: readonly string[]): Promise<string>;
}

const key = (...parts: (string | number)[]) => parts.join('\n');

/**
 * Uses kube-apiserver's metric names, so that its dashboards work. Counting is cheap: prom-client is loaded by the
 * first scrape.
 */
export function createRequestMetrics(): RequestMetrics {
  const requests = new Map<string, number>();
  const watches = new Map<string, number>();
  const add = (map: Map<string, number>, name: string, change: number) =>
    map.set(name, (map.get(name) ?? 0) + change);
  return {
    count: (verb, resource, code) => {
      add(requests, key(verb, resource, code), 1);
    },
    watching(resource) {
      add(watches, resource, 1);
      let ended = false;
      return () => {
        if (!ended) add(watches, resource, -1);
        ended = true;
      };
    },
    async render(store, collections) {
      // In the bundle, a dynamically imported CommonJS module has only a default export.
      const { Counter, Gauge, Registry } = (await import('prom-client')).default;
      const registry = new Registry();
      const registers = [registry];
      const total = new Counter({
        name: 'apiserver_request_total',
        help: 'Requests answered',
        labelNames: ['verb', 'resource', 'code'],
        registers,
      });
      for (const [name, count] of requests) {
        const [verb = '', resource = '', code = ''] = name.split('\n');
        total.inc({ verb, resource, code }, count);
      }
      const running = new Gauge({
        name: 'apiserver_longrunning_requests',
        help: 'Watches that are open',
        labelNames: ['verb', 'resource'],
        registers,
      });
      for (const [resource, count] of watches) running.set({ verb: 'WATCH', resource }, count);
      const objects = new Gauge({
        name: 'apiserver_storage_objects',
        help: 'Objects stored',
        labelNames: ['resource'],
        registers,
      });
      for (const resource of new Set(collections)) objects.set({ resource }, store.count(resource));
      new Gauge({
        name: 'fairlead_apiserver_resource_version',
        help: 'Version of the last change',
        registers,
      }).set(store.version);
      return registry.metrics();
    },
  };
}
