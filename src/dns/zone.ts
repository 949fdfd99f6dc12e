import { LAST_CHANGE_ANNOTATION, SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { familyOf, parseCidr } from '../lib/address.ts';
import { CLASS_IN, type Name, type ResourceRecord } from './message.ts';
import type { EndpointSliceObject, ServiceObject } from './objects.ts';
import { reverseAddress } from './reverse.ts';
import {
  type HostView,
  hasHosts,
  hostView,
  readService,
  type ServiceEntry,
  sliceAddresses,
} from './service-entry.ts';
import type { PodMode, ZoneAnswer } from './zone-answer.ts';
import { answerReverse, answerZone, type ZoneView } from './zone-answer.ts';

export interface ZoneOptions {
  /** The cluster domain without the trailing dot; default "cluster.local". */
  readonly domain?: string;
  /** TTL of every record in seconds, 0 to 3600; default 5. */
  readonly ttl?: number;
  readonly podMode?: PodMode;
  /** Networks of Services and pods ("10.96.0.0/12"): reverse names inside are answered here, never forwarded. */
  readonly reverseCidrs?: readonly string[];
  /** Addresses of the DNS server itself, for the zone's name server record. */
  readonly serverAddresses?: readonly string[];
  /** Milliseconds since 1970; for the SOA's serial number and the programming latency. */
  readonly now?: () => number;
  /** Numbers in [0, 1) for the rotation of answers. */
  readonly random?: () => number;
  /** Called when a changed slice of a headless Service is visible, with the seconds since the change. */
  readonly onProgrammed?: (seconds: number) => void;
}

/**
 * The cluster's names in memory, updated one object at a time. The next query sees a change: only the index is
 * precomputed, and only views are cached, which each change drops.
 */
export interface Zone {
  readonly domain: string;
  setService(service: ServiceObject): void;
  deleteService(namespace: string, name: string): void;
  setSlice(slice: EndpointSliceObject): void;
  deleteSlice(namespace: string, name: string): void;
  /** Sets all addresses of a pod, for `podMode: verified`. */
  setPod(namespace: string, name: string, addresses: readonly string[]): void;
  deletePod(namespace: string, name: string): void;
  /** Adds a namespace, which then exists without Services, too. */
  setNamespace(name: string): void;
  deleteNamespace(name: string): void;
  /**
   * Sets whether all namespaces are known. Until then, and for ever without the right to list them, a namespace without
   * Services is taken as absent, but not in names of pods by `podMode: insecure`.
   */
  setNamespacesKnown(known: boolean): void;
  /**
   * Sets whether Services and EndpointSlices have been listed; until then every name of the zone is
   * SERVFAIL.
   */
  setSynced(synced: boolean): void;
  readonly synced: boolean;
  /**
   * Answers a name in lower case; returns null if the name is outside the zone and its reverse networks.
   */
  lookup(name: Name, type: number, asked?: Name): ZoneAnswer | null;
}

export function createZone(options: ZoneOptions = {}): Zone {
  const {
    ttl = 5,
    podMode = 'disabled',
    reverseCidrs = [],
    serverAddresses = [],
    now = Date.now,
    random = Math.random,
    onProgrammed,
  } = options;
  const domain = (options.domain ?? 'cluster.local').replace(/\.$/, '').toLowerCase();
  if (!Number.isInteger(ttl) || ttl < 0 || ttl > 3600) {
    throw new RangeError(`dns: ttl must be a whole number of seconds from 0 to 3600, not ${ttl}`);
  }
  const networks = reverseCidrs.map((text) => {
    const cidr = parseCidr(text);
    if (!cidr) throw new RangeError(`dns: reverseCidrs: "${text}" is not a network such as 10.96.0.0/12`);
    return cidr;
  });

  const services = new Map<string, Map<string, ServiceEntry>>();
  /** By "namespace/service", then by slice name; also for Services that are not known yet. */
  const slices = new Map<string, Map<string, EndpointSliceObject>>();
  /** Slice "namespace/name" → "namespace/service". */
  const sliceOwners = new Map<string, string>();
  const clusterIPs = createIndex<ServiceEntry>();
  /** Endpoint addresses of Services whose pods have names → the Services. */
  const endpoints = createIndex<string>();
  const pods = new Map<string, readonly string[]>();
  const podAddresses = createIndex<string>();
  const namespaces = new Set<string>();
  let knowsNamespaces = false;
  let synced = false;
  let changed = now();

  const view: ZoneView = {
    domain,
    ttl,
    podMode,
    networks,
    serverAddresses,
    random,
    service: (namespace, name) => services.get(namespace)?.get(name) ?? null,
    hasNamespace: (namespace) => namespaces.has(namespace) || services.has(namespace),
    knowsNamespaces: () => knowsNamespaces,
    hosts: hostsOf,
    servicesAt: (address) => clusterIPs.get(address),
    hostedAt: (address) => endpoints.get(address).flatMap((key) => serviceByKey(key) ?? []),
    podAt: (namespace, address) => podAddresses.get(address).includes(namespace),
    soa: (owner) => soaRecord(owner, domain, ttl, changed),
  };

  function serviceByKey(key: string): ServiceEntry | null {
    const slash = key.indexOf('/');
    return services.get(key.slice(0, slash))?.get(key.slice(slash + 1)) ?? null;
  }

  function hostsOf(service: ServiceEntry): HostView {
    service.hosts ??= hostView(service, slices.get(keyOf(service))?.values() ?? []);
    return service.hosts;
  }

  function indexSlice(key: string, slice: EndpointSliceObject, change: 'add' | 'delete'): void {
    for (const address of sliceAddresses(slice)) endpoints[change](address, key);
  }

  function indexSlices(service: ServiceEntry, change: 'add' | 'delete'): void {
    if (!hasHosts(service)) return;
    const key = keyOf(service);
    for (const slice of slices.get(key)?.values() ?? []) indexSlice(key, slice, change);
  }

  function deleteService(namespace: string, name: string): void {
    const known = services.get(namespace)?.get(name);
    if (!known) return;
    changed = now();
    for (const address of known.clusterIPs) clusterIPs.delete(address, known);
    indexSlices(known, 'delete');
    const inNamespace = services.get(namespace);
    inNamespace?.delete(name);
    if (inNamespace?.size === 0) services.delete(namespace);
  }

  function deleteSlice(namespace: string, name: string): void {
    const owner = sliceOwners.get(`${namespace}/${name}`);
    if (owner === undefined) return;
    changed = now();
    sliceOwners.delete(`${namespace}/${name}`);
    const siblings = slices.get(owner);
    const slice = siblings?.get(name);
    siblings?.delete(name);
    if (siblings?.size === 0) slices.delete(owner);
    const service = serviceByKey(owner);
    if (!service || !hasHosts(service) || !slice) return;
    service.hosts = null;
    indexSlice(owner, slice, 'delete');
  }

  function deletePod(namespace: string, name: string): void {
    const key = `${namespace}/${name}`;
    for (const address of pods.get(key) ?? []) podAddresses.delete(address, namespace);
    pods.delete(key);
  }

  return {
    domain,
    get synced() {
      return synced;
    },
    setService(service) {
      const entry = readService(service);
      if (!entry) return;
      deleteService(entry.namespace, entry.name);
      changed = now();
      const inNamespace = services.get(entry.namespace) ?? new Map<string, ServiceEntry>();
      services.set(entry.namespace, inNamespace.set(entry.name, entry));
      for (const address of entry.clusterIPs) clusterIPs.add(address, entry);
      indexSlices(entry, 'add');
    },
    deleteService,
    setSlice(slice) {
      const { name, namespace, labels, annotations } = slice.metadata ?? {};
      if (!name || !namespace) return;
      deleteSlice(namespace, name);
      const serviceName = labels?.[SERVICE_NAME_LABEL];
      if (!serviceName) return;
      changed = now();
      const owner = `${namespace}/${serviceName}`;
      sliceOwners.set(`${namespace}/${name}`, owner);
      const siblings = slices.get(owner) ?? new Map<string, EndpointSliceObject>();
      slices.set(owner, siblings.set(name, slice));
      const service = serviceByKey(owner);
      if (!service || !hasHosts(service)) return;
      service.hosts = null;
      indexSlice(owner, slice, 'add');
      const since = Date.parse(annotations?.[LAST_CHANGE_ANNOTATION] ?? '');
      if (service.headless && synced && !Number.isNaN(since))
        onProgrammed?.(Math.max(0, changed - since) / 1000);
    },
    deleteSlice,
    setPod(namespace, name, addresses) {
      deletePod(namespace, name);
      const usable = addresses.filter((address) => familyOf(address) !== null);
      pods.set(`${namespace}/${name}`, usable);
      for (const address of usable) podAddresses.add(address, namespace);
    },
    deletePod,
    setNamespace: (name) => void namespaces.add(name),
    deleteNamespace: (name) => void namespaces.delete(name),
    setNamespacesKnown(known) {
      knowsNamespaces = known;
    },
    setSynced(value) {
      synced = value;
    },
    lookup(name, type, asked = name) {
      if (name === domain || name.endsWith(`.${domain}`)) return answerZone(view, synced, name, type, asked);
      const reverse = reverseAddress(name);
      return reverse && answerReverse(view, synced, reverse, type, asked);
    },
  };
}

const keyOf = (service: ServiceEntry): string => `${service.namespace}/${service.name}`;

/** A multimap that counts how often each value was added; a single value, the common case, needs no list. */
interface Index<V> {
  get(key: string): readonly V[];
  add(key: string, value: V): void;
  delete(key: string, value: V): void;
}

function createIndex<V extends string | object>(): Index<V> {
  const entries = new Map<string, V | V[]>();
  return {
    get(key) {
      const found = entries.get(key);
      if (found === undefined) return [];
      return Array.isArray(found) ? [...new Set(found)] : [found];
    },
    add(key, value) {
      const found = entries.get(key);
      if (found === undefined) entries.set(key, value);
      else if (Array.isArray(found)) found.push(value);
      else entries.set(key, [found, value]);
    },
    delete(key, value) {
      const found = entries.get(key);
      if (found === value) {
        entries.delete(key);
      } else if (Array.isArray(found)) {
        const at = found.indexOf(value);
        if (at >= 0) found.splice(at, 1);
        const [last] = found;
        if (found.length === 1 && last !== undefined) entries.set(key, last);
      }
    },
  };
}

/** `changed`: milliseconds since 1970, for the serial number. */
function soaRecord(owner: Name, domain: string, ttl: number, changed: number): ResourceRecord {
  return {
    name: owner,
    type: 6,
    class: CLASS_IN,
    ttl,
    data: {
      primary: `ns.dns.${domain}`,
      mailbox: `hostmaster.${domain}`,
      serial: Math.floor(changed / 1000) >>> 0,
      refresh: 7200,
      retry: 1800,
      expire: 86400,
      minimum: ttl,
    },
  };
}
