import { hasLabels } from '../kube/selector.ts';
import { keyOf, type Pod, type Service } from '../kube/types.ts';
import type { Cache } from './cache.ts';
import { conditionOf } from './pods.ts';

/** Reports whether a Service's endpoints are derived from pods. */
export function hasSelector(service: Service): boolean {
  return service.spec?.type !== 'ExternalName' && Object.keys(service.spec?.selector ?? {}).length > 0;
}

/**
 * Adds every added, changed or deleted Service to the queue, as namespace/name, and those that select a pod with a
 * relevant change.
 */
export function queueServicesOfPods(
  services: Cache<Service>,
  pods: Cache<Pod>,
  queue: { add(key: string): void },
): void {
  const bySelector = selectorIndex(services.informer);
  const serviceChanged = (service: Service) => queue.add(keyOf(service));
  services.informer.handle({
    onAdd: serviceChanged,
    onUpdate: serviceChanged,
    onDelete: serviceChanged,
  });
  const podChanged = (pod: Pod) => {
    for (const service of bySelector(pod)) queue.add(keyOf(service));
  };
  pods.informer.handle({
    onAdd: podChanged,
    onUpdate(pod, before) {
      if (!endpointChanged(pod, before)) return;
      podChanged(pod);
      podChanged(before);
    },
    onDelete: podChanged,
  });
}

/** Finds the Services that select a pod without iterating over all of them: by one label of their selector. */
function selectorIndex(services: {
  addIndex(name: string, values: (service: Service) => readonly string[]): void;
  byIndex(name: string, value: string): Service[];
}): (pod: Pod) => Service[] {
  const INDEX = 'first selector label';
  services.addIndex(INDEX, (service) => {
    const first = hasSelector(service) ? Object.entries(service.spec?.selector ?? {})[0] : undefined;
    return first ? [`${service.metadata?.namespace}\0${first[0]}=${first[1]}`] : [];
  });
  return (pod) =>
    Object.entries(pod.metadata?.labels ?? {}).flatMap(([key, value]) =>
      services
        .byIndex(INDEX, `${pod.metadata?.namespace}\0${key}=${value}`)
        .filter((service) => hasLabels(service.spec?.selector ?? {}, pod.metadata?.labels)),
    );
}

/** Reports whether the change of a pod affects its endpoints. */
function endpointChanged(pod: Pod, before: Pod): boolean {
  return (
    conditionOf(pod, 'Ready')?.status !== conditionOf(before, 'Ready')?.status ||
    (pod.metadata?.deletionTimestamp === undefined) !== (before.metadata?.deletionTimestamp === undefined) ||
    pod.status?.phase !== before.status?.phase ||
    pod.spec?.nodeName !== before.spec?.nodeName ||
    pod.spec?.hostname !== before.spec?.hostname ||
    JSON.stringify(pod.status?.podIPs) !== JSON.stringify(before.status?.podIPs) ||
    pod.status?.podIP !== before.status?.podIP ||
    JSON.stringify(pod.metadata?.labels) !== JSON.stringify(before.metadata?.labels)
  );
}
