import { type ApiObject, equal, isObject, type JsonObject, listAt, textAt } from '../object.ts';
import { type FieldError, forbidden, invalid } from '../status-error.ts';
import { validatePodSpec } from './pod-spec.ts';

/** Resources of a running container that may change (KEP-1287). */
const RESIZABLE = new Set(['cpu', 'memory']);

/**
 * Validates the ephemeral containers of a pod: they can be added, not changed or removed
 * (ValidatePodEphemeralContainersUpdate).
 */
export function validateEphemeralContainers(pod: ApiObject, before: ApiObject): FieldError[] {
  const spec: JsonObject = isObject(pod['spec']) ? pod['spec'] : {};
  const errors = validatePodSpec(spec, 'spec', pod.metadata.name);
  const containers = listAt(spec, 'ephemeralContainers');
  const field = 'spec.ephemeralContainers';
  const places = new Map(containers.map((one, i) => [one['name'], i] as const).toReversed());
  for (const old of listAt(before, 'spec', 'ephemeralContainers')) {
    const name = JSON.stringify(old['name']);
    const i = places.get(old['name']) ?? -1;
    if (i < 0) errors.push(forbidden(field, `existing ephemeral containers ${name} may not be removed\n`));
    else if (!equal(containers[i], old)) {
      errors.push(forbidden(`${field}[${i}]`, `existing ephemeral containers ${name} may not be changed\n`));
    }
  }
  return errors;
}

/** Validates a resize: only CPU and memory, within the pod's QoS class (ValidatePodResize). */
export function validateResize(
  pod: ApiObject,
  before: ApiObject,
  qosClass: (pod: ApiObject) => string,
): FieldError[] {
  const errors = validatePodSpec(isObject(pod['spec']) ? pod['spec'] : {}, 'spec', pod.metadata.name);
  const phase = textAt(before, 'status', 'phase');
  if (phase === 'Succeeded' || phase === 'Failed') {
    errors.push(forbidden('spec', 'pods that are in a terminal phase may not be resized'));
  }
  if (qosClass(pod) !== qosClass(before)) {
    errors.push(invalid('spec', qosClass(pod), 'Pod QOS Class may not change as a result of resizing'));
  }
  for (const list of ['containers', 'initContainers']) {
    const old = listAt(before, 'spec', list);
    listAt(pod, 'spec', list).forEach((container, i) => {
      for (const part of ['requests', 'limits']) {
        if (!equal(fixed(container, part), fixed(old[i], part))) {
          const field = `spec.${list}[${i}].resources.${part}`;
          errors.push(forbidden(field, 'only cpu and memory resources are mutable'));
        }
      }
    });
  }
  return errors;
}

/** Returns the amounts of a container that must not change. */
function fixed(container: JsonObject | undefined, part: string): JsonObject {
  const resources = isObject(container?.['resources']) ? container['resources'] : {};
  const amounts = isObject(resources[part]) ? resources[part] : {};
  return Object.fromEntries(Object.entries(amounts).filter(([name]) => !RESIZABLE.has(name)));
}
