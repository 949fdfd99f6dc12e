import {
  ADDRESS_ALLOCATED,
  ADDRESS_ANNOUNCED,
  allocatedAddresses,
  ingressAddresses,
  wantsAddress,
} from '../kube/load-balancer.ts';
import { timestamp } from '../kube/timestamp.ts';
import { keyOf, type Node, type Service } from '../kube/types.ts';
import { canonicalAddress } from '../lib/address.ts';
import {
  type AddressTable,
  type AddressTableOptions,
  type Allocation,
  createAddressTable,
} from './address-pools.ts';

type Status = NonNullable<Service['status']>;
type Condition = NonNullable<Status['conditions']>[number];

/** The reason and message of an event. */
export interface AddressEvent {
  readonly type: 'Normal' | 'Warning';
  readonly reason: string;
  readonly message: string;
}

/** The result for one Service. */
export interface Assignment {
  readonly addresses: readonly string[];
  readonly status: Status;
  readonly events: readonly AddressEvent[];
  /** Keys of Services that lack an address and may get one now. */
  readonly retry: readonly string[];
}

/**
 * The load-balancer addresses of a cluster's Services, with their status and events. Pure: changes return
 * the keys ("namespace/name") of the Services to assign again.
 */
export interface ServiceAddresses {
  /** Adopts the addresses in the status of Services, the oldest first. Call it before `assign`. */
  adopt(services: readonly Service[]): void;
  /** Records a node; null: it was deleted. Addresses of nodes are not assigned to Services. */
  setNode(name: string, node: Node | null): string[];
  /** Records the node that announces an address; null: none. */
  setAnnouncer(address: string, node: string | null): string[];
  /** Assigns addresses to a Service that needs some. `nowMs`: time of changed conditions. */
  assign(service: Service, nowMs: number): Assignment;
  /** Releases the addresses of a Service that was deleted, or no longer needs any. */
  release(key: string): string[];
}

/** Returns true if a Service needs load-balancer addresses of this cluster. */
export function needsAddresses(service: Service): boolean {
  return wantsAddress(service) && service.metadata?.deletionTimestamp === undefined;
}

export function createServiceAddresses(options: Omit<AddressTableOptions, 'otherUse'>): ServiceAddresses {
  /** The node that has an address. */
  const nodeAddresses = new Map<string, string>();
  const readyNodes = new Set<string>();
  const announcers = new Map<string, string>();
  /** Services that lack an address. */
  const waiting = new Set<string>();
  const table = createAddressTable({
    ...options,
    otherUse: (address) => (nodeAddresses.has(address) ? `node ${nodeAddresses.get(address)}` : null),
  });

  return {
    adopt(services) {
      for (const service of byAge(services)) if (needsAddresses(service)) table.adopt(service);
    },

    setNode(name, node) {
      const keys = new Set<string>();
      for (const [address, owner] of nodeAddresses) if (owner === name) nodeAddresses.delete(address);
      for (const { address } of node?.status?.addresses ?? []) {
        const canonical = canonicalAddress(address);
        if (canonical === null) continue;
        nodeAddresses.set(canonical, name);
        for (const key of table.holders(canonical)) keys.add(key);
      }
      if (isReady(node)) readyNodes.add(name);
      else readyNodes.delete(name);
      for (const [address, announcer] of announcers) {
        if (announcer === name) for (const key of table.holders(address)) keys.add(key);
      }
      // The node may have lost an address that a Service requests.
      return [...keys.union(waiting)];
    },

    setAnnouncer(address, node) {
      if ((announcers.get(address) ?? null) === node) return [];
      if (node === null) announcers.delete(address);
      else announcers.set(address, node);
      return table.holders(address);
    },

    assign(service, nowMs) {
      const key = keyOf(service);
      const before = allocatedAddresses(service);
      const allocation = table.allocate(service);
      if (allocation.refusals.length > 0) waiting.add(key);
      else waiting.delete(key);
      const { addresses } = allocation;
      const lost = before.filter((address) => !addresses.includes(address));
      const conditions = [
        condition(service, ADDRESS_ALLOCATED, allocated(table, allocation), nowMs),
        ...(addresses.length > 0 ? [condition(service, ADDRESS_ANNOUNCED, announced(addresses), nowMs)] : []),
      ];
      return {
        addresses,
        status: statusWith(service, conditions, addresses),
        events: [
          ...refusalEvents(service, allocation),
          ...changeEvents(
            service,
            lost,
            addresses.filter((address) => !before.includes(address)),
          ),
        ],
        retry: lost.length > 0 ? [...waiting].filter((other) => other !== key) : [],
      };
    },

    release(key) {
      waiting.delete(key);
      return table.release(key) ? [...waiting] : [];
    },
  };

  function announced(addresses: readonly string[]): Fields {
    const by = addresses.map((address) => {
      const node = announcers.get(address) ?? '';
      return { address, node: readyNodes.has(node) ? node : '' };
    });
    const all = by.every(({ node }) => node !== '');
    return {
      status: all ? 'True' : 'False',
      reason: all ? 'Announced' : 'NoNodeAnnounces',
      message: by.map(({ address, node }) => `${address} by ${node || 'no node'}`).join('; '),
    };
  }

  function changeEvents(service: Service, lost: readonly string[], added: readonly string[]): AddressEvent[] {
    const now = added.map((address) => fromPool(table, address)).join(', ');
    if (lost.length > 0) {
      const why = lost.map((address) => `${address} ${whyLost(address, service)}`).join(', ');
      const message = `${why}; the Service now has ${now || 'no address instead'}`;
      return [{ type: 'Warning', reason: 'AddressChanged', message }];
    }
    return added.length > 0 ? [{ type: 'Normal', reason: 'AddressAllocated', message: now }] : [];
  }

  function whyLost(address: string, service: Service): string {
    const family = address.includes(':') ? 'IPv6' : 'IPv4';
    if (!(service.spec?.ipFamilies ?? []).includes(family))
      return `is no longer needed (the Service does not use ${family})`;
    if (nodeAddresses.has(address)) return `is an address of node ${nodeAddresses.get(address)}`;
    if (table.poolOf(address) === null) return 'is no longer in any pool';
    const other = table.holders(address).find((key) => key !== keyOf(service));
    if (other !== undefined) return `belongs to Service ${other}`;
    return 'is not requested by the Service, or is in a pool that does not select it';
  }
}

/**
 * Returns the status of a Service without load-balancer addresses, and the event about its former
 * addresses; null: none.
 */
export function releasedStatus(service: Service): {
  readonly status: Status;
  readonly event: AddressEvent | null;
} {
  const addresses = ingressAddresses(service);
  const message = `${addresses.join(', ')}: released, because the Service is no longer of type LoadBalancer`;
  return {
    status: statusWith(service, [], []),
    event: addresses.length > 0 ? { type: 'Normal', reason: 'AddressReleased', message } : null,
  };
}

/** Returns the status of a Service that is going to get addresses, but must have its finalizer first. */
export function pendingStatus(service: Service, nowMs: number): Status {
  const fields = { status: 'False', reason: 'Pending', message: 'waiting for the finalizer' } as const;
  return statusWith(service, [condition(service, ADDRESS_ALLOCATED, fields, nowMs)], []);
}

type Fields = Pick<Condition, 'status' | 'reason' | 'message'>;

function statusWith(
  { status }: Service,
  conditions: readonly Condition[],
  addresses: readonly string[],
): Status {
  const others = (status?.conditions ?? []).filter(
    ({ type }) => type !== ADDRESS_ALLOCATED && type !== ADDRESS_ANNOUNCED,
  );
  const ingress = addresses.map((ip) => ({ ip, ipMode: 'VIP' }));
  return {
    ...status,
    conditions: [...others, ...conditions],
    loadBalancer: addresses.length > 0 ? { ingress } : {},
  };
}

const fromPool = (table: AddressTable, address: string): string =>
  `${address} from pool ${table.poolOf(address)}`;

function allocated(table: AddressTable, { addresses, refusals }: Allocation): Fields {
  const given = addresses.map((address) => fromPool(table, address));
  const [first] = refusals;
  return {
    status: first ? 'False' : 'True',
    reason: first?.reason ?? 'Allocated',
    message: [...given, ...refusals.map(({ message }) => message)].join('; '),
  };
}

function condition(service: Service, type: string, fields: Fields, nowMs: number): Condition {
  const before = service.status?.conditions?.find((one) => one.type === type);
  const lastTransitionTime = before?.status === fields.status ? before.lastTransitionTime : timestamp(nowMs);
  return { type, ...fields, lastTransitionTime };
}

/** Returns events for refusals that the Service's condition does not report yet. */
function refusalEvents(service: Service, { refusals }: Allocation): AddressEvent[] {
  const known = service.status?.conditions?.find(({ type }) => type === ADDRESS_ALLOCATED)?.message ?? '';
  return refusals.flatMap(({ reason, message }): AddressEvent[] =>
    known.includes(message) ? [] : [{ type: 'Warning', reason, message }],
  );
}

/** Sorts the oldest first: of two Services with the same address, the older one keeps it. */
function byAge(services: readonly Service[]): Service[] {
  const age = ({ metadata }: Service) => String(metadata?.creationTimestamp ?? '');
  return services.toSorted((a, b) =>
    age(a) < age(b) ? -1 : age(a) > age(b) ? 1 : keyOf(a) < keyOf(b) ? -1 : 1,
  );
}

function isReady(node: Node | null): boolean {
  return node?.status?.conditions?.find(({ type }) => type === 'Ready')?.status === 'True';
}
