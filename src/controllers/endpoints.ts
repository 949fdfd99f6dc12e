import { hasLabels } from '../kube/selector.ts';
import {
  type EndpointAddress,
  type EndpointSubset,
  type Endpoints,
  keyOf,
  type Node,
  type Pod,
  type Service,
  splitKey,
} from '../kube/types.ts';
import { HEADLESS_LABEL, LAST_CHANGE_ANNOTATION } from '../kube/well-known-labels.ts';
import { same } from './canonical.ts';
import { type ControllerContext, controllerQueue } from './context.ts';
import { triggerTime } from './endpoint-slice.ts';
import { hasSelector, queueServicesOfPods } from './pod-services.ts';
import { conditionOf, timeOf } from './pods.ts';
import { addressTypesOf, isHeadless, serviceGroups } from './service-endpoints.ts';

export const ENDPOINTS_MANAGED_BY = 'endpoints.kubernetes.io/managed-by';
const OVER_CAPACITY = 'endpoints.kubernetes.io/over-capacity';
/** Upstream truncates the legacy object to this size. */
const MAX_ADDRESSES = 1000;

/**
 * Computes the subsets of a Service's legacy Endpoints: its primary family, without pods that are being deleted. Pure.
 */
function endpointSubsets(
  service: Service,
  pods: readonly Pod[],
  nodeOf: (name: string) => Node | undefined,
): { subsets: EndpointSubset[]; truncated: boolean } {
  const addressType = addressTypesOf(service)[0];
  let room = MAX_ADDRESSES;
  let truncated = false;
  const subsets = serviceGroups(service, pods, nodeOf)
    .filter((group) => group.addressType === addressType)
    .flatMap((group): EndpointSubset[] => {
      const lists: Record<'addresses' | 'notReadyAddresses', EndpointAddress[]> = {
        addresses: [],
        notReadyAddresses: [],
      };
      // Ready addresses first, so that they are truncated last.
      const endpoints = group.endpoints
        .filter(({ conditions }) => !conditions?.terminating)
        .sort((a, b) => Number(b.conditions?.ready) - Number(a.conditions?.ready));
      for (const { addresses, conditions, hostname, nodeName, targetRef } of endpoints) {
        if (room-- <= 0) {
          truncated = true;
          break;
        }
        lists[conditions?.ready ? 'addresses' : 'notReadyAddresses'].push({
          ip: addresses[0] ?? '',
          ...(hostname ? { hostname } : {}),
          ...(nodeName ? { nodeName } : {}),
          ...(targetRef ? { targetRef } : {}),
        });
      }
      const { addresses, notReadyAddresses } = lists;
      if (addresses.length + notReadyAddresses.length === 0) return [];
      const byAddress = (a: EndpointAddress, b: EndpointAddress) => (a.ip < b.ip ? -1 : 1);
      return [
        {
          ...(addresses.length > 0 ? { addresses: addresses.sort(byAddress) } : {}),
          ...(notReadyAddresses.length > 0 ? { notReadyAddresses: notReadyAddresses.sort(byAddress) } : {}),
          ports: group.ports.map(({ name, port, protocol, appProtocol }) => ({
            ...(name ? { name } : {}),
            port: port ?? 0,
            protocol: protocol ?? 'TCP',
            ...(appProtocol ? { appProtocol } : {}),
          })),
        },
      ];
    });
  return { subsets, truncated };
}

/** Returns the Endpoints object of a Service; null if the existing one is up to date. Pure. */
export function reconcileEndpoints(view: {
  readonly service: Service;
  readonly pods: readonly Pod[];
  readonly nodeOf: (name: string) => Node | undefined;
  readonly current: Endpoints | undefined;
  readonly triggeredAt: string | null;
}): Endpoints | null {
  const { service, current, triggeredAt } = view;
  const { subsets, truncated } = endpointSubsets(service, view.pods, view.nodeOf);
  const labels = {
    ...service.metadata?.labels,
    [ENDPOINTS_MANAGED_BY]: 'endpoint-controller',
    ...(isHeadless(service) ? { [HEADLESS_LABEL]: '' } : {}),
  };
  if (current && same(current.subsets ?? [], subsets) && same(current.metadata?.labels ?? {}, labels))
    return null;
  const { [OVER_CAPACITY]: _over, ...kept } = current?.metadata?.annotations ?? {};
  const annotations = {
    ...kept,
    ...(triggeredAt === null ? {} : { [LAST_CHANGE_ANNOTATION]: triggeredAt }),
    ...(truncated ? { [OVER_CAPACITY]: 'truncated' } : {}),
  };
  const { name = '', namespace } = service.metadata ?? {};
  return {
    ...current,
    metadata: { ...current?.metadata, name, ...(namespace ? { namespace } : {}), labels, annotations },
    subsets,
  };
}

/** Maintains the legacy Endpoints of Services with selectors, for clients that still read them. */
export function startEndpoints(context: ControllerContext): void {
  const { services, pods, nodes, endpoints } = context.caches;
  const shown = new Map<string, Map<string, number>>();
  const queue = controllerQueue(context, 'endpoints', async (key) => {
    const { namespace, name } = splitKey(key);
    const service = services.get(namespace, name);
    const current = endpoints.get(namespace, name);
    if (!service) {
      shown.delete(key);
      // Manually created Endpoints are deleted with their Service too, as upstream.
      if (current) await endpoints.delete(current);
      return;
    }
    if (service.metadata?.deletionTimestamp !== undefined || !hasSelector(service)) return;
    const selected = pods
      .inNamespace(namespace)
      .filter((pod) => hasLabels(service.spec?.selector ?? {}, pod.metadata?.labels));
    const times = new Map(
      selected.map((pod) => [pod.metadata?.uid ?? '', timeOf(conditionOf(pod, 'Ready')?.lastTransitionTime)]),
    );
    const wanted = reconcileEndpoints({
      service,
      pods: selected,
      nodeOf: (node) => nodes.get(undefined, node),
      current,
      triggeredAt: triggerTime(service, times, shown.get(key)),
    });
    if (wanted) await (current ? endpoints.update(wanted) : endpoints.create(wanted));
    shown.set(key, times);
  });
  queueServicesOfPods(services, pods, queue);
  // Another client changed our Endpoints: they are restored. Endpoints created before their Service are not changed.
  const endpointsChanged = (object: Endpoints) => {
    if (services.informer.get(keyOf(object))) queue.add(keyOf(object));
  };
  endpoints.informer.handle({ onUpdate: endpointsChanged, onDelete: endpointsChanged });
}
