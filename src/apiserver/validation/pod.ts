import { type ApiObject, at, equal, isObject, type JsonObject, listAt } from '../object.ts';
import { type FieldError, forbidden, invalid, required } from '../status-error.ts';
import { validatePodSpec } from './pod-spec.ts';
import { onlyAddsTolerations } from './scheduling.ts';

/**
 * Validates a Pod; on update, checks that only mutable fields change (containers' images, deadlines, added
 * tolerations).
 */
export function validatePod(pod: ApiObject, before: ApiObject | null): FieldError[] {
  const spec: JsonObject = isObject(pod['spec']) ? pod['spec'] : {};
  const errors = validatePodSpec(spec, 'spec', pod.metadata.name);
  checkTokens(spec, errors);
  checkImages(spec, errors);
  if (before) errors.push(...validateChange(spec, isObject(before['spec']) ? before['spec'] : {}));
  else if (listAt(spec, 'ephemeralContainers').length > 0) {
    errors.push(forbidden('spec.ephemeralContainers', 'cannot be set on create'));
  }
  if (!before && spec['nodeName'] && listAt(spec, 'schedulingGates').length > 0) {
    errors.push(forbidden('spec.nodeName', 'cannot be set until all schedulingGates have been cleared'));
  }
  return errors;
}

/** Checks what upstream does not check in templates, for compatibility. */
function checkImages(spec: JsonObject, errors: FieldError[]): void {
  for (const list of ['containers', 'initContainers']) {
    listAt(spec, list).forEach(({ image }, i) => {
      if (typeof image !== 'string' || image.trim() === image) return;
      errors.push(invalid(`spec.${list}[${i}].image`, image, 'must not have leading or trailing whitespace'));
    });
  }
}

/** Refuses a service account token without a service account. */
function checkTokens(spec: JsonObject, errors: FieldError[]): void {
  if (spec['serviceAccountName']) return;
  listAt(spec, 'volumes').forEach((volume, i) => {
    listAt(volume, 'projected', 'sources').forEach((source, j) => {
      if (!isObject(source['serviceAccountToken'])) return;
      const field = `spec.volumes[${i}].projected.sources[${j}].serviceAccountToken`;
      errors.push(forbidden(field, 'must not be specified when serviceAccountName is not set'));
    });
  });
}

const CHANGEABLE =
  'pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)';

function validateChange(spec: JsonObject, old: JsonObject): FieldError[] {
  const errors: FieldError[] = [];
  for (const list of ['containers', 'initContainers']) {
    const containers = listAt(spec, list);
    if (containers.length !== listAt(old, list).length) {
      errors.push(forbidden(`spec.${list}`, 'pod updates may not add or remove containers'));
      return errors;
    }
    containers.forEach((container, i) => {
      if (!container['image']) errors.push(required(`spec.${list}[${i}].image`));
    });
  }
  const deadline = spec['activeDeadlineSeconds'];
  const oldDeadline = old['activeDeadlineSeconds'];
  if (typeof deadline === 'number') {
    if (deadline < 0 || deadline > 2 ** 31 - 1) {
      errors.push(
        invalid('spec.activeDeadlineSeconds', deadline, 'must be between 0 and 2147483647, inclusive'),
      );
      return errors;
    }
    if (typeof oldDeadline === 'number' && oldDeadline < deadline) {
      errors.push(
        invalid('spec.activeDeadlineSeconds', deadline, 'must be less than or equal to previous value'),
      );
      return errors;
    }
  } else if (oldDeadline !== undefined) {
    errors.push(
      invalid('spec.activeDeadlineSeconds', null, 'must not update from a positive integer to nil value'),
    );
  }
  if (!onlyAddsTolerations(listAt(spec, 'tolerations'), listAt(old, 'tolerations'))) {
    errors.push(
      forbidden('spec.tolerations', 'existing toleration can not be modified except its tolerationSeconds'),
    );
  }
  const gates = listAt(spec, 'schedulingGates').map((gate) => gate['name']);
  const oldGates = new Set(listAt(old, 'schedulingGates').map((gate) => gate['name']));
  gates.forEach((gate, i) => {
    if (!oldGates.has(gate)) {
      errors.push(
        forbidden(
          `spec.schedulingGates[${i}].name`,
          'only deletion is allowed, but found new scheduling gate',
        ),
      );
    }
  });
  if (!equal(comparable(spec, old), comparable(old, old))) errors.push(forbidden('spec', CHANGEABLE));
  return errors;
}

/** Returns the spec without the fields that an update of a pod may change. */
function comparable(spec: JsonObject, old: JsonObject): JsonObject {
  const copy = structuredClone(spec);
  for (const list of ['containers', 'initContainers']) {
    for (const container of listAt(copy, list)) delete container['image'];
  }
  for (const field of ['activeDeadlineSeconds', 'tolerations', 'schedulingGates', 'ephemeralContainers']) {
    delete copy[field];
  }
  const wasNegative = Number(at(old, 'terminationGracePeriodSeconds') ?? 0) < 0;
  if (wasNegative && copy['terminationGracePeriodSeconds'] === 1) {
    copy['terminationGracePeriodSeconds'] = old['terminationGracePeriodSeconds'];
  }
  // A pod behind scheduling gates may still be restricted to fewer nodes.
  if (listAt(old, 'schedulingGates').length > 0) {
    delete copy['nodeSelector'];
    delete copy['affinity'];
  }
  // Binding sets the node.
  if (old['nodeName'] === undefined) delete copy['nodeName'];
  return copy;
}
