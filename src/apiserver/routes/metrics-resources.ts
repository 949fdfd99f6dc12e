import { messageOf } from '../../lib/errors.ts';
import { defineKind } from '../kind.ts';
import { type ApiObject, at, isObject, type JsonObject, listAt, textAt } from '../object.ts';
import { negotiate } from '../requests/negotiation.ts';
import { respond } from '../requests/responses.ts';
import type { ApiServices, Resource, ResourceContext } from '../services.ts';
import { notFound, StatusError } from '../status-error.ts';
import { selection } from '../verbs/list.ts';

/** The shortest time over which nodes measure CPU usage; metrics require a window. */
const WINDOW = '10s';

interface MetricsKind {
  /** The plural of the measured kind. */
  readonly plural: 'pods' | 'nodes';
  readonly kind: string;
  /**
   * Returns the metrics of an object from its node's summary (stats.v1alpha1.Summary); null if the summary has none.
   */
  readonly measure: (object: ApiObject, summary: unknown) => JsonObject | null;
  readonly nodeOf: (object: ApiObject) => string;
}

const KINDS: readonly MetricsKind[] = [
  {
    plural: 'nodes',
    kind: 'NodeMetrics',
    nodeOf: ({ metadata }) => metadata.name ?? '',
    measure: (_, summary) => {
      const usage = usageOf(at(summary, 'node'));
      return usage && { timestamp: textAt(summary, 'node', 'cpu', 'time'), window: WINDOW, usage };
    },
  },
  {
    plural: 'pods',
    kind: 'PodMetrics',
    nodeOf: (pod) => textAt(pod, 'spec', 'nodeName'),
    measure(pod, summary) {
      const found = listAt(summary, 'pods').find((one) => textAt(one, 'podRef', 'uid') === pod.metadata.uid);
      const measured = listAt(found, 'containers');
      const containers = measured.flatMap((container) => {
        const usage = usageOf(container);
        return usage ? [{ name: textAt(container, 'name'), usage }] : [];
      });
      if (containers.length === 0) return null;
      return { timestamp: textAt(measured[0], 'cpu', 'time'), window: WINDOW, containers };
    },
  },
];

/** Converts a part of a node's summary to quantities of cpu and memory. */
function usageOf(part: unknown): JsonObject | null {
  const cpu = at(part, 'cpu', 'usageNanoCores');
  const memory = at(part, 'memory', 'workingSetBytes');
  if (typeof cpu !== 'number' || typeof memory !== 'number') return null;
  return { cpu: `${Math.round(cpu)}n`, memory: `${Math.round(memory / 1024)}Ki` };
}

/**
 * Current usage of nodes and pods, read from the nodes (metrics.k8s.io/v1beta1, as upstream's metrics-server serves
 * it). Nodes that do not answer are omitted.
 */
export const METRICS_RESOURCES: readonly Resource[] = KINDS.map(metricsResource);

function metricsResource(measured: MetricsKind): Resource {
  const kind = defineKind('metrics.k8s.io/v1beta1', measured.kind, measured.plural, {
    namespaced: measured.plural === 'pods',
    singular: '',
    collection: `${measured.plural}.metrics.k8s.io`,
  });
  // These types have no Protobuf form here: clients that prefer Protobuf receive JSON.
  const answer = (services: ApiServices, context: ResourceContext, object: object) => {
    const form = negotiate(context, { formats: ['json', 'yaml'], transforms: [] });
    return respond(services.schema, form, 200, object);
  };
  return {
    kind,
    stored: false,
    subresources: new Map(),
    handlers: {
      async list(context, services) {
        const stored = services.registry.find('', 'v1', measured.plural);
        const objects = stored
          ? (await services.resources.list(stored.kind, selection(context))).items.map(({ object }) => object)
          : [];
        const items = await measureAll(services, measured, objects);
        return answer(services, context, {
          kind: `${measured.kind}List`,
          apiVersion: 'metrics.k8s.io/v1beta1',
          metadata: {},
          items,
        });
      },
      async get(context, services) {
        const { namespace, name } = context;
        const object = services.store.get(measured.plural, `${namespace}/${name}`)?.object;
        if (!object) throw notFound(kind, name);
        const [found] = await measureAll(services, measured, [object]);
        if (!found) throw notFound(kind, name);
        return answer(services, context, found);
      },
    },
  };
}

async function measureAll(
  services: ApiServices,
  measured: MetricsKind,
  objects: readonly ApiObject[],
): Promise<JsonObject[]> {
  const nodes = [...new Set(objects.map(measured.nodeOf).filter((node) => node !== ''))];
  const results = await Promise.allSettled(nodes.map((node) => services.nodes.read(node, '/stats/summary')));
  const failure = results.find((result) => result.status === 'rejected');
  if (failure && results.every((result) => result.status === 'rejected')) {
    throw new StatusError(503, 'ServiceUnavailable', `no node answers: ${messageOf(failure.reason)}`);
  }
  const summaries = new Map(
    results.flatMap((result, i) =>
      result.status === 'fulfilled' ? [[nodes[i] ?? '', result.value] as const] : [],
    ),
  );
  return objects.flatMap((object) => {
    const metrics = measured.measure(object, summaries.get(measured.nodeOf(object)));
    if (!metrics) return [];
    const { name, namespace, labels, creationTimestamp } = object.metadata;
    return [
      {
        kind: measured.kind,
        apiVersion: 'metrics.k8s.io/v1beta1',
        metadata: {
          name: name ?? '',
          ...(namespace ? { namespace } : {}),
          ...(isObject(labels) ? { labels } : {}),
          ...(creationTimestamp ? { creationTimestamp } : {}),
        },
        ...metrics,
      },
    ];
  });
}
