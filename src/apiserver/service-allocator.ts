import {
  addressAt,
  type Cidr,
  canonicalAddress,
  cidrContains,
  cidrSize,
  type IPFamily,
  parseCidr,
} from '../lib/address.ts';
import type { Kind } from './kind.ts';
import { type ApiObject, isObject, type JsonObject, listAt } from './object.ts';
import { type FieldError, invalid } from './status-error.ts';
import type { Store } from './store.ts';

export interface Allocation {
  readonly errors: readonly FieldError[];
  /** Gives back what was taken: the object will not be stored. */
  release(): void;
  /** Frees what the object had before and no longer has. */
  commit(): void;
}

const NAMES = { ipv4: 'IPv4', ipv6: 'IPv6' } as const;

/**
 * Gives Services their addresses, families and node ports (KEP-1860, KEP-2438, KEP-3070), and refuses what is
 * taken. What is in use is derived from the Services themselves at start, so it cannot drift.
 */
export class ServiceAllocator {
  readonly #cidrs: readonly Cidr[];
  readonly #nodePorts: { readonly first: number; readonly last: number };
  readonly #random: () => number;
  /** Address → "namespace/name". */
  readonly #addresses = new Map<string, string>();
  /** "30080" → "namespace/name". A port is one Service's for every protocol, as upstream. */
  readonly #ports = new Map<string, string>();

  /** `cidrs`: the Services' networks, primary family first. `random`: 0 ≤ n < 1. */
  constructor(
    store: Store,
    cidrs: readonly string[],
    nodePorts: { readonly first: number; readonly last: number },
    random: () => number,
  ) {
    this.#cidrs = cidrs.flatMap((text) => parseCidr(text) ?? []);
    this.#nodePorts = nodePorts;
    this.#random = random;
    for (const { object } of store.list('services')) this.#claim(object);
  }

  /** Completes a Service that is about to be stored. */
  allocate(service: ApiObject, before: ApiObject | null): Allocation {
    const errors: FieldError[] = [];
    const owner = ownerOf(service);
    const taken: { map: Map<string, string>; key: string }[] = [];
    const take = (map: Map<string, string>, key: string): boolean => {
      const holder = map.get(key);
      if (holder !== undefined && holder !== owner) return false;
      if (holder === undefined) {
        map.set(key, owner);
        taken.push({ map, key });
      }
      return true;
    };
    const spec = isObject(service['spec']) ? service['spec'] : {};
    if (spec['type'] === 'ExternalName') {
      for (const field of ['clusterIP', 'clusterIPs', 'ipFamilies', 'ipFamilyPolicy']) delete spec[field];
    } else {
      this.#families(spec, errors);
      if (errors.length === 0) this.#clusterIps(spec, take, errors);
    }
    this.#nodePortsOf(spec, take, errors);
    const release = () => {
      for (const { map, key } of taken) map.delete(key);
    };
    if (errors.length > 0) release();
    return {
      errors,
      release,
      commit: () => {
        if (!before) return;
        const kept = new Set([...addressesOf(service), ...portsOf(service)]);
        for (const address of addressesOf(before)) if (!kept.has(address)) this.#addresses.delete(address);
        for (const port of portsOf(before)) if (!kept.has(port)) this.#ports.delete(port);
      },
    };
  }

  /** Frees what a deleted Service had. */
  forget(kind: Kind, service: ApiObject): void {
    if (kind.collection !== 'services') return;
    for (const address of addressesOf(service)) this.#addresses.delete(address);
    for (const port of portsOf(service)) this.#ports.delete(port);
  }

  #claim(service: ApiObject): void {
    for (const address of addressesOf(service)) this.#addresses.set(address, ownerOf(service));
    for (const port of portsOf(service)) this.#ports.set(port, ownerOf(service));
  }

  /** ipFamilies and ipFamilyPolicy, from each other, from given addresses and from the cluster's networks. */
  #families(spec: JsonObject, errors: FieldError[]): void {
    const cluster = this.#cidrs.map((cidr) => NAMES[cidr.family]);
    const given = Array.isArray(spec['ipFamilies']) ? spec['ipFamilies'].map(String) : [];
    const ips = givenAddresses(spec);
    const ofIps = ips.filter((ip) => ip !== 'None').map((ip) => (ip.includes(':') ? 'IPv6' : 'IPv4'));
    const headlessWithoutSelector = ips.includes('None') && spec['selector'] === undefined;
    for (const [i, family] of given.entries()) {
      if (family !== 'IPv4' && family !== 'IPv6')
        errors.push(invalid(`spec.ipFamilies[${i}]`, family, 'must be IPv4 or IPv6'));
      else if (!cluster.includes(family) && !headlessWithoutSelector) {
        errors.push(invalid(`spec.ipFamilies[${i}]`, family, 'not configured on this cluster'));
      }
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
      spec['ipFamilyPolicy'] ?? (given.length > 1 || ofIps.length > 1 ? 'RequireDualStack' : 'SingleStack');
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
      // An update that goes back to a single stack keeps the primary family.
      if (given.length > 1 && Array.isArray(spec['clusterIPs'])) families.length = 1;
      else
        errors.push(invalid('spec.ipFamilyPolicy', policy, 'may be SingleStack only with one of ipFamilies'));
    }
    spec['ipFamilyPolicy'] = policy;
    spec['ipFamilies'] = families;
  }

  #clusterIps(
    spec: JsonObject,
    take: (map: Map<string, string>, key: string) => boolean,
    errors: FieldError[],
  ): void {
    const ips = givenAddresses(spec);
    if (ips[0] === 'None') {
      spec['clusterIP'] = 'None';
      spec['clusterIPs'] = ['None'];
      return;
    }
    const families = (spec['ipFamilies'] as string[]).map((name) => (name === 'IPv6' ? 'ipv6' : 'ipv4'));
    const result: string[] = [];
    for (const [i, family] of families.entries()) {
      const cidr = this.#cidrs.find((candidate) => candidate.family === family);
      const wanted = ips[i];
      if (!cidr) continue;
      if (wanted !== undefined && wanted !== '') {
        const canonical = canonicalAddress(wanted);
        if (!canonical) errors.push(invalid(`spec.clusterIPs[${i}]`, [wanted], 'must be a valid IP address'));
        else if (!cidrContains(cidr, canonical)) {
          errors.push(
            invalid(
              'spec.clusterIPs',
              ips,
              `failed to allocate IP ${wanted}: the provided IP (${wanted}) is not in the valid range. The range of valid IPs is ${cidr.text}`,
            ),
          );
        } else if (!take(this.#addresses, canonical)) {
          errors.push(
            invalid(
              'spec.clusterIPs',
              ips,
              `failed to allocate IP ${wanted}: provided IP is already allocated`,
            ),
          );
        } else result.push(canonical);
      } else {
        const free = this.#freeAddress(cidr);
        if (free === null) {
          errors.push({
            field: 'spec.clusterIPs',
            reason: 'InternalError',
            message: `Internal error: failed to allocate a serviceIP: range ${cidr.text} is full`,
          });
        } else {
          take(this.#addresses, free);
          result.push(free);
        }
      }
    }
    if (errors.length > 0) return;
    spec['clusterIP'] = result[0] ?? '';
    spec['clusterIPs'] = result;
  }

  /**
   * A free address: at random from the upper band, so that addresses that people choose by hand, from the lower
   * band, rarely clash (KEP-3070); from the lower band when the upper is full.
   */
  #freeAddress(cidr: Cidr): string | null {
    const size = Number(cidrSize(cidr) > 65536n ? 65536n : cidrSize(cidr));
    const band = size <= 16 ? 0 : Math.min(Math.max(16, Math.floor(size / 16)), 256);
    const lastUsable = cidr.family === ('ipv4' satisfies IPFamily) ? size - 2 : size - 1;
    const isFree = (index: number) => !this.#addresses.has(addressAt(cidr, index));
    const index =
      this.#search(band + 1, lastUsable, isFree) ?? this.#search(1, Math.min(band, lastUsable), isFree);
    return index === null ? null : addressAt(cidr, index);
  }

  #nodePortsOf(
    spec: JsonObject,
    take: (map: Map<string, string>, key: string) => boolean,
    errors: FieldError[],
  ): void {
    const type = spec['type'];
    const wanted =
      type === 'NodePort' || (type === 'LoadBalancer' && spec['allocateLoadBalancerNodePorts'] !== false);
    const ports = listAt(spec, 'ports');
    const chosen = new Map<string, number>();
    for (const [i, port] of ports.entries()) {
      const number = port['nodePort'];
      if (typeof number !== 'number' || number === 0) continue;
      if (number < this.#nodePorts.first || number > this.#nodePorts.last) {
        errors.push(
          invalid(
            `spec.ports[${i}].nodePort`,
            number,
            `provided port is not in the valid range. The range of valid ports is ${this.#nodePorts.first}-${this.#nodePorts.last}`,
          ),
        );
      } else if (!take(this.#ports, String(number))) {
        errors.push(invalid(`spec.ports[${i}].nodePort`, number, 'provided port is already allocated'));
      } else chosen.set(`${String(port['port'])}`, number);
    }
    if (wanted && errors.length === 0) {
      for (const port of ports) {
        if (typeof port['nodePort'] === 'number' && port['nodePort'] !== 0) continue;
        // The same port for TCP and UDP gets the same node port where that is free.
        const sibling = chosen.get(String(port['port']));
        const number =
          sibling !== undefined && take(this.#ports, String(sibling)) ? sibling : this.#freePort();
        if (number === null) {
          errors.push({
            field: 'spec.ports',
            reason: 'InternalError',
            message: 'Internal error: failed to allocate a nodePort: range is full',
          });
          break;
        }
        take(this.#ports, String(number));
        chosen.set(String(port['port']), number);
        port['nodePort'] = number;
      }
    }
    this.#healthCheckPort(spec, take, errors);
  }

  #healthCheckPort(
    spec: JsonObject,
    take: (map: Map<string, string>, key: string) => boolean,
    errors: FieldError[],
  ): void {
    if (spec['type'] !== 'LoadBalancer' || spec['externalTrafficPolicy'] !== 'Local') {
      delete spec['healthCheckNodePort'];
      return;
    }
    const given = spec['healthCheckNodePort'];
    if (typeof given === 'number' && given !== 0) {
      if (
        given < this.#nodePorts.first ||
        given > this.#nodePorts.last ||
        !take(this.#ports, String(given))
      ) {
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
    const free = this.#freePort();
    if (free === null) return;
    take(this.#ports, String(free));
    spec['healthCheckNodePort'] = free;
  }

  /** A free port: from the upper band first, as with addresses (KEP-3668). */
  #freePort(): number | null {
    const { first, last } = this.#nodePorts;
    const size = last - first + 1;
    const band = size <= 16 ? 0 : Math.min(Math.max(16, Math.floor(size / 32)), 128);
    const isFree = (port: number) => !this.#ports.has(String(port));
    return this.#search(first + band, last, isFree) ?? this.#search(first, first + band - 1, isFree);
  }

  /** A number from first to last that is free, sought from a random one on; null when none is. */
  #search(first: number, last: number, isFree: (number: number) => boolean): number | null {
    const count = last - first + 1;
    if (count <= 0) return null;
    const start = Math.floor(this.#random() * count);
    for (let i = 0; i < count; i++) {
      const number = first + ((start + i) % count);
      if (isFree(number)) return number;
    }
    return null;
  }
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

function addressesOf(service: ApiObject): string[] {
  return listAt(service, 'spec', 'clusterIPs')
    .map(String)
    .filter((ip) => ip !== 'None' && ip !== '');
}

function portsOf(service: ApiObject): string[] {
  const ports = listAt(service, 'spec', 'ports').flatMap((port) =>
    typeof port['nodePort'] === 'number' && port['nodePort'] !== 0 ? [String(port['nodePort'])] : [],
  );
  const spec = isObject(service['spec']) ? service['spec'] : {};
  const health = spec['healthCheckNodePort'];
  return typeof health === 'number' && health !== 0 ? [...ports, String(health)] : ports;
}
