import type { Kind } from './kind.ts';
import { type ApiObject, isObject, type JsonObject, listAt } from './object.ts';

const PREFIX = 'autoscaling.alpha.kubernetes.io/';
const METRICS = `${PREFIX}metrics`;
const CURRENT_METRICS = `${PREFIX}current-metrics`;
const CONDITIONS = `${PREFIX}conditions`;
const BEHAVIOR = `${PREFIX}behavior`;
/** Annotations that the conversion adds: they are not stored. */
const OWN_ANNOTATIONS = [
  METRICS,
  CURRENT_METRICS,
  CONDITIONS,
  BEHAVIOR,
  `${PREFIX}scale-down-tolerance`,
  `${PREFIX}scale-up-tolerance`,
];
const DEFAULT_UTILIZATION = 80;

/**
 * Converts between autoscaling/v1 and autoscaling/v2 HorizontalPodAutoscalers: v1 has only a target for CPU;
 * annotations contain the fields that v1 does not have (k8s.io/kubernetes pkg/apis/autoscaling/v1/conversion.go).
 */
export function autoscalerView(v2: Kind): NonNullable<Kind['view']> {
  return { of: v2, toStorage, fromStorage };
}

function toStorage(autoscaler: ApiObject): ApiObject {
  const { targetCPUUtilizationPercentage: target, ...spec } = objectOf(autoscaler['spec']);
  const annotations = autoscaler.metadata.annotations ?? {};
  const metrics = [
    ...listOf(annotations[METRICS]).map(metricToV2),
    ...(typeof target === 'number' ? [cpuMetric(target)] : []),
  ];
  const behavior = renamed(parsed(annotations[BEHAVIOR]), lowerFirst);
  const converted: ApiObject = {
    ...autoscaler,
    apiVersion: 'autoscaling/v2',
    metadata: withAnnotations(autoscaler, {}),
    spec: {
      ...spec,
      metrics: metrics.length > 0 ? metrics : [cpuMetric(DEFAULT_UTILIZATION)],
      ...(isObject(behavior) && Object.keys(behavior).length > 0 ? { behavior } : {}),
    },
  };
  if (isObject(autoscaler['status'])) {
    const { currentCPUUtilizationPercentage: current, ...status } = autoscaler['status'];
    const saved = listOf(annotations[CURRENT_METRICS]);
    const own =
      typeof current === 'number'
        ? [{ type: 'Resource', resource: { name: 'cpu', current: { averageUtilization: current } } }]
        : [];
    const currentMetrics = saved.length > 0 ? saved.map(statusToV2) : own;
    const conditions = listOf(annotations[CONDITIONS]);
    converted['status'] = {
      ...status,
      ...(currentMetrics.length > 0 ? { currentMetrics } : {}),
      ...(conditions.length > 0 ? { conditions } : {}),
    };
  }
  return converted;
}

function fromStorage(autoscaler: ApiObject): ApiObject {
  const { metrics: _metrics, behavior, ...spec } = objectOf(autoscaler['spec']);
  const metrics = listAt(autoscaler, 'spec', 'metrics');
  const target = metrics.map(cpuUtilization).find((utilization) => utilization !== undefined);
  const others = metrics.filter((metric) => cpuUtilization(metric) === undefined).map(metricToV1);
  const currents = listAt(autoscaler, 'status', 'currentMetrics');
  const conditions = listAt(autoscaler, 'status', 'conditions');
  const converted: ApiObject = {
    ...autoscaler,
    metadata: withAnnotations(autoscaler, {
      ...(others.length > 0 ? { [METRICS]: JSON.stringify(others) } : {}),
      ...(currents.length > 0 ? { [CURRENT_METRICS]: JSON.stringify(currents.map(statusToV1)) } : {}),
      ...(isObject(behavior) ? { [BEHAVIOR]: JSON.stringify(renamed(behavior, upperFirst)) } : {}),
      ...(conditions.length > 0 ? { [CONDITIONS]: JSON.stringify(conditions) } : {}),
    }),
    spec: { ...spec, ...(target === undefined ? {} : { targetCPUUtilizationPercentage: target }) },
  };
  if (isObject(autoscaler['status'])) {
    const { currentMetrics: _current, conditions: _conditions, ...status } = autoscaler['status'];
    const current = currents.map(currentCpuUtilization).find((utilization) => utilization !== undefined);
    converted['status'] = {
      ...status,
      ...(current === undefined ? {} : { currentCPUUtilizationPercentage: current }),
    };
  }
  return converted;
}

const objectOf = (value: unknown): JsonObject => (isObject(value) ? value : {});
const cpuMetric = (averageUtilization: number) => ({
  type: 'Resource',
  resource: { name: 'cpu', target: { type: 'Utilization', averageUtilization } },
});

function cpuUtilization(metric: JsonObject): number | undefined {
  const resource = objectOf(metric['resource']);
  const utilization = objectOf(resource['target'])['averageUtilization'];
  const isCpu = metric['type'] === 'Resource' && resource['name'] === 'cpu';
  return isCpu && typeof utilization === 'number' ? utilization : undefined;
}

function currentCpuUtilization(metric: JsonObject): number | undefined {
  const resource = objectOf(metric['resource']);
  const utilization = objectOf(resource['current'])['averageUtilization'];
  const isCpu = metric['type'] === 'Resource' && resource['name'] === 'cpu';
  return isCpu && typeof utilization === 'number' ? utilization : undefined;
}

/** Returns the metadata with these annotations in place of earlier annotations of the conversion. */
function withAnnotations({ metadata }: ApiObject, added: Record<string, string>): ApiObject['metadata'] {
  const { annotations, ...rest } = metadata;
  const kept = Object.entries(annotations ?? {}).filter(([name]) => !OWN_ANNOTATIONS.includes(name));
  const all = { ...Object.fromEntries(kept), ...added };
  return Object.keys(all).length > 0 ? { ...rest, annotations: all } : rest;
}

/** Returns undefined for text that is not JSON: as upstream, an annotation that cannot be parsed is ignored. */
function parsed(text: string | undefined): unknown {
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function listOf(text: string | undefined): JsonObject[] {
  const value = parsed(text);
  return Array.isArray(value) ? value.filter(isObject) : [];
}

/** Returns the fields that are set, in this order. */
function fields(all: Record<string, unknown>): JsonObject {
  return Object.fromEntries(
    Object.entries(all).filter(([, value]) => value !== undefined && value !== null),
  ) as JsonObject;
}

/** Upstream serializes behavior under Go's field names. */
function renamed(value: unknown, rename: (name: string) => string): unknown {
  if (Array.isArray(value)) return value.map((item) => renamed(item, rename));
  if (!isObject(value)) return value;
  return fields(
    Object.fromEntries(Object.entries(value).map(([name, item]) => [rename(name), renamed(item, rename)])),
  );
}

const lowerFirst = (name: string) => `${name.slice(0, 1).toLowerCase()}${name.slice(1)}`;
const upperFirst = (name: string) => `${name.slice(0, 1).toUpperCase()}${name.slice(1)}`;

/** Returns the field of a metric that its type names: "Resource" → "resource". */
function sourceOf(metric: JsonObject): { type: unknown; key: string; source: JsonObject } {
  const key = lowerFirst(String(metric['type'] ?? ''));
  return { type: metric['type'], key, source: objectOf(metric[key]) };
}

function metricToV1(metric: JsonObject): JsonObject {
  const { type, key, source } = sourceOf(metric);
  const target = objectOf(source['target']);
  const identifier = objectOf(source['metric']);
  const { name: metricName, selector } = identifier;
  const { averageValue, averageUtilization, value } = target;
  switch (type) {
    case 'Resource':
    case 'ContainerResource':
      return fields({
        type,
        [key]: fields({
          name: source['name'],
          targetAverageUtilization: averageUtilization,
          targetAverageValue: averageValue,
          container: source['container'],
        }),
      });
    case 'Object':
      return fields({
        type,
        [key]: fields({
          target: source['describedObject'],
          metricName,
          targetValue: value ?? '0',
          selector,
          averageValue,
        }),
      });
    case 'Pods':
      return fields({
        type,
        [key]: fields({ metricName, targetAverageValue: averageValue ?? '0', selector }),
      });
    case 'External':
      return fields({
        type,
        [key]: fields({
          metricName,
          metricSelector: selector,
          targetValue: value,
          targetAverageValue: averageValue,
        }),
      });
    default:
      return fields({ type });
  }
}

function metricToV2(metric: JsonObject): JsonObject {
  const { type, key, source } = sourceOf(metric);
  const identifier = fields({ name: source['metricName'], selector: source['selector'] });
  switch (type) {
    case 'Resource':
    case 'ContainerResource': {
      const averageUtilization = source['targetAverageUtilization'];
      const target = fields({
        type: averageUtilization === undefined ? 'AverageValue' : 'Utilization',
        averageValue: source['targetAverageValue'],
        averageUtilization,
      });
      return fields({
        type,
        [key]: fields({ name: source['name'], container: source['container'], target }),
      });
    }
    case 'Object': {
      const { averageValue, targetValue } = source;
      const isAverage = averageValue !== undefined;
      const target = fields({
        type: isAverage ? 'AverageValue' : 'Value',
        value: isAverage && targetValue === '0' ? undefined : targetValue,
        averageValue,
      });
      return fields({ type, [key]: { describedObject: source['target'], target, metric: identifier } });
    }
    case 'Pods':
      return fields({
        type,
        [key]: {
          metric: identifier,
          target: { type: 'AverageValue', averageValue: source['targetAverageValue'] },
        },
      });
    case 'External': {
      const { targetValue: value, targetAverageValue: averageValue } = source;
      const target = fields({ type: value === undefined ? 'AverageValue' : 'Value', value, averageValue });
      const named = fields({ name: source['metricName'], selector: source['metricSelector'] });
      return fields({ type, [key]: { metric: named, target } });
    }
    default:
      return metric;
  }
}

function statusToV1(metric: JsonObject): JsonObject {
  const { type, key, source } = sourceOf(metric);
  const { name: metricName, selector } = objectOf(source['metric']);
  const { value, averageValue, averageUtilization } = objectOf(source['current']);
  switch (type) {
    case 'Resource':
    case 'ContainerResource':
      return fields({
        type,
        [key]: fields({
          name: source['name'],
          currentAverageUtilization: averageUtilization,
          currentAverageValue: averageValue ?? '0',
          container: source['container'],
        }),
      });
    case 'Object':
      return fields({
        type,
        [key]: fields({
          target: source['describedObject'],
          metricName,
          currentValue: value ?? '0',
          selector,
          averageValue,
        }),
      });
    case 'Pods':
      return fields({
        type,
        [key]: fields({ metricName, currentAverageValue: averageValue ?? '0', selector }),
      });
    case 'External':
      return fields({
        type,
        [key]: fields({
          metricName,
          metricSelector: selector,
          currentValue: value ?? '0',
          currentAverageValue: averageValue,
        }),
      });
    default:
      return fields({ type });
  }
}

function statusToV2(metric: JsonObject): JsonObject {
  const { type, key, source } = sourceOf(metric);
  const identifier = fields({ name: source['metricName'], selector: source['selector'] });
  switch (type) {
    case 'Resource':
    case 'ContainerResource': {
      const current = fields({
        averageValue: source['currentAverageValue'],
        averageUtilization: source['currentAverageUtilization'],
      });
      return fields({
        type,
        [key]: fields({ name: source['name'], container: source['container'], current }),
      });
    }
    case 'Object': {
      const current = fields({ value: source['currentValue'], averageValue: source['averageValue'] });
      return fields({ type, [key]: { metric: identifier, current, describedObject: source['target'] } });
    }
    case 'Pods':
      return fields({
        type,
        [key]: { metric: identifier, current: { averageValue: source['currentAverageValue'] } },
      });
    case 'External': {
      const current = fields({
        value: source['currentValue'],
        averageValue: source['currentAverageValue'],
      });
      const named = fields({ name: source['metricName'], selector: source['metricSelector'] });
      return fields({ type, [key]: { metric: named, current } });
    }
    default:
      return metric;
  }
}
