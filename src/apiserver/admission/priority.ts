import { type ApiObject, isObject } from '../object.ts';
import type { ObjectView } from '../object-view.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './plugin.ts';
import { admissionForbidden } from './refusal.ts';

const CLASSES = 'priorityclasses.scheduling.k8s.io';
const PREEMPT = 'PreemptLowerPriority';

/** Sets the priority of new pods from their class, and keeps the default class unique (upstream's Priority plugin). */
export function createPriorityPlugin(view: ObjectView): AdmissionPlugin {
  return {
    name: 'Priority',
    handles: ({ operation, resource, subresource }) =>
      subresource === '' &&
      (operation === 'CREATE' || operation === 'UPDATE') &&
      ((resource.group === '' && resource.resource === 'pods') || resource.resource === 'priorityclasses'),
    mutate(attributes) {
      const { object, oldObject, resource } = attributes;
      if (!object || resource.resource !== 'pods') return;
      if (oldObject) keepPriority(object, oldObject);
      else setPriority(attributes, object, view);
    },
    validate(attributes) {
      const { object, resource } = attributes;
      if (object?.['globalDefault'] !== true || resource.resource !== 'priorityclasses') return;
      const other = view
        .list(CLASSES)
        .find((one) => one['globalDefault'] === true && one.metadata.name !== object.metadata.name);
      if (!other) return;
      throw admissionForbidden(
        attributes,
        `PriorityClass ${other.metadata.name} is already marked as default. Only one default can exist`,
      );
    },
  };
}

/**
 * Sets the priority of the pod's class, of the default class, or 0. Throws StatusError 403 for an unknown class or a
 * different priority.
 */
function setPriority(attributes: AdmissionAttributes, pod: ApiObject, view: ObjectView): void {
  const { spec } = pod;
  if (!isObject(spec)) return;
  const wanted = spec['priorityClassName'];
  const found = wanted
    ? view.get(CLASSES, `/${String(wanted)}`)
    : view
        .list(CLASSES)
        .filter((one) => one['globalDefault'] === true)
        .sort((a, b) => Number(a['value']) - Number(b['value']))[0];
  if (wanted && !found) {
    throw admissionForbidden(attributes, `no PriorityClass with name ${String(wanted)} was found`);
  }
  if (found) spec['priorityClassName'] = found.metadata.name;
  const priority = Number(found?.['value'] ?? 0);
  const policy = String(found?.['preemptionPolicy'] ?? PREEMPT);
  if (spec['priority'] !== undefined && spec['priority'] !== null && spec['priority'] !== priority) {
    throw admissionForbidden(
      attributes,
      `the integer value of priority (${String(spec['priority'])}) must not be provided in pod spec; priority admission controller computed ${priority} from the given PriorityClass name`,
    );
  }
  if (spec['preemptionPolicy'] !== undefined && spec['preemptionPolicy'] !== policy) {
    throw admissionForbidden(
      attributes,
      `the string value of PreemptionPolicy (${String(spec['preemptionPolicy'])}) must not be provided in pod spec; priority admission controller computed ${policy} from the given PriorityClass name`,
    );
  }
  spec['priority'] = priority;
  spec['preemptionPolicy'] = policy;
}

/** Keeps the values set by admission if an update omits them. */
function keepPriority(pod: ApiObject, before: ApiObject): void {
  const [spec, old] = [pod['spec'], before['spec']];
  if (!isObject(spec) || !isObject(old)) return;
  for (const field of ['priority', 'preemptionPolicy']) {
    if (spec[field] === undefined && old[field] !== undefined) spec[field] = old[field];
  }
}
