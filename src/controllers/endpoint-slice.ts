import { hasLabels } from '../kube/selector.ts';
import { timestamp } from '../kube/timestamp.ts';
import {
  type EndpointSlice,
  keyOf,
  type Node,
  type Pod,
  RESOURCES,
  type Service,
  splitKey,
} from '../kube/types.ts';
import {
  HEADLESS_LABEL,
  LAST_CHANGE_ANNOTATION,
  MANAGED_BY_LABEL,
  SERVICE_NAME_LABEL,
  ZONE_LABEL,
} from '../kube/well-known-labels.ts';
import { all, type ControllerContext, controllerQueue } from './context.ts';
import { controllerReference } from './ownership.ts';
import { hasSelector, queueServicesOfPods } from './pod-services.ts';
import { conditionOf, timeOf } from './pods.ts';
import { isHeadless, serviceGroups } from './service-endpoints.ts';
import { packSlices, type SliceMetadata, type SliceWrites } from './slice-packing.ts';
import { withHints, zoneShares } from './topology-hints.ts';

const CONTROLLER = 'endpointslice-controller.k8s.io';

export interface EndpointSliceView {
  readonly service: Service;
  /** Pods that its selector matches. */
  readonly pods: readonly Pod[];
  /** Slices of this Service that this controller manages. */
  readonly slices: readonly EndpointSlice[];
  readonly nodeOf: (name: string) => Node | undefined;
  readonly shares: ReadonlyMap<string, number> | null;
  /** Time of the change that triggered this reconcile; null if unknown. */
  readonly triggeredAt: string | null;
}

/** Computes the writes that update a Service's slices. Pure. */
export function reconcileEndpointSlices(view: EndpointSliceView): SliceWrites {
  const { service } = view;
  const groups = withHints(service, serviceGroups(service, view.pods, view.nodeOf), view.shares);
  return packSlices(groups, view.slices, sliceMetadata(service, view.triggeredAt));
}

function sliceMetadata(service: Service, triggeredAt: string | null): SliceMetadata {
  const { name = '', namespace } = service.metadata ?? {};
  const { [HEADLESS_LABEL]: _headless, ...labels } = service.metadata?.labels ?? {};
  return {
    ...(namespace ? { namespace } : {}),
    generateName: `${name}-`,
    labels: {
      ...labels,
      [SERVICE_NAME_LABEL]: name,
      [MANAGED_BY_LABEL]: CONTROLLER,
      ...(isHeadless(service) ? { [HEADLESS_LABEL]: '' } : {}),
    },
    ...(triggeredAt === null ? {} : { annotations: { [LAST_CHANGE_ANNOTATION]: triggeredAt } }),
    ownerReferences: [controllerReference(service, RESOURCES.services)],
  };
}

/** Maintains the EndpointSlices of Services with selectors. */
export function startEndpointSlices(context: ControllerContext): void {
  const { services, pods, nodes, endpointSlices } = context.caches;
  endpointSlices.informer.addIndex(SERVICE_NAME_LABEL, (slice) => [
    `${slice.metadata?.namespace}/${slice.metadata?.labels?.[SERVICE_NAME_LABEL] ?? ''}`,
  ]);
  /** Ready transitions that the slices of a Service already show, by pod. */
  const shown = new Map<string, Map<string, number>>();

  const queue = controllerQueue(context, 'endpointslice', async (key) => {
    const { namespace, name } = splitKey(key);
    const service = services.get(namespace, name);
    const slices = endpointSlices.informer
      .byIndex(SERVICE_NAME_LABEL, key)
      .filter(
        (slice) =>
          slice.metadata?.labels?.[MANAGED_BY_LABEL] === CONTROLLER && !endpointSlices.isDeleting(slice),
      );
    // The garbage collector deletes the slices of a deleted Service.
    if (!service) return void shown.delete(key);
    if (service.metadata?.deletionTimestamp !== undefined) return;
    // When a Service loses its selector, upstream leaves its slices to the program that writes them from then on.
    if (!hasSelector(service)) {
      if (service.spec?.type === 'ExternalName')
        await all(slices.map((slice) => endpointSlices.delete(slice)));
      return;
    }
    const selected = pods
      .inNamespace(namespace)
      .filter((pod) => hasLabels(service.spec?.selector ?? {}, pod.metadata?.labels));
    const times = new Map(selected.map((pod) => [pod.metadata?.uid ?? '', readyTime(pod)]));
    const auto = service.metadata?.annotations?.['service.kubernetes.io/topology-mode'] !== undefined;
    const writes = reconcileEndpointSlices({
      service,
      pods: selected,
      slices,
      nodeOf: (node) => nodes.get(undefined, node),
      shares: auto ? zoneShares(nodes.informer.list()) : null,
      triggeredAt: triggerTime(service, times, shown.get(key)),
    });
    await all([
      ...writes.create.map((slice) => endpointSlices.create(slice)),
      ...writes.update.map((slice) => endpointSlices.update(slice)),
    ]);
    await all(writes.delete.map((slice) => endpointSlices.delete(slice)));
    shown.set(key, times);
  });

  queueServicesOfPods(services, pods, queue);
  endpointSlices.informer.handle({
    // Another client changed our slices: they are restored.
    onUpdate: (slice) => ownSliceChanged(slice),
    onDelete: (slice) => ownSliceChanged(slice),
  });
  const ownSliceChanged = (slice: EndpointSlice) => {
    if (slice.metadata?.labels?.[MANAGED_BY_LABEL] !== CONTROLLER) return;
    queue.add(`${slice.metadata.namespace}/${slice.metadata.labels[SERVICE_NAME_LABEL]}`);
  };
  const nodeChanged = () => {
    for (const service of services.informer.list()) if (hasSelector(service)) queue.add(keyOf(service));
  };
  nodes.informer.handle({
    onAdd: nodeChanged,
    onDelete: nodeChanged,
    onUpdate(node, before) {
      if (node.metadata?.labels?.[ZONE_LABEL] !== before.metadata?.labels?.[ZONE_LABEL]) nodeChanged();
    },
  });
}

function readyTime(pod: Pod): number {
  return timeOf(conditionOf(pod, 'Ready')?.lastTransitionTime);
}

/**
 * Returns the time of the earliest change that the slices do not show yet, from which programming latency is measured.
 */
export function triggerTime(
  service: Service,
  times: ReadonlyMap<string, number>,
  shown: ReadonlyMap<string, number> | undefined,
): string | null {
  if (!shown) return service.metadata?.creationTimestamp ?? null;
  const changes = [...times]
    .filter(([uid, time]) => time > 0 && shown.get(uid) !== time)
    .map(([, time]) => time);
  return changes.length === 0 ? null : timestamp(Math.min(...changes));
}
