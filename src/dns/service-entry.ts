import { addressBytes, canonicalAddress } from '../lib/address.ts';
import type { EndpointSliceObject, ServiceObject } from './objects.ts';

/** A port of a Service, or of an endpoint of a headless one; `name` is empty for an unnamed port. */
export interface NamedPort {
  readonly name: string;
  /** Lower case, as in names: "tcp". */
  readonly protocol: string;
  readonly port: number;
}

/** An endpoint's address with its host name. */
export interface Host {
  /** The endpoint's host name, or its address with dashes. */
  readonly name: string;
  readonly bytes: Uint8Array;
  readonly ports: readonly NamedPort[];
}

/** The index of a Service's slices for queries; built on the first query and dropped at each change. */
export interface HostView {
  readonly hosts: readonly Host[];
  readonly byName: ReadonlyMap<string, readonly Host[]>;
}

/** The parts of a Service that affect names. */
export interface ServiceEntry {
  readonly namespace: string;
  readonly name: string;
  readonly headless: boolean;
  /** Canonical addresses; empty for headless and ExternalName Services. */
  readonly clusterIPs: readonly string[];
  /** Lower case, without the final dot; null for all other types. */
  readonly externalName: string | null;
  readonly publishNotReady: boolean;
  readonly ports: readonly NamedPort[];
  hosts: HostView | null;
}

const NO_PORTS: readonly NamedPort[] = [];

/** Returns true if a Service's endpoints have names: those of an ExternalName Service have none. */
export const hasHosts = (service: ServiceEntry): boolean => service.externalName === null;

/** Reads a Service; null: it has no name. Invalid addresses are left out. */
export function readService(service: ServiceObject): ServiceEntry | null {
  const { name, namespace } = service.metadata ?? {};
  if (!name || !namespace) return null;
  const spec = service.spec ?? {};
  const external = spec.type === 'ExternalName';
  const headless = !external && spec.clusterIP === 'None';
  const addresses = spec.clusterIPs?.length ? spec.clusterIPs : spec.clusterIP ? [spec.clusterIP] : [];
  return {
    namespace,
    name,
    headless,
    clusterIPs: external || headless ? [] : addresses.flatMap((address) => canonicalAddress(address) ?? []),
    externalName: external ? domainName(spec.externalName ?? '') : null,
    publishNotReady: spec.publishNotReadyAddresses === true,
    ports:
      spec.ports?.map((port) => ({
        name: port.name ?? '',
        protocol: (port.protocol ?? 'TCP').toLowerCase(),
        port: port.port,
      })) ?? NO_PORTS,
    hosts: null,
  };
}

/** Returns the published endpoints of a Service: the ready ones, or all with publishNotReadyAddresses. */
export function hostView(service: ServiceEntry, slices: Iterable<EndpointSliceObject>): HostView {
  const hosts = new Map<string, Host>();
  for (const slice of slices) {
    if (slice.addressType === 'FQDN') continue;
    const ports = slicePorts(slice);
    for (const endpoint of slice.endpoints ?? []) {
      if (!service.publishNotReady && endpoint.conditions?.ready === false) continue;
      for (const address of endpoint.addresses) {
        const bytes = addressBytes(address);
        if (!bytes) continue;
        const name = endpoint.hostname ? endpoint.hostname.toLowerCase() : dashed(address);
        const key = `${name} ${canonicalAddress(address)}`;
        const known = hosts.get(key);
        hosts.set(key, { name, bytes, ports: known ? mergePorts(known.ports, ports) : ports });
      }
    }
  }
  const byName = new Map<string, Host[]>();
  for (const host of hosts.values()) {
    const list = byName.get(host.name);
    if (list) list.push(host);
    else byName.set(host.name, [host]);
  }
  return { hosts: [...hosts.values()], byName };
}

/** Returns all addresses in a slice, canonical, in any condition. */
export function* sliceAddresses(slice: EndpointSliceObject): Generator<string> {
  if (slice.addressType === 'FQDN') return;
  for (const endpoint of slice.endpoints ?? []) {
    for (const address of endpoint.addresses) {
      const canonical = canonicalAddress(address);
      if (canonical !== null) yield canonical;
    }
  }
}

/** Returns an address as a label: "10-0-0-1", "fd00--1". */
const dashed = (address: string): string => (canonicalAddress(address) ?? address).replace(/[.:]/g, '-');

/** Returns the canonical address of a label with dashes, or null. */
export function undashed(label: string): string | null {
  if (!/^[0-9a-f-]+$/.test(label)) return null;
  return canonicalAddress(label.replaceAll('-', '.')) ?? canonicalAddress(label.replaceAll('-', ':'));
}

/** Returns a name as `Name` text in lower case; null: invalid. */
function domainName(text: string): string | null {
  const name = text.replace(/\.$/, '').toLowerCase();
  const valid = name.length > 0 && name.length <= 253 && /^[!-[\]-~]{1,63}$/;
  return valid && name.split('.').every((label) => valid.test(label)) ? name : null;
}

function slicePorts(slice: EndpointSliceObject): readonly NamedPort[] {
  const ports: NamedPort[] = [];
  for (const { name, protocol, port } of slice.ports ?? []) {
    if (port) ports.push({ name: name ?? '', protocol: (protocol ?? 'TCP').toLowerCase(), port });
  }
  return ports;
}

function mergePorts(a: readonly NamedPort[], b: readonly NamedPort[]): readonly NamedPort[] {
  const fresh = b.filter(
    (port) => !a.some((o) => o.name === port.name && o.protocol === port.protocol && o.port === port.port),
  );
  return fresh.length === 0 ? a : [...a, ...fresh];
}
