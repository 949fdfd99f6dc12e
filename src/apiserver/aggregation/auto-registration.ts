import type { Clock } from '../../lib/clock.ts';
import type { Logger } from '../../lib/log.ts';
import type { ResourceStore } from '../resource-store.ts';
import type { ResourceRegistry } from '../services.ts';
import type { Store } from '../store.ts';
import { API_SERVICE_KIND, remoteApi } from './api-service.ts';
import { groupPriority, isBuiltinGroup } from './group-priorities.ts';

const AUTOMANAGED = 'kube-aggregator.kubernetes.io/automanaged';
/** Priority of the first version of a group; each following version has one less. */
const FIRST_VERSION = 100;
/** Served here, but not by upstream's API server: another server may take it over. */
const NOT_REGISTERED = ['metrics.k8s.io'];

/**
 * Maintains an APIService for every group and version that this server serves itself (upstream's autoregister
 * controller). An APIService that names a Service belongs to its owner and is not changed. Returns a function that ends
 * it.
 */
export function registerOwnApis(options: {
  readonly store: Store;
  readonly resources: ResourceStore;
  readonly registry: ResourceRegistry;
  readonly clock: Clock;
  readonly logger: Logger;
}): () => void {
  const { store, resources, registry, clock, logger } = options;
  const { collection } = API_SERVICE_KIND;

  function reconcile(): void {
    const wanted = new Map<string, object>();
    const counts = new Map<string, number>();
    for (const { group, version } of registry.groupVersions()) {
      if (NOT_REGISTERED.includes(group)) continue;
      const position = counts.get(group) ?? 0;
      counts.set(group, position + 1);
      wanted.set(`${version}.${group}`, {
        group,
        version,
        groupPriorityMinimum: groupPriority(group),
        versionPriority: Math.max(1, FIRST_VERSION - position),
      });
    }
    for (const [name, spec] of wanted) {
      if (store.get(collection, `/${name}`)) continue;
      const group = name.slice(name.indexOf('.') + 1);
      const labels = { [AUTOMANAGED]: isBuiltinGroup(group) ? 'onstart' : 'true' };
      resources.create(API_SERVICE_KIND, '', {
        apiVersion: 'apiregistration.k8s.io/v1',
        kind: 'APIService',
        metadata: { name, labels },
        spec,
      });
    }
    for (const { object } of store.list(collection)) {
      const { name = '', labels } = object.metadata;
      if (labels?.[AUTOMANAGED] === undefined || wanted.has(name) || remoteApi(object)) continue;
      resources.delete(API_SERVICE_KIND, '', name, {});
    }
  }

  let cancel: (() => void) | null = null;
  const schedule = () => {
    cancel ??= clock.after(0, () => {
      cancel = null;
      try {
        reconcile();
      } catch (error) {
        logger.error({ err: error }, 'failed to register the groups of this server');
      }
    });
  };
  const endRegistry = registry.onChange(schedule);
  const endStore = store.listen(collection, ({ after }) => {
    if (after === null) schedule();
  });
  reconcile();
  return () => {
    cancel?.();
    endRegistry();
    endStore();
  };
}
