import { REQUESTED_POOL, requestedAddresses, requestedPool, SHARING_KEY } from '../kube/load-balancer.ts';
import { selects } from '../kube/selector.ts';
import { keyOf, type LabelSelector, type Service } from '../kube/types.ts';
import { canonicalAddress, FAMILY_NAMES, familyOf, type IPFamily } from '../lib/address.ts';
import {
  type AddressRange,
  addressFromNumber,
  addressToNumber,
  parseAddressRange,
  rangeContains,
} from '../lib/address-range.ts';
import { FairleadError } from '../lib/errors.ts';

/** Addresses for Services of type LoadBalancer. */
export interface LoadBalancerPool {
  readonly name: string;
  /** Networks ("10.0.0.0/28"), ranges ("10.0.0.1-10.0.0.9") and single addresses, of both families. */
  readonly ranges: readonly string[];
  /** False: only for Services that request one of its addresses, or the pool itself. Default: true. */
  readonly autoAssign?: boolean;
  /** Pools with lower numbers are used first; those with 0, the default, last. */
  readonly priority?: number;
  /** Namespaces whose Services may have its addresses, by name or by labels; both empty: all. */
  readonly namespaces?: readonly string[];
  readonly namespaceSelectors?: readonly LabelSelector[];
  /** Labels of the Services that may have its addresses, one of which must match; empty: all. */
  readonly serviceSelectors?: readonly LabelSelector[];
}

export const REFUSAL_REASONS = [
  'InvalidRequest',
  'AddressNotInPool',
  'AddressTaken',
  'NoPool',
  'PoolExhausted',
] as const;

/** Why a Service did not get an address. */
export interface Refusal {
  readonly reason: (typeof REFUSAL_REASONS)[number];
  readonly message: string;
}

export interface Allocation {
  /** In the order of spec.ipFamilies; a family without an address is left out. */
  readonly addresses: readonly string[];
  /** Addresses that could not be allocated. The Service keeps the ones it has. */
  readonly refusals: readonly Refusal[];
}

/** The allocations of addresses to Services. Decides at once; the caller writes the decision to the Service. */
export interface AddressTable {
  /**
   * Adopts the addresses in a Service's status that it may keep. Call it for all Services before
   * `allocate`.
   */
  adopt(service: Service): void;
  /** Allocates addresses to a Service. */
  allocate(service: Service): Allocation;
  /** Releases the addresses of the Service with this key ("namespace/name"). Returns true if it had any. */
  release(key: string): boolean;
  /** Returns the keys of the Services that have an address. */
  holders(address: string): string[];
  /** Returns the name of the pool that contains an address. */
  poolOf(address: string): string | null;
}

export interface AddressTableOptions {
  readonly pools: readonly LoadBalancerPool[];
  namespaceLabels(namespace: string): Readonly<Record<string, string>> | undefined;
  /** Returns the other user of an address ("node node-1"); null: none. */
  otherUse(address: string): string | null;
}

interface Pool extends LoadBalancerPool {
  readonly parsed: readonly AddressRange[];
  /** The start of the next search, so that a released address is not reused at once. */
  readonly next: Map<AddressRange, bigint>;
}

interface Holding {
  readonly ports: ReadonlySet<string>;
  /** The addresses that the Service requests: only these can be shared. */
  readonly asked: ReadonlySet<string>;
  /** Only Services with the same key share the address; null: none do. */
  readonly sharingKey: string | null;
  /** Identifies the nodes that may announce its address; null: every node. */
  readonly endpoints: string | null;
}

export function createAddressTable(options: AddressTableOptions): AddressTable {
  const pools = options.pools.map(compilePool).sort((a, b) => (rank(a) === rank(b) ? 0 : rank(a) - rank(b)));
  const holdings = createHoldings(options.otherUse);

  const open = (service: Service): Pool[] => {
    const { namespace = '', labels } = service.metadata ?? {};
    const wanted = requestedPool(service);
    return pools.filter(
      (pool) =>
        (wanted === null || pool.name === wanted) &&
        isForNamespace(pool, namespace, options.namespaceLabels(namespace)) &&
        isForService(pool, labels as Record<string, string> | undefined),
    );
  };
  const { release, book, obstacle } = holdings;
  const inPools = (from: readonly Pool[], address: string) =>
    from.some((pool) => pool.parsed.some((range) => rangeContains(range, address)));
  const findFree = (from: readonly Pool[], family: IPFamily): string | null => {
    for (const pool of from) {
      for (const range of pool.parsed) {
        if (range.family !== family) continue;
        const address = searchRange(range, pool.next.get(range) ?? null, (candidate) => {
          return !holdings.isHeld(candidate) && options.otherUse(candidate) === null;
        });
        if (address === null) continue;
        pool.next.set(range, (addressToNumber(address) ?? range.first) + 1n);
        return address;
      }
    }
    return null;
  };

  return {
    adopt(service) {
      const key = keyOf(service);
      const mine = holdingOf(service);
      const from = open(service);
      for (const { address } of currentAddresses(service)) {
        if (inPools(from, address) && obstacle(key, address, mine) === null) book(key, address, mine);
      }
    },
    allocate(service) {
      const key = keyOf(service);
      const mine = holdingOf(service);
      const from = open(service);
      const before = holdings.addressesOf(key);
      const refusals: Refusal[] = [];
      const requests = readRequests(service, refusals);
      release(key);
      const choose = (family: IPFamily): string | null => {
        const current = before.find((address) => familyOf(address) === family);
        const usable = (address: string) => inPools(from, address) && obstacle(key, address, mine) === null;
        const kept = current !== undefined && usable(current) ? current : null;
        const wanted = requests.get(family);
        if (wanted !== undefined) {
          if (!inPools(from, wanted)) {
            refusals.push({
              reason: 'AddressNotInPool',
              message: `${wanted} is not in the pools for this Service${poolList(from, family)}`,
            });
            return kept;
          }
          const other = obstacle(key, wanted, mine);
          if (other === null) return wanted;
          refusals.push({ reason: 'AddressTaken', message: `${wanted} is in use by ${other}` });
          return kept;
        }
        if (kept !== null) return kept;
        // An invalid request is not replaced by another address.
        if (refusals.some(({ reason }) => reason === 'InvalidRequest')) return null;
        const isRequested = requestedPool(service) !== null;
        const assigning = from.filter(({ autoAssign }) => isRequested || autoAssign !== false);
        const found = findFree(assigning, family);
        if (found !== null) return found;
        const list = poolList(assigning, family);
        refusals.push(
          list === ''
            ? { reason: 'NoPool', message: noPool(service, from, family) }
            : { reason: 'PoolExhausted', message: `every ${FAMILY_NAMES[family]} address is in use${list}` },
        );
        return null;
      };
      const addresses: string[] = [];
      for (const family of familiesOf(service)) {
        const address = choose(family);
        if (address === null) continue;
        addresses.push(address);
        book(key, address, mine);
      }
      return { addresses, refusals };
    },
    release,
    holders: holdings.holders,
    poolOf: (address) => pools.find((pool) => inPools([pool], address))?.name ?? null,
  };
}

/** Which Services have which addresses. */
function createHoldings(otherUse: AddressTableOptions['otherUse']) {
  const holdings = new Map<string, Map<string, Holding>>();
  const held = new Map<string, string[]>();
  return {
    isHeld: (address: string) => holdings.has(address),
    addressesOf: (key: string): readonly string[] => held.get(key) ?? [],
    holders: (address: string) => [...(holdings.get(address)?.keys() ?? [])],
    release(key: string): boolean {
      const addresses = held.get(key) ?? [];
      held.delete(key);
      for (const address of addresses) {
        const holders = holdings.get(address);
        holders?.delete(key);
        if (holders?.size === 0) holdings.delete(address);
      }
      return addresses.length > 0;
    },
    book(key: string, address: string, holding: Holding): void {
      const holders = holdings.get(address) ?? new Map<string, Holding>();
      holdings.set(address, holders.set(key, holding));
      held.set(key, [...(held.get(key) ?? []), address]);
    },
    /** Returns the holder that prevents this Service from having the address; null: it is free. */
    obstacle(key: string, address: string, mine: Holding): string | null {
      const other = otherUse(address);
      if (other !== null) return other;
      for (const [holder, theirs] of holdings.get(address) ?? []) {
        const clash = holder === key ? null : clashOf(address, mine, theirs);
        if (clash !== null) return `Service ${holder}${clash}`;
      }
      return null;
    },
  };
}

/** Returns why two Services cannot share an address, as the rest of a sentence; null: they can. */
function clashOf(address: string, mine: Holding, theirs: Holding): string | null {
  if (!mine.asked.has(address) || !theirs.asked.has(address)) return '';
  if (mine.sharingKey === null || mine.sharingKey !== theirs.sharingKey)
    return `; both need the same annotation ${SHARING_KEY} to share it`;
  // One node announces for both: it must have endpoints of both.
  if (mine.endpoints !== theirs.endpoints)
    return '; with externalTrafficPolicy: Local on either, both need it and equal selectors to share it';
  const port = [...mine.ports].find((one) => theirs.ports.has(one));
  return port === undefined ? null : `, which has port ${port}, too`;
}

/** The pools with a priority first, in its order. */
const rank = ({ priority = 0 }: LoadBalancerPool) => (priority === 0 ? Number.POSITIVE_INFINITY : priority);

function isForNamespace(
  { namespaces = [], namespaceSelectors = [] }: LoadBalancerPool,
  name: string,
  labels: Readonly<Record<string, string>> | undefined,
): boolean {
  if (namespaces.length === 0 && namespaceSelectors.length === 0) return true;
  return namespaces.includes(name) || namespaceSelectors.some((selector) => selects(selector, labels));
}

function isForService(
  { serviceSelectors = [] }: LoadBalancerPool,
  labels: Readonly<Record<string, string>> | undefined,
): boolean {
  return serviceSelectors.length === 0 || serviceSelectors.some((selector) => selects(selector, labels));
}

/** Returns the reason why no pool assigns an address to a Service without a request. */
function noPool(service: Service, open: readonly Pool[], family: IPFamily): string {
  const pool = requestedPool(service);
  if (pool !== null)
    return `pool ${JSON.stringify(pool)} of the annotation ${REQUESTED_POOL} does not exist, is not for this Service or has no ${FAMILY_NAMES[family]} addresses`;
  const list = poolList(open, family);
  if (list === '') return `no pool has ${FAMILY_NAMES[family]} addresses for this Service`;
  return `the pools for this Service have autoAssign: false: request an address of theirs, or name one in the annotation ${REQUESTED_POOL}${list}`;
}

function compilePool(pool: LoadBalancerPool): Pool {
  const parsed = pool.ranges.map((text) => {
    const range = parseAddressRange(text);
    if (range) return range;
    throw new FairleadError(
      `pool ${pool.name}: ${JSON.stringify(text)} is not a network (10.0.0.0/28) or a range (10.0.0.1-10.0.0.9)`,
      { op: 'read load-balancer pools', code: 'bad-config', object: pool.name },
    );
  });
  return { ...pool, parsed, next: new Map() };
}

/**
 * Finds the first free address from `start`, wrapping around. The ends of a network are allocated on request only: on a
 * link of that size they are the network and broadcast addresses (IPv4) or the subnet-router anycast address (IPv6, RFC
 * 4291, section 2.6.1).
 */
function searchRange(
  range: AddressRange,
  start: bigint | null,
  isFree: (address: string) => boolean,
): string | null {
  const wide = range.isNetwork && range.last - range.first > 1n;
  const first = wide ? range.first + 1n : range.first;
  const last = wide && range.family === 'ipv4' ? range.last - 1n : range.last;
  const size = last - first + 1n;
  const offset = start !== null && start >= first && start <= last ? start - first : 0n;
  for (let i = 0n; i < size; i++) {
    const address = addressFromNumber(range.family, first + ((offset + i) % size));
    if (isFree(address)) return address;
  }
  return null;
}

function holdingOf(service: Service): Holding {
  const asked = (requestedAddresses(service)?.texts ?? []).flatMap((text) => canonicalAddress(text) ?? []);
  return {
    ports: new Set((service.spec?.ports ?? []).map(({ port, protocol = 'TCP' }) => `${port}/${protocol}`)),
    asked: new Set(asked),
    sharingKey: service.metadata?.annotations?.[SHARING_KEY] || null,
    endpoints:
      service.spec?.externalTrafficPolicy === 'Local'
        ? `${service.metadata?.namespace} ${JSON.stringify(Object.entries(service.spec.selector ?? {}).sort())}`
        : null,
  };
}

function readRequests(service: Service, refusals: Refusal[]): Map<IPFamily, string> {
  const requests = new Map<IPFamily, string>();
  const request = requestedAddresses(service);
  const families = familiesOf(service);
  for (const text of request?.texts ?? []) {
    const address = canonicalAddress(text);
    const family = address === null ? null : familyOf(address);
    const wrong =
      address === null || family === null
        ? 'is not an address'
        : !families.includes(family)
          ? `is ${FAMILY_NAMES[family]}, which spec.ipFamilies of this Service does not list`
          : requests.has(family)
            ? `is a second ${FAMILY_NAMES[family]} address: a Service has one per family`
            : null;
    if (wrong === null && address !== null && family !== null) requests.set(family, address);
    else {
      const message = `${JSON.stringify(text)} in ${request?.field} ${wrong}`;
      refusals.push({ reason: 'InvalidRequest', message });
    }
  }
  return requests;
}

function currentAddresses(service: Service): { family: IPFamily; address: string }[] {
  const families = familiesOf(service);
  return (service.status?.loadBalancer?.ingress ?? []).flatMap(({ ip }) => {
    const address = canonicalAddress(ip ?? '');
    const family = address === null ? null : familyOf(address);
    return address !== null && family !== null && families.includes(family) ? [{ family, address }] : [];
  });
}

function familiesOf(service: Service): IPFamily[] {
  const families = (service.spec?.ipFamilies ?? []).map((family) => (family === 'IPv6' ? 'ipv6' : 'ipv4'));
  return families.length > 0 ? families : ['ipv4'];
}

/** Returns " (default: 10.0.0.1-10.0.0.9)", for messages; empty if no pool has addresses of the family. */
function poolList(pools: readonly Pool[], family: IPFamily): string {
  const texts = pools.flatMap(({ name, parsed }) => {
    const ranges = parsed.filter((range) => range.family === family).map((range) => range.text);
    return ranges.length > 0 ? [`${name}: ${ranges.join(', ')}`] : [];
  });
  return texts.length > 0 ? ` (${texts.join('; ')})` : '';
}
