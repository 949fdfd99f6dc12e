import { apiVersionOf, type Kind } from '../kind.ts';
import { type ApiObject, at, isObject, type JsonObject } from '../object.ts';
import { invalid, invalidObject } from '../status-error.ts';

/** Returns the scale subresource of a workload, as autoscaling/v1 Scale. */
export function scaleOf(object: ApiObject): ApiObject {
  const {
    name = '',
    namespace = '',
    uid = '',
    resourceVersion = '',
    creationTimestamp = '',
  } = object.metadata;
  const selector = at(object, 'spec', 'selector');
  return {
    kind: 'Scale',
    apiVersion: 'autoscaling/v1',
    metadata: { name, namespace, uid, resourceVersion, creationTimestamp },
    spec: { replicas: at(object, 'spec', 'replicas') ?? 0 },
    status: {
      replicas: at(object, 'status', 'replicas') ?? 0,
      selector: selectorText(isObject(selector) ? selector : {}),
    },
  };
}

/** Returns the object with the Scale's replica count. Throws StatusError 422 for an invalid count. */
export function withScale(kind: Kind, object: ApiObject, scale: ApiObject): ApiObject {
  const replicas = at(scale, 'spec', 'replicas') ?? 0;
  if (typeof replicas !== 'number' || !Number.isInteger(replicas) || replicas < 0) {
    throw invalidObject(
      { group: 'autoscaling', kind: 'Scale', plural: 'scales' },
      object.metadata.name ?? '',
      [invalid('spec.replicas', replicas, 'must be greater than or equal to 0')],
    );
  }
  const version = scale.metadata.resourceVersion;
  return {
    ...object,
    apiVersion: apiVersionOf(kind),
    metadata: { ...object.metadata, ...(version ? { resourceVersion: version } : {}) },
    spec: { ...(object['spec'] as object), replicas },
  };
}

/** Formats a LabelSelector: "app=web,tier in (a,b)". */
export function selectorText(selector: JsonObject): string {
  const labels = isObject(selector['matchLabels']) ? selector['matchLabels'] : {};
  const equal = Object.entries(labels).map(([key, value]) => `${key}=${String(value)}`);
  const expressions = Array.isArray(selector['matchExpressions']) ? selector['matchExpressions'] : [];
  const sets = expressions.flatMap((expression) => {
    if (!isObject(expression)) return [];
    const key = String(expression['key']);
    const values = Array.isArray(expression['values']) ? `(${expression['values'].join(',')})` : '';
    switch (expression['operator']) {
      case 'In':
        return [`${key} in ${values}`];
      case 'NotIn':
        return [`${key} notin ${values}`];
      case 'Exists':
        return [key];
      default:
        return [`!${key}`];
    }
  });
  return [...equal, ...sets].join(',');
}
