import { selects } from '../kube/selector.ts';
import type { KubeObject, LabelSelector, Pod } from '../kube/types.ts';
import type { Cache } from './cache.ts';
import { controllerOf } from './ownership.ts';

/**
 * Adds the controller of every added, changed or deleted pod to the queue, as namespace/name; for a pod without one,
 * each object that selects it and so may adopt it.
 */
export function queueOwnersOfPods<T extends KubeObject>(
  owners: Cache<T>,
  pods: Cache<Pod>,
  queue: { add(key: string): void },
  selectorOf: (owner: T) => LabelSelector | undefined,
): void {
  const changed = (pod: Pod) => {
    const namespace = pod.metadata?.namespace ?? '';
    const controller = controllerOf(pod);
    if (controller) {
      if (controller.kind === owners.resource.kind) queue.add(`${namespace}/${controller.name}`);
      return;
    }
    for (const owner of owners.inNamespace(namespace)) {
      if (selects(selectorOf(owner), pod.metadata?.labels)) {
        queue.add(`${namespace}/${owner.metadata?.name ?? ''}`);
      }
    }
  };
  pods.informer.handle({
    onAdd: changed,
    onUpdate(pod, before) {
      changed(pod);
      if (controllerOf(before)?.uid !== controllerOf(pod)?.uid) changed(before);
    },
    onDelete: changed,
  });
}
