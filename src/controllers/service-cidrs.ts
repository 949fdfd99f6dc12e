import { timestamp } from '../kube/timestamp.ts';
import { type IPAddress, keyOf, RESOURCES, type Resource, type ServiceCidr } from '../kube/types.ts';
import { cidrContains, parseCidr } from '../lib/address.ts';
import { same } from './canonical.ts';
import { type ControllerContext, controllerQueue, recorderFor } from './context.ts';

const FINALIZER = 'networking.k8s.io/service-cidr-finalizer';
const IP_ADDRESSES: Resource<IPAddress> = {
  group: 'networking.k8s.io',
  version: 'v1',
  plural: 'ipaddresses',
  kind: 'IPAddress',
  namespaced: false,
};
/** Released addresses cause no event. */
const RECHECK_MS = 1000;

/** Addresses created by the allocator of Services; others do not protect a ServiceCIDR (upstream's canDeleteCIDR). */
const isAllocated = ({ metadata }: IPAddress) =>
  metadata?.labels?.['ipaddress.kubernetes.io/managed-by'] === 'ipallocator.k8s.io';

export interface ServiceCidrPlan {
  readonly conditions: NonNullable<NonNullable<ServiceCidr['status']>['conditions']>;
  /** The wanted finalizers. */
  readonly finalizers: readonly string[];
}

/**
 * Computes whether a ServiceCIDR is ready, or why it cannot be deleted yet (upstream's servicecidrs controller). Pure.
 */
export function reconcileServiceCidr(
  cidr: ServiceCidr,
  others: readonly ServiceCidr[],
  addresses: readonly string[],
  now: number,
): ServiceCidrPlan {
  const finalizers = cidr.metadata?.finalizers ?? [];
  const condition = (status: string, reason: string, message: string) => {
    const before = cidr.status?.conditions?.find(({ type }) => type === 'Ready');
    const lastTransitionTime =
      before?.status === status ? (before.lastTransitionTime ?? timestamp(now)) : timestamp(now);
    return [{ type: 'Ready', status, reason, message, lastTransitionTime }];
  };
  if (cidr.metadata?.deletionTimestamp === undefined) {
    return {
      conditions: condition('True', '', 'Kubernetes Service CIDR is ready'),
      finalizers: finalizers.includes(FINALIZER) ? finalizers : [...finalizers, FINALIZER],
    };
  }
  const holds = ({ spec }: ServiceCidr, address: string) =>
    (spec?.cidrs ?? []).some((text) => {
      const network = parseCidr(text);
      return network !== null && cidrContains(network, address);
    });
  const staying = others.filter(({ metadata }) => metadata?.deletionTimestamp === undefined);
  const isNeeded = addresses.some(
    (address) => holds(cidr, address) && !staying.some((other) => holds(other, address)),
  );
  const message =
    'There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR';
  return {
    conditions: condition('False', 'Terminating', isNeeded ? message : 'The ServiceCIDR is being deleted'),
    finalizers: isNeeded ? finalizers : finalizers.filter((finalizer) => finalizer !== FINALIZER),
  };
}

/** Maintains the status of ServiceCIDRs, and protects a ServiceCIDR while addresses need it. */
export function startServiceCidrs(context: ControllerContext): void {
  const { client, clock, signal } = context;
  const { serviceCidrs } = context.caches;
  const events = recorderFor(context, 'servicecidr-controller');
  const queue = controllerQueue(context, 'service-cidrs', async (name) => {
    const cidr = serviceCidrs.get(undefined, name);
    if (!cidr) return;
    const isDeleting = cidr.metadata?.deletionTimestamp !== undefined;
    const addresses = isDeleting ? (await client.list(IP_ADDRESSES, { signal })).items : [];
    const others = serviceCidrs.informer.list().filter((other) => keyOf(other) !== name);
    const plan = reconcileServiceCidr(
      cidr,
      others,
      addresses.filter(isAllocated).map(({ metadata }) => metadata?.name ?? ''),
      clock.now(),
    );
    const [condition] = plan.conditions;
    let current = cidr;
    if (!same(cidr.status?.conditions, plan.conditions)) {
      current = await serviceCidrs.updateStatus({ ...cidr, status: { conditions: plan.conditions } });
      const reason = isDeleting ? 'KubernetesServiceCIDRTerminating' : 'KubernetesServiceCIDRReady';
      events.event(cidr, 'Normal', reason, condition?.message ?? '', RESOURCES.serviceCidrs);
    }
    if (!same(cidr.metadata?.finalizers ?? [], plan.finalizers)) {
      const { uid, resourceVersion } = current.metadata ?? {};
      const metadata = { uid, resourceVersion, finalizers: plan.finalizers };
      await serviceCidrs.patch(current, 'merge', { metadata });
    } else if (isDeleting) queue.addAfter(name, RECHECK_MS);
  });
  serviceCidrs.informer.handle({
    onAdd: (cidr) => queue.add(keyOf(cidr)),
    onUpdate: (cidr) => queue.add(keyOf(cidr)),
    onDelete() {
      for (const cidr of serviceCidrs.informer.list()) queue.add(keyOf(cidr));
    },
  });
}
