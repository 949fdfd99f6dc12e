import {
  ADDRESS_ALLOCATED,
  ADDRESS_ANNOUNCED,
  addressOfLease,
  allocatedAddresses,
  ingressAddresses,
  nodeOfSession,
  wantsAddress,
  wasAllocatedHere,
} from '../kube/load-balancer.ts';
import { timestamp } from '../kube/timestamp.ts';
import { keyOf, type Lease, type Node, RESOURCES, type Service, splitKey } from '../kube/types.ts';
import { canonicalAddress } from '../lib/address.ts';
import {
  type Allocation,
  createAddressTable,
  type LoadBalancerPool,
  type Refusal,
} from '../loadbalancer/address-pools.ts';
import { same } from './canonical.ts';
import { type Caches, type ControllerContext, controllerQueue, recorderFor } from './context.ts';

/** Keeps a Service from disappearing before its addresses are free (KEP-980). */
const FINALIZER = 'service.kubernetes.io/load-balancer-cleanup';

type Condition = NonNullable<NonNullable<Service['status']>['conditions']>[number];

/** What this controller follows and works with: a part of every controller's context. */
export type AddressContext = Pick<ControllerContext, 'client' | 'clock' | 'random' | 'logger' | 'signal'> & {
  readonly caches: Pick<Caches, 'services' | 'namespaces' | 'nodes' | 'leases'>;
};

/**
 * Gives Services of type LoadBalancer their addresses, one per family, and says in their conditions who announces them.
 * The status of the Services is the record: a restart begins with what stands there.
 */
export function startLoadBalancerAddresses(
  context: AddressContext,
  pools: readonly LoadBalancerPool[],
): void {
  const { services, namespaces, nodes, leases } = context.caches;
  const events = recorderFor(context as ControllerContext, 'load-balancer');
  const nodeAddresses = new Map<string, string>();
  const owners = new Map<string, string>();
  /** Services that lack an address: looked at again when one becomes free. */
  const waiting = new Set<string>();
  const table = createAddressTable({
    pools,
    namespaceLabels: (name) => labelsOf(namespaces.get(undefined, name)),
    otherUse: (address) => (nodeAddresses.has(address) ? `node ${nodeAddresses.get(address)}` : null),
  });
  const queue = controllerQueue(context as ControllerContext, 'load-balancer-addresses', reconcile);

  // What nodes have is known before anything is given away.
  nodes.informer.handle({ onAdd: readNode, onUpdate: readNode, onDelete: readNode });
  for (const service of byAge(services.informer.list())) if (isOurs(service)) table.adopt(service);
  services.informer.handle({
    onAdd: (service) => queue.add(keyOf(service)),
    onUpdate: (service) => queue.add(keyOf(service)),
    onDelete: (service) => queue.add(keyOf(service)),
  });
  leases.informer.handle({ onAdd: readLease, onUpdate: readLease, onDelete: forgetLease });
  namespaces.informer.handle({
    onUpdate(namespace, before) {
      if (same(labelsOf(namespace), labelsOf(before))) return;
      for (const service of services.inNamespace(namespace.metadata?.name ?? '')) queue.add(keyOf(service));
    },
  });

  function readNode(node: Node): void {
    const name = node.metadata?.name ?? '';
    for (const [address, owner] of nodeAddresses) if (owner === name) nodeAddresses.delete(address);
    const isThere = nodes.get(undefined, name) !== undefined;
    for (const { address } of isThere ? (node.status?.addresses ?? []) : []) {
      const canonical = canonicalAddress(address);
      if (canonical === null) continue;
      nodeAddresses.set(canonical, name);
      for (const key of table.holders(canonical)) queue.add(key);
    }
    for (const [address, owner] of owners) if (owner === name) touch(address);
    // It may have given up what a Service asks for.
    for (const key of waiting) queue.add(key);
  }

  function readLease(lease: Lease): void {
    const address = addressOfLease(lease);
    if (address === null) return;
    const owner = nodeOfSession(lease.spec?.holderIdentity ?? '');
    if (owners.get(address) === owner) return;
    owners.set(address, owner);
    touch(address);
  }

  function forgetLease(lease: Lease): void {
    const address = addressOfLease(lease);
    if (address !== null && owners.delete(address)) touch(address);
  }

  function touch(address: string): void {
    for (const key of table.holders(address)) queue.add(key);
  }

  function free(key: string): void {
    waiting.delete(key);
    if (!table.release(key)) return;
    for (const other of waiting) queue.add(other);
  }

  async function reconcile(key: string): Promise<void> {
    const { namespace, name } = splitKey(key);
    const service = services.get(namespace, name);
    if (!service) return free(key);
    if (!isOurs(service)) {
      free(key);
      if (wasAllocatedHere(service)) await takeBack(service);
      return;
    }
    const had = allocatedAddresses(service);
    const allocation = table.allocate(service);
    if (allocation.refusals.length > 0) waiting.add(key);
    else waiting.delete(key);
    // A free address that this one gave up may be what another waits for.
    if (had.some((address) => !allocation.addresses.includes(address))) {
      for (const other of waiting) if (other !== key) queue.add(other);
    }
    const written = await writeStatus(service, allocation);
    report(service, had, allocation);
    const finalizers = written.metadata?.finalizers ?? [];
    if (allocation.addresses.length > 0 && !finalizers.includes(FINALIZER)) {
      await services.patch(written, 'merge', {
        metadata: {
          resourceVersion: written.metadata?.resourceVersion,
          finalizers: [...finalizers, FINALIZER],
        },
      });
    }
  }

  async function writeStatus(service: Service, allocation: Allocation): Promise<Service> {
    const conditions = (service.status?.conditions ?? []).filter(
      ({ type }) => type !== ADDRESS_ALLOCATED && type !== ADDRESS_ANNOUNCED,
    );
    const status = {
      ...service.status,
      conditions: [
        ...conditions,
        condition(service, ADDRESS_ALLOCATED, allocated(allocation)),
        ...(allocation.addresses.length > 0
          ? [condition(service, ADDRESS_ANNOUNCED, announced(allocation.addresses))]
          : []),
      ],
      loadBalancer:
        allocation.addresses.length > 0
          ? { ingress: allocation.addresses.map((ip) => ({ ip, ipMode: 'VIP' })) }
          : {},
    };
    return same(status, service.status) ? service : await services.updateStatus({ ...service, status });
  }

  /** Lets a Service go that is deleted, or wants no address any more. */
  async function takeBack(service: Service): Promise<void> {
    const finalizers = service.metadata?.finalizers ?? [];
    let current = service;
    // First: with the condition that says whose the addresses were, a crash in between is made good later.
    if (finalizers.includes(FINALIZER)) {
      current = await services.patch(service, 'merge', {
        metadata: {
          resourceVersion: service.metadata?.resourceVersion,
          finalizers: finalizers.filter((one) => one !== FINALIZER),
        },
      });
    }
    if (service.metadata?.deletionTimestamp !== undefined) return;
    const conditions = (current.status?.conditions ?? []).filter(
      ({ type }) => type !== ADDRESS_ALLOCATED && type !== ADDRESS_ANNOUNCED,
    );
    await services.updateStatus({ ...current, status: { ...current.status, conditions, loadBalancer: {} } });
    const addresses = ingressAddresses(service);
    if (addresses.length === 0) return;
    const message = `${addresses.join(', ')}: free again, since the Service is no longer of type LoadBalancer`;
    events.event(service, 'Normal', 'AddressReleased', message, RESOURCES.services);
  }

  function allocated({ addresses, refusals }: Allocation): Pick<Condition, 'status' | 'reason' | 'message'> {
    const given = addresses.map((address) => `${address} from pool ${table.poolOf(address)}`);
    const [first] = refusals;
    return {
      status: first ? 'False' : 'True',
      reason: first?.reason ?? 'Allocated',
      message: [...given, ...refusals.map(({ message }) => message)].join('; '),
    };
  }

  function announced(addresses: readonly string[]): Pick<Condition, 'status' | 'reason' | 'message'> {
    const by = addresses.map((address) => {
      const owner = owners.get(address) ?? '';
      return { address, owner: isReady(nodes.get(undefined, owner)) ? owner : '' };
    });
    const all = by.every(({ owner }) => owner !== '');
    return {
      status: all ? 'True' : 'False',
      reason: all ? 'Announced' : 'NoNodeAnnounces',
      message: by.map(({ address, owner }) => `${address} by ${owner || 'no node'}`).join('; '),
    };
  }

  function condition(
    service: Service,
    type: string,
    fields: Pick<Condition, 'status' | 'reason' | 'message'>,
  ): Condition {
    const before = service.status?.conditions?.find((one) => one.type === type);
    const now = timestamp(context.clock.now());
    const lastTransitionTime = before?.status === fields.status ? before.lastTransitionTime : now;
    return { type, ...fields, lastTransitionTime };
  }

  function report(service: Service, had: readonly string[], allocation: Allocation): void {
    const say = (type: 'Normal' | 'Warning', reason: string, message: string) =>
      events.event(service, type, reason, message, RESOURCES.services);
    const known = service.status?.conditions?.find(({ type }) => type === ADDRESS_ALLOCATED)?.message ?? '';
    const lost = had.filter((address) => !allocation.addresses.includes(address));
    const fresh = allocation.addresses.filter((address) => !had.includes(address));
    for (const { reason, message } of allocation.refusals satisfies readonly Refusal[]) {
      if (!known.includes(message)) say('Warning', reason, message);
    }
    const now = fresh.map((address) => `${address} from pool ${table.poolOf(address)}`).join(', ');
    if (lost.length > 0) {
      const why = lost.map((address) => `${address} ${whyLost(address, service)}`).join(', ');
      say('Warning', 'AddressChanged', `${why}; the Service now has ${now || 'no address instead'}`);
    } else if (fresh.length > 0) say('Normal', 'AddressAllocated', now);
  }

  function whyLost(address: string, service: Service): string {
    const family = address.includes(':') ? 'IPv6' : 'IPv4';
    if (!(service.spec?.ipFamilies ?? []).includes(family)) return `is not needed any more (no ${family})`;
    if (nodeAddresses.has(address)) return `is an address of node ${nodeAddresses.get(address)}`;
    if (table.poolOf(address) === null) return 'is in no pool any more';
    const other = table.holders(address).find((key) => key !== keyOf(service));
    if (other !== undefined) return `belongs to Service ${other}`;
    return 'is not what the Service asks for, or in a pool that is not for it';
  }
}

function isOurs(service: Service): boolean {
  return wantsAddress(service) && service.metadata?.deletionTimestamp === undefined;
}

/** The oldest first: where two have one address, it has the better right. */
function byAge(services: readonly Service[]): Service[] {
  const age = ({ metadata }: Service) => String(metadata?.creationTimestamp ?? '');
  return [...services].sort((a, b) =>
    age(a) < age(b) ? -1 : age(a) > age(b) ? 1 : keyOf(a) < keyOf(b) ? -1 : 1,
  );
}

function isReady(node: Node | undefined): boolean {
  return node?.status?.conditions?.find(({ type }) => type === 'Ready')?.status === 'True';
}

function labelsOf(
  object: { metadata?: { labels?: unknown } } | undefined,
): Record<string, string> | undefined {
  return object?.metadata?.labels as Record<string, string> | undefined;
}
