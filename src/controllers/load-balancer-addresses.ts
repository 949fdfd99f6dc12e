import { addressOfLease, nodeOfSession, wasAllocatedHere } from '../kube/load-balancer.ts';
import { keyOf, type Lease, type Node, RESOURCES, type Service, splitKey } from '../kube/types.ts';
import type { LoadBalancerPool } from '../loadbalancer/address-pools.ts';
import {
  type AddressEvent,
  createServiceAddresses,
  needsAddresses,
  pendingStatus,
  releasedStatus,
} from '../loadbalancer/service-addresses.ts';
import { same } from './canonical.ts';
import { type ContextWith, controllerQueue, recorderFor } from './context.ts';

/** Prevents deletion of a Service before its addresses are released (KEP-980). */
const FINALIZER = 'service.kubernetes.io/load-balancer-cleanup';

/** The dependencies of this controller: a part of every controller's context. */
export type AddressContext = ContextWith<'services' | 'namespaces' | 'nodes' | 'leases'>;

/**
 * Writes the addresses of Services of type LoadBalancer, one per family, and the nodes that announce them to the status
 * of the Services. The status is the record: a restarted controller adopts it.
 */
export function startLoadBalancerAddresses(
  context: AddressContext,
  pools: readonly LoadBalancerPool[],
): void {
  const { services, namespaces, nodes, leases } = context.caches;
  const events = recorderFor(context, 'load-balancer');
  const addresses = createServiceAddresses({
    pools,
    namespaceLabels: (name) => labelsOf(namespaces.get(undefined, name)),
  });
  const queue = controllerQueue(context, 'load-balancer-addresses', reconcile);
  const addAll = (keys: Iterable<string>) => {
    for (const key of keys) queue.add(key);
  };

  // The addresses of the nodes must be known before any address is assigned.
  const readNode = (node: Node) => {
    const name = node.metadata?.name ?? '';
    addAll(addresses.setNode(name, nodes.get(undefined, name) ?? null));
  };
  nodes.informer.handle({ onAdd: readNode, onUpdate: readNode, onDelete: readNode });
  addresses.adopt(services.informer.list());
  const addService = (service: Service) => queue.add(keyOf(service));
  services.informer.handle({ onAdd: addService, onUpdate: addService, onDelete: addService });
  const setAnnouncer = (lease: Lease, node: string | null) => {
    const address = addressOfLease(lease);
    if (address !== null) addAll(addresses.setAnnouncer(address, node));
  };
  const readLease = (lease: Lease) => setAnnouncer(lease, nodeOfSession(lease.spec?.holderIdentity ?? ''));
  leases.informer.handle({
    onAdd: readLease,
    onUpdate: readLease,
    onDelete: (lease) => setAnnouncer(lease, null),
  });
  namespaces.informer.handle({
    onUpdate(namespace, before) {
      if (same(labelsOf(namespace), labelsOf(before))) return;
      addAll(services.inNamespace(namespace.metadata?.name ?? '').map(keyOf));
    },
  });

  async function reconcile(key: string): Promise<void> {
    const { namespace, name } = splitKey(key);
    const service = services.get(namespace, name);
    if (!service || !needsAddresses(service)) {
      addAll(addresses.release(key));
      if (service && wasAllocatedHere(service)) await release(service);
      return;
    }
    const assignment = addresses.assign(service, context.clock.now());
    addAll(assignment.retry);
    const { status } = assignment;
    const current = assignment.addresses.length > 0 ? await withFinalizer(service) : service;
    if (!same(status, current.status)) await services.updateStatus({ ...current, status });
    for (const event of assignment.events) report(service, event);
  }

  /**
   * Adds the finalizer, before the status shows an address: a Service that is deleted in between would keep it from
   * all others. Other load balancers use the same finalizer, so the condition that marks it as ours comes first:
   * without it, no controller would remove the finalizer after a crash in between.
   */
  async function withFinalizer(service: Service): Promise<Service> {
    if (finalizersOf(service).includes(FINALIZER)) return service;
    const marked = wasAllocatedHere(service)
      ? service
      : await services.updateStatus({ ...service, status: pendingStatus(service, context.clock.now()) });
    return await patchFinalizers(marked, [...finalizersOf(marked), FINALIZER]);
  }

  /** Removes the finalizer, and the addresses from the status, of a Service that is deleted or wants no address. */
  async function release(service: Service): Promise<void> {
    const finalizers = finalizersOf(service);
    let current = service;
    // The finalizer first: after a crash in between, the condition still shows the source of the addresses.
    if (finalizers.includes(FINALIZER)) {
      current = await patchFinalizers(
        service,
        finalizers.filter((one) => one !== FINALIZER),
      );
    }
    if (service.metadata?.deletionTimestamp !== undefined) return;
    const { status } = releasedStatus(current);
    await services.updateStatus({ ...current, status });
    const { event } = releasedStatus(service);
    if (event) report(service, event);
  }

  function patchFinalizers(service: Service, finalizers: readonly string[]): Promise<Service> {
    const { resourceVersion } = service.metadata ?? {};
    return services.patch(service, 'merge', { metadata: { resourceVersion, finalizers } });
  }

  function report(service: Service, { type, reason, message }: AddressEvent): void {
    events.event(service, type, reason, message, RESOURCES.services);
  }
}

const finalizersOf = ({ metadata }: Service): string[] => metadata?.finalizers ?? [];

function labelsOf(
  object: { metadata?: { labels?: unknown } } | undefined,
): Record<string, string> | undefined {
  return object?.metadata?.labels as Record<string, string> | undefined;
}
