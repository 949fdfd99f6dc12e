import { type ApiObject, equal, isObject, type JsonObject, listAt, textAt } from '../object.ts';
import type { ObjectView } from '../object-view.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './plugin.ts';
import { admissionForbidden } from './refusal.ts';

/**
 * Adds the overhead and the scheduling constraints of their RuntimeClass to new pods (upstream's RuntimeClass plugin).
 */
export function createRuntimeClassPlugin(view: ObjectView): AdmissionPlugin {
  const classOf = (attributes: AdmissionAttributes, pod: ApiObject): ApiObject | null => {
    const name = textAt(pod, 'spec', 'runtimeClassName');
    if (name === '') return null;
    const found = view.get('runtimeclasses.node.k8s.io', `/${name}`);
    if (found) return found;
    throw admissionForbidden(attributes, `pod rejected: RuntimeClass ${JSON.stringify(name)} not found`);
  };
  return {
    name: 'RuntimeClass',
    handles: ({ operation, resource, subresource }) =>
      operation === 'CREATE' && resource.group === '' && resource.resource === 'pods' && subresource === '',
    mutate(attributes) {
      const { object: pod } = attributes;
      if (!pod || !isObject(pod['spec'])) return;
      const runtimeClass = classOf(attributes, pod);
      if (!runtimeClass) return;
      setOverhead(attributes, pod['spec'], runtimeClass);
      setScheduling(attributes, pod['spec'], runtimeClass);
    },
    validate(attributes) {
      const { object: pod } = attributes;
      if (!pod) return;
      const overhead = isObject(pod['spec']) ? pod['spec']['overhead'] : undefined;
      if (overhead !== undefined && textAt(pod, 'spec', 'runtimeClassName') === '') {
        throw admissionForbidden(
          attributes,
          'pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead',
        );
      }
    },
  };
}

function setOverhead(attributes: AdmissionAttributes, spec: JsonObject, runtimeClass: ApiObject): void {
  const overhead = isObject(runtimeClass['overhead']) ? runtimeClass['overhead'] : {};
  const fixed = overhead['podFixed'];
  if (!isObject(fixed)) return;
  if (spec['overhead'] !== undefined && !equal(spec['overhead'], fixed)) {
    throw admissionForbidden(
      attributes,
      "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
    );
  }
  spec['overhead'] = fixed;
}

function setScheduling(attributes: AdmissionAttributes, spec: JsonObject, runtimeClass: ApiObject): void {
  const scheduling = runtimeClass['scheduling'];
  if (!isObject(scheduling)) return;
  const wanted = isObject(scheduling['nodeSelector']) ? scheduling['nodeSelector'] : {};
  const own = isObject(spec['nodeSelector']) ? spec['nodeSelector'] : {};
  for (const [key, value] of Object.entries(wanted)) {
    if (!Object.hasOwn(own, key) || own[key] === value) continue;
    throw admissionForbidden(
      attributes,
      `conflict: runtimeClass.scheduling.nodeSelector[${key}] = ${String(value)}; pod.spec.nodeSelector[${key}] = ${String(own[key])}`,
    );
  }
  if (Object.keys(wanted).length > 0) spec['nodeSelector'] = { ...own, ...wanted };
  const tolerations = listAt(spec, 'tolerations');
  const added = listAt(scheduling, 'tolerations').filter(
    (toleration) => !tolerations.some((one) => equal(one, toleration)),
  );
  if (added.length > 0) spec['tolerations'] = [...tolerations, ...added];
}
