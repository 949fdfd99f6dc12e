import {
  addressAt,
  type Cidr,
  canonicalAddress,
  cidrContains,
  cidrSize,
  familyOf,
  type IPFamily,
  indexInCidr,
  parseCidr,
} from '../lib/address.ts';
import { type ApiObject, at, listAt, textAt } from './object.ts';
import type { Store } from './store.ts';

export const SERVICE_CIDRS = 'servicecidrs.networking.k8s.io';
export const IP_ADDRESSES = 'ipaddresses.networking.k8s.io';
/** The default ServiceCIDR, which is created from the server's own networks. */
export const DEFAULT_SERVICE_CIDR = 'kubernetes';
const MANAGED_BY = 'ipaddress.kubernetes.io/managed-by';
const IP_FAMILY = 'ipaddress.kubernetes.io/ip-family';
const ALLOCATOR = 'ipallocator.k8s.io';
/** Indexes within a network are numbers: larger networks are used up to this index. */
const MAX_INDEX = 2 ** 48;

export interface ClusterAddressesOptions {
  readonly store: Store;
  /** Stores a new IPAddress. Throws StatusError 409 if its name exists. */
  readonly create: (address: ApiObject) => void;
  readonly remove: (name: string) => void;
  /** 0 ≤ n < 1 */
  readonly random: () => number;
}

/**
 * The cluster addresses of Services (KEP-1880): allocates from every ServiceCIDR that is ready and not being deleted,
 * with one IPAddress object for each address in use. Addresses are reserved here between a request's check and its
 * commit.
 */
export class ClusterAddresses {
  readonly #options: ClusterAddressesOptions;
  readonly #reserved = new Set<string>();

  constructor(options: ClusterAddressesOptions) {
    this.#options = options;
  }

  /** Reserves an address that a client chose. Returns the reason why it is not available; null if it is reserved. */
  reserve(address: string): string | null {
    const network = this.#networks().find((cidr) => cidrContains(cidr, address));
    if (!network) return 'the provided network does not match the current range';
    const index = Number(indexInCidr(network, address) ?? 0n);
    if (index < 1 || index > lastIndex(network)) {
      return `the provided IP (${address}) is not in the valid range. The range of valid IPs is ${network.text}`;
    }
    if (this.#isTaken(address)) return 'provided IP is already allocated';
    this.#reserved.add(address);
    return null;
  }

  /** Reserves a free address of a family; returns null if all networks are full. */
  reserveAny(family: IPFamily): string | null {
    for (const network of this.#networks()) {
      if (network.family !== family) continue;
      const address = this.#freeIn(network);
      if (address === null) continue;
      this.#reserved.add(address);
      return address;
    }
    return null;
  }

  /** Returns an address of the family that no Service has, for a dry run: that of the network itself. */
  standIn(family: IPFamily): string | null {
    const network = this.#networks().find((one) => one.family === family);
    return network ? addressAt(network, 0) : null;
  }

  unreserve(address: string): void {
    this.#reserved.delete(address);
  }

  /** Turns a reservation into an IPAddress object. Throws StatusError 409 if another client created it concurrently. */
  assign(address: string, service: ApiObject): void {
    this.#reserved.delete(address);
    this.#options.create(addressObject(address, service));
  }

  /** Deletes the IPAddress of an address that its Service no longer has. */
  free(address: string): void {
    if (this.#options.store.get(IP_ADDRESSES, `/${address}`)) this.#options.remove(address);
  }

  /**
   * Reconciles the IPAddress objects with the Services: one for each address in use, and none of this allocator without
   * a Service (upstream's repair controller).
   */
  repair(): void {
    const { store } = this.#options;
    const used = new Map<string, ApiObject>();
    for (const { object } of store.list('services')) {
      for (const address of clusterAddressesOf(object)) used.set(address, object);
    }
    for (const { object } of store.list(IP_ADDRESSES)) {
      const name = object.metadata.name ?? '';
      const isOwn = object.metadata.labels?.[MANAGED_BY] === ALLOCATOR;
      const service = used.get(name);
      if (isOwn && (!service || !refersTo(object, service))) this.#options.remove(name);
    }
    for (const [address, service] of used) {
      if (!store.get(IP_ADDRESSES, `/${address}`)) this.#options.create(addressObject(address, service));
    }
  }

  /**
   * Repairs after every deletion of an IPAddress. `schedule` runs a task after the current one. Returns a function that
   * ends it.
   */
  follow(schedule: (task: () => void) => void): () => void {
    const { store } = this.#options;
    let isScheduled = false;
    return store.listen(IP_ADDRESSES, ({ after }) => {
      if (after !== null || isScheduled) return;
      isScheduled = true;
      schedule(() => {
        isScheduled = false;
        this.repair();
      });
    });
  }

  /** Returns the networks from which addresses are allocated, the default ones first. */
  #networks(): Cidr[] {
    const ready = this.#options.store
      .list(SERVICE_CIDRS)
      .map(({ object }) => object)
      .filter((object) => object.metadata.deletionTimestamp === undefined && isReady(object));
    const isDefault = ({ metadata }: ApiObject) => metadata.name === DEFAULT_SERVICE_CIDR;
    return ready
      .sort((a, b) => Number(isDefault(b)) - Number(isDefault(a)))
      .flatMap((object) => cidrsOf(object).flatMap((text) => parseCidr(text) ?? []));
  }

  #isTaken(address: string): boolean {
    return this.#reserved.has(address) || this.#options.store.get(IP_ADDRESSES, `/${address}`) !== undefined;
  }

  /**
   * Returns a free address: random from the upper band, so that manually chosen addresses, usually from the lower band,
   * rarely conflict (KEP-3070); from the lower band if the upper one is full.
   */
  #freeIn(network: Cidr): string | null {
    const last = lastIndex(network);
    const size = Math.min(Number(cidrSize(network)), MAX_INDEX);
    const band = size <= 16 ? 0 : Math.min(Math.max(16, Math.floor(size / 16)), 256);
    const isFree = (index: number) => !this.#isTaken(addressAt(network, index));
    const { random } = this.#options;
    const index =
      searchFrom(band + 1, last, random, isFree) ?? searchFrom(1, Math.min(band, last), random, isFree);
    return index === null ? null : addressAt(network, index);
  }
}

/**
 * Returns a free number from first to last, searched from a random start; null if there is none. `random`: 0 ≤ n < 1.
 */
export function searchFrom(
  first: number,
  last: number,
  random: () => number,
  isFree: (number: number) => boolean,
): number | null {
  const count = last - first + 1;
  if (count <= 0) return null;
  const start = Math.floor(random() * count);
  for (let i = 0; i < count; i++) {
    const number = first + ((start + i) % count);
    if (isFree(number)) return number;
  }
  return null;
}

/** Returns the cluster addresses of a Service. */
export function clusterAddressesOf(service: ApiObject): string[] {
  return listAt(service, 'spec', 'clusterIPs')
    .map(String)
    .filter((ip) => ip !== 'None' && ip !== '')
    .map((ip) => canonicalAddress(ip) ?? ip);
}

/** Returns the last index that a Service may have: IPv4's broadcast address is excluded. */
function lastIndex(network: Cidr): number {
  const size = Math.min(Number(cidrSize(network)), MAX_INDEX);
  return network.family === 'ipv4' ? size - 2 : size - 1;
}

/** Without a condition it counts as ready: no controller runs that would set the condition. */
function isReady(cidr: ApiObject): boolean {
  const condition = listAt(cidr, 'status', 'conditions').find(({ type }) => type === 'Ready');
  return condition === undefined || condition['status'] === 'True';
}

function cidrsOf(cidr: ApiObject): string[] {
  const cidrs = at(cidr, 'spec', 'cidrs');
  return Array.isArray(cidrs) ? cidrs.map(String) : [];
}

function addressObject(address: string, service: ApiObject): ApiObject {
  const { namespace = '', name = '' } = service.metadata;
  const family = familyOf(address) === 'ipv6' ? 'IPv6' : 'IPv4';
  return {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'IPAddress',
    metadata: { name: address, labels: { [IP_FAMILY]: family, [MANAGED_BY]: ALLOCATOR } },
    spec: { parentRef: { group: '', resource: 'services', namespace, name } },
  };
}

function refersTo(address: ApiObject, service: ApiObject): boolean {
  const { namespace = '', name = '' } = service.metadata;
  return (
    textAt(address, 'spec', 'parentRef', 'resource') === 'services' &&
    textAt(address, 'spec', 'parentRef', 'namespace') === namespace &&
    textAt(address, 'spec', 'parentRef', 'name') === name
  );
}
