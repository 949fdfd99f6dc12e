import { type Cidr, canonicalAddress, FAMILY_NAMES, parseCidr } from '../lib/address.ts';
import { type ClusterAddresses, clusterAddressesOf, searchFrom } from './cluster-addresses.ts';
import type { Kind } from './kind.ts';
import { type ApiObject, equal, isObject, type JsonObject, listAt } from './object.ts';
import { duplicate, type FieldError, invalid, StatusError } from './status-error.ts';
import type { Store } from './store.ts';
import { checkAddress } from './validation/addresses.ts';

export interface Allocation {
  readonly errors: readonly FieldError[];
  /** Releases the reservations: the object will not be stored. */
  release(): void;
  /**
   * Assigns the reserved addresses to the object, just before it is stored. Throws StatusError 409 if one was taken
   * concurrently.
   */
  assign(): void;
  /** Frees what the object no longer has, after it is stored. */
  finish(): void;
}

export interface ServiceAllocatorOptions {
  readonly store: Store;
  readonly addresses: ClusterAddresses;
  /** The Services' networks, primary family first; they determine the families of the cluster. */
  readonly cidrs: readonly string[];
  readonly nodePorts: { readonly first: number; readonly last: number };
  /** 0 ≤ n < 1 */
  readonly random: () => number;
}

interface PortChoice {
  /** Reserves a port; returns false if another Service has it. */
  take(port: string): boolean;
  /** Returns a free port; null if there is none. */
  free(): number | null;
  isInRange(port: number): boolean;
}

/** The port after which a dry run numbers ports: outside the default range. */
const DRY_RUN_PORT = 32768;

/**
 * Allocates addresses, families and node ports of Services (KEP-1860, KEP-1880, KEP-2438, KEP-3070), and refuses those
 * in use. Ports in use are derived from the Services themselves at start, so they cannot drift.
 */
export class ServiceAllocator {
  readonly #cidrs: readonly Cidr[];
  readonly #addresses: ClusterAddresses;
  readonly #nodePorts: { readonly first: number; readonly last: number };
  readonly #random: () => number;
  /** "30080" → "namespace/name". A port belongs to one Service for every protocol, as upstream. */
  readonly #ports = new Map<string, string>();

  constructor({ store, addresses, cidrs, nodePorts, random }: ServiceAllocatorOptions) {
    this.#cidrs = cidrs.flatMap((text) => parseCidr(text) ?? []);
    this.#addresses = addresses;
    this.#nodePorts = nodePorts;
    this.#random = random;
    for (const { object } of store.list('services')) {
      for (const port of portsOf(object)) this.#ports.set(port, ownerOf(object));
    }
  }

  /**
   * Completes a Service before it is stored. Throws StatusError 500 if no address or port is free. In a dry run nothing is
   * chosen: as with upstream, addresses and ports of the Service are stand-ins that cannot be in use.
   */
  allocate(
    service: ApiObject,
    before: ApiObject | null,
    { dryRun = false }: { readonly dryRun?: boolean } = {},
  ): Allocation {
    const errors: FieldError[] = [];
    const owner = ownerOf(service);
    const usedPorts: string[] = [];
    const reserved: string[] = [];
    const take = (port: string) => {
      const holder = this.#ports.get(port);
      if (holder !== undefined && holder !== owner) return false;
      if (holder === undefined) {
        if (!dryRun) this.#ports.set(port, owner);
        usedPorts.push(port);
      }
      return true;
    };
    const { first, last } = this.#nodePorts;
    const ports: PortChoice = {
      take,
      free: dryRun
        ? () => (usedPorts.length > 0 ? Math.max(...usedPorts.map(Number)) : DRY_RUN_PORT) + 1
        : () => this.#freePort(),
      isInRange: (port) => dryRun || (port >= first && port <= last),
    };
    const release = () => {
      if (!dryRun) for (const port of usedPorts) this.#ports.delete(port);
      for (const address of reserved) this.#addresses.unreserve(address);
    };
    const spec = isObject(service['spec']) ? service['spec'] : {};
    const held = before ? clusterAddressesOf(before) : [];
    try {
      if (spec['type'] === 'ExternalName') {
        for (const field of ['clusterIP', 'clusterIPs', 'ipFamilies', 'ipFamilyPolicy']) delete spec[field];
      } else {
        checkPrimary(spec, errors);
        if (before) checkRelease(spec, isObject(before['spec']) ? before['spec'] : {}, errors);
        if (errors.length === 0) this.#families(spec, errors);
        if (errors.length === 0) this.#clusterIps(service, spec, held, dryRun ? null : reserved, errors);
      }
      this.#nodePortsOf(spec, ports, errors);
    } catch (error) {
      release();
      throw error;
    }
    if (errors.length > 0) release();
    return {
      errors,
      release,
      assign: () => {
        for (const address of reserved.splice(0)) this.#addresses.assign(address, service);
      },
      finish: () => {
        const kept = new Set([...clusterAddressesOf(service), ...portsOf(service)]);
        for (const address of held) if (!kept.has(address)) this.#addresses.free(address);
        for (const port of before ? portsOf(before) : []) if (!kept.has(port)) this.#ports.delete(port);
      },
    };
  }

  /** Frees the addresses and ports of a Service after its deletion. */
  forget(kind: Kind, service: ApiObject): void {
    if (kind.collection !== 'services') return;
    for (const address of clusterAddressesOf(service)) this.#addresses.free(address);
    for (const port of portsOf(service)) this.#ports.delete(port);
  }

  /** Derives ipFamilies and ipFamilyPolicy from each other, from given addresses and from the cluster's networks. */
  #families(spec: JsonObject, errors: FieldError[]): void {
    const cluster = this.#cidrs.map((cidr) => FAMILY_NAMES[cidr.family]);
    const given = Array.isArray(spec['ipFamilies']) ? spec['ipFamilies'].map(String) : [];
    const ips = givenAddresses(spec);
    const ofIps = ips.filter((ip) => ip !== 'None').map((ip) => (ip.includes(':') ? 'IPv6' : 'IPv4'));
    const selector = spec['selector'];
    const headlessWithoutSelector =
      ips.includes('None') && !(isObject(selector) && Object.keys(selector).length > 0);
    const count = errors.length;
    for (const [i, ip] of ips.entries()) {
      if (ip !== 'None' && ip !== '') checkAddress(ip, `spec.clusterIPs[${i}]`, errors);
    }
    if (errors.length > count) return;
    for (const [i, family] of given.entries()) {
      if (family !== 'IPv4' && family !== 'IPv6')
        errors.push(invalid(`spec.ipFamilies[${i}]`, family, 'must be IPv4 or IPv6'));
      else if (!cluster.includes(family) && !headlessWithoutSelector) {
        errors.push(invalid(`spec.ipFamilies[${i}]`, family, 'not configured on this cluster'));
      }
      if (given.indexOf(family) < i) errors.push(duplicate(`spec.ipFamilies[${i}]`, family));
      if (ofIps[i] !== undefined && ofIps[i] !== family) {
        errors.push(
          invalid(
            `spec.clusterIPs[${i}]`,
            ips[i],
            `expected an ${family} value as indicated by \`ipFamilies[${i}]\``,
          ),
        );
      }
    }
    if (errors.length > 0) return;
    const policy =
      spec['ipFamilyPolicy'] ??
      (headlessWithoutSelector || given.length > 1 || ofIps.length > 1 ? 'RequireDualStack' : 'SingleStack');
    if (policy === 'RequireDualStack' && cluster.length < 2 && !headlessWithoutSelector) {
      errors.push(
        invalid('spec.ipFamilyPolicy', policy, 'this cluster is not configured for dual-stack services'),
      );
      return;
    }
    const families = given.length > 0 ? given : ofIps.length > 0 ? ofIps : [cluster[0] ?? 'IPv4'];
    if (policy !== 'SingleStack') {
      const all = headlessWithoutSelector ? ['IPv4', 'IPv6'] : cluster;
      for (const family of [...cluster, ...all])
        if (families.length < 2 && !families.includes(family)) families.push(family);
    }
    if (policy === 'SingleStack' && families.length > 1) {
      // An update to a single stack keeps the primary family.
      if (given.length > 1 && Array.isArray(spec['clusterIPs'])) families.length = 1;
      else
        errors.push(invalid('spec.ipFamilyPolicy', policy, 'may be SingleStack only with one of ipFamilies'));
    }
    spec['ipFamilyPolicy'] = policy;
    spec['ipFamilies'] = families;
  }

  #clusterIps(
    service: ApiObject,
    spec: JsonObject,
    held: readonly string[],
    /** Null in a dry run. */
    reserved: string[] | null,
    errors: FieldError[],
  ): void {
    const ips = givenAddresses(spec);
    if (ips[0] === 'None') {
      spec['clusterIP'] = 'None';
      spec['clusterIPs'] = ['None'];
      return;
    }
    const result: string[] = [];
    for (const [i, name] of (spec['ipFamilies'] as string[]).entries()) {
      const wanted = ips[i];
      if (wanted === undefined || wanted === '') {
        const family = name === 'IPv6' ? 'ipv6' : 'ipv4';
        const free = reserved ? this.#addresses.reserveAny(family) : this.#addresses.standIn(family);
        if (free === null) throw full(`a serviceIP for Service ${JSON.stringify(service.metadata.name)}`);
        reserved?.push(free);
        result.push(free);
        continue;
      }
      const canonical = canonicalAddress(wanted) ?? wanted;
      result.push(canonical);
      if (held.includes(canonical)) continue;
      const problem = this.#addresses.reserve(canonical);
      if (problem === null) {
        if (reserved) reserved.push(canonical);
        else this.#addresses.unreserve(canonical);
      } else errors.push(invalid('spec.clusterIPs', ips, `failed to allocate IP ${wanted}: ${problem}`));
    }
    if (errors.length > 0) return;
    spec['clusterIP'] = result[0] ?? '';
    spec['clusterIPs'] = result;
  }

  #nodePortsOf(spec: JsonObject, choice: PortChoice, errors: FieldError[]): void {
    const type = spec['type'];
    const wanted =
      type === 'NodePort' || (type === 'LoadBalancer' && spec['allocateLoadBalancerNodePorts'] !== false);
    const ports = listAt(spec, 'ports');
    const chosen = new Map<string, number>();
    for (const [i, port] of ports.entries()) {
      const number = port['nodePort'];
      if (typeof number !== 'number' || number === 0) continue;
      if (!choice.isInRange(number)) {
        errors.push(
          invalid(
            `spec.ports[${i}].nodePort`,
            number,
            `provided port is not in the valid range. The range of valid ports is ${this.#nodePorts.first}-${this.#nodePorts.last}`,
          ),
        );
      } else if (!choice.take(String(number))) {
        errors.push(invalid(`spec.ports[${i}].nodePort`, number, 'provided port is already allocated'));
      } else chosen.set(`${String(port['port'])}`, number);
    }
    if (wanted && errors.length === 0) {
      for (const port of ports) {
        if (typeof port['nodePort'] === 'number' && port['nodePort'] !== 0) continue;
        // The same port for TCP and UDP gets the same node port if that is free.
        const sibling = chosen.get(String(port['port']));
        const number = sibling !== undefined && choice.take(String(sibling)) ? sibling : choice.free();
        if (number === null) throw full('a nodePort');
        choice.take(String(number));
        chosen.set(String(port['port']), number);
        port['nodePort'] = number;
      }
    }
    this.#healthCheckPort(spec, choice, errors);
  }

  #healthCheckPort(spec: JsonObject, choice: PortChoice, errors: FieldError[]): void {
    if (spec['type'] !== 'LoadBalancer' || spec['externalTrafficPolicy'] !== 'Local') {
      delete spec['healthCheckNodePort'];
      return;
    }
    const given = spec['healthCheckNodePort'];
    if (typeof given === 'number' && given !== 0) {
      if (!choice.isInRange(given) || !choice.take(String(given))) {
        errors.push(
          invalid(
            'spec.healthCheckNodePort',
            given,
            'provided port is already allocated or not in the valid range',
          ),
        );
      }
      return;
    }
    const free = choice.free();
    if (free === null) return;
    choice.take(String(free));
    spec['healthCheckNodePort'] = free;
  }

  /** Returns a free port: from the upper band first, as with addresses (KEP-3668). */
  #freePort(): number | null {
    const { first, last } = this.#nodePorts;
    const size = last - first + 1;
    const band = size <= 16 ? 0 : Math.min(Math.max(16, Math.floor(size / 32)), 128);
    const isFree = (port: number) => !this.#ports.has(String(port));
    return (
      searchFrom(first + band, last, this.#random, isFree) ??
      searchFrom(first, first + band - 1, this.#random, isFree)
    );
  }
}

/** Refuses clusterIPs that do not begin with clusterIP. */
function checkPrimary(spec: JsonObject, errors: FieldError[]): void {
  const list = Array.isArray(spec['clusterIPs']) ? spec['clusterIPs'].map(String) : [];
  if (list.length === 0) return;
  const single = typeof spec['clusterIP'] === 'string' ? spec['clusterIP'] : '';
  if (single === '')
    errors.push(invalid('spec.clusterIPs', list, 'must be empty when `clusterIP` is not specified'));
  else if (list[0] !== single)
    errors.push(invalid('spec.clusterIPs', list, 'first value must match `clusterIP`'));
}

function givenAddresses(spec: JsonObject): string[] {
  const list = Array.isArray(spec['clusterIPs']) ? spec['clusterIPs'].map(String) : [];
  const single = typeof spec['clusterIP'] === 'string' ? spec['clusterIP'] : '';
  if (single !== '' && (list.length === 0 || list[0] !== single)) return [single, ...list.slice(1)];
  return list;
}

function ownerOf(service: ApiObject): string {
  return `${service.metadata.namespace ?? ''}/${service.metadata.name ?? ''}`;
}

function portsOf(service: ApiObject): string[] {
  const ports = listAt(service, 'spec', 'ports').flatMap((port) =>
    typeof port['nodePort'] === 'number' && port['nodePort'] !== 0 ? [String(port['nodePort'])] : [],
  );
  const spec = isObject(service['spec']) ? service['spec'] : {};
  const health = spec['healthCheckNodePort'];
  return typeof health === 'number' && health !== 0 ? [...ports, String(health)] : ports;
}

/** Builds the refusal of a Service when the range is full, as upstream's. */
function full(what: string): StatusError {
  const message = `Internal error occurred: failed to allocate ${what}: range is full`;
  const cause = { message: message.slice('Internal error occurred: '.length) };
  return new StatusError(500, 'InternalError', message, { causes: [cause] });
}

/** Refuses an update that leaves out the second family, or its address, without the policy that releases it. */
function checkRelease(spec: JsonObject, old: JsonObject, errors: FieldError[]): void {
  const policy = spec['ipFamilyPolicy'];
  if (policy === undefined || policy === 'SingleStack' || old['type'] === 'ExternalName') return;
  const isReduced = (field: string) => {
    const [now, before] = [spec[field], old[field]];
    if (!Array.isArray(now) || !Array.isArray(before) || now.length === 0) return false;
    return now.length < before.length && equal(now, before.slice(0, now.length));
  };
  for (const [field, what] of [
    ['clusterIPs', 'cluster IP'],
    ['ipFamilies', 'IP family'],
  ] as const) {
    if (!isReduced(field)) continue;
    const detail = `must be 'SingleStack' to release the secondary ${what}`;
    errors.push(invalid('spec.ipFamilyPolicy', policy, detail));
  }
}
