import { addressBytes, type Cidr, cidrContains } from '../lib/address.ts';
import { addressRecord, textData } from './encode.ts';
import type { Answer } from './message.ts';
import { CLASS_IN, type Name, RCODE, type ResourceRecord, TYPE } from './message.ts';
import { type ReverseName, reverseZone } from './reverse.ts';
import {
  type Host,
  type HostView,
  hasHosts,
  type NamedPort,
  type ServiceEntry,
  undashed,
} from './service-entry.ts';

/** Whether `a-b-c-d.<namespace>.pod.<zone>` exists: never, always, or when a pod has the address. */
export type PodMode = 'disabled' | 'insecure' | 'verified';

/** The zone's result: an answer, possibly ending in an unresolved alias, or null if the name is not in the zone. */
export interface ZoneAnswer extends Answer {
  /** The target of the last CNAME if its addresses are still to be resolved. */
  readonly alias: Name | null;
}

/** The version of the Kubernetes DNS specification that the names follow. */
const SPECIFICATION_VERSION = '1.1.0';

/** The data of the zone. */
export interface ZoneView {
  readonly domain: string;
  readonly ttl: number;
  readonly podMode: PodMode;
  readonly networks: readonly Cidr[];
  readonly serverAddresses: readonly string[];
  readonly random: () => number;
  service(namespace: string, name: string): ServiceEntry | null;
  /** Returns true if a namespace is known, by itself or by a Service of it. */
  hasNamespace(namespace: string): boolean;
  /** Returns true if all namespaces are known. */
  knowsNamespaces(): boolean;
  hosts(service: ServiceEntry): HostView;
  servicesAt(address: string): readonly ServiceEntry[];
  hostedAt(address: string): readonly ServiceEntry[];
  podAt(namespace: string, address: string): boolean;
  soa(owner: Name): ResourceRecord;
}

/** A query: the name below the domain in lower case, `asked` as spelled by the client. */
interface Lookup {
  readonly view: ZoneView;
  readonly type: number;
  readonly asked: Name;
  /** The owner of the SOA in negative answers. */
  readonly apex: Name;
}

/** Answers a name that is the domain or below it. */
export function answerZone(
  view: ZoneView,
  synced: boolean,
  name: Name,
  type: number,
  asked: Name,
): ZoneAnswer {
  const lookup: Lookup = { view, type, asked, apex: view.domain };
  if (!synced) return serverFailure();
  if (name === view.domain) return answerApex(lookup);
  const labels = name.slice(0, -view.domain.length - 1).split('.');
  switch (labels.at(-1)) {
    case 'svc':
      return answerServices(lookup, labels.slice(0, -1));
    case 'pod':
      return answerPods(lookup, labels.slice(0, -1));
    case 'dns-version':
      if (labels.length > 1) return noSuchName(lookup);
      if (type !== TYPE.TXT) return noData(lookup);
      return found([record(lookup, TYPE.TXT, textData(SPECIFICATION_VERSION))]);
    case 'dns':
      return answerNameServer(lookup, labels);
    default:
      return noSuchName(lookup);
  }
}

/**
 * Answers a reverse name; returns null if it is outside the cluster's networks and no Service has the
 * address.
 */
export function answerReverse(
  view: ZoneView,
  synced: boolean,
  reverse: ReverseName,
  type: number,
  asked: Name,
): ZoneAnswer | null {
  const network = view.networks.find(
    (cidr) =>
      cidr.family === reverse.family && reverse.bits >= cidr.prefix && cidrContains(cidr, reverse.bytes),
  );
  const apex = network ? reverseZone(reverse, network.prefix) : reverse.name;
  const lookup: Lookup = { view, type, asked, apex };
  if (!synced) return network ? serverFailure() : null;
  const targets = reverse.address === null ? [] : reverseTargets(view, reverse.address);
  if (targets.length === 0) {
    if (!network) return null;
    if (reverse.name === apex && type === TYPE.SOA) return found([view.soa(asked)]);
    return reverse.address === null ? noData(lookup) : noSuchName(lookup);
  }
  if (type !== TYPE.PTR) return noData(lookup);
  return found(targets.map((target) => record(lookup, TYPE.PTR, { target })));
}

function reverseTargets(view: ZoneView, address: string): Name[] {
  const services = view.servicesAt(address).map((service) => serviceName(view, service));
  if (services.length > 0) return services;
  const wanted = addressBytes(address);
  return view.hostedAt(address).flatMap((service) =>
    view
      .hosts(service)
      .hosts.filter((host) => wanted && Buffer.compare(host.bytes, wanted) === 0)
      .map((host) => `${host.name}.${serviceName(view, service)}`),
  );
}

function answerApex(lookup: Lookup): ZoneAnswer {
  const { view, type, asked } = lookup;
  if (type === TYPE.SOA) return found([view.soa(asked)]);
  if (type !== TYPE.NS) return noData(lookup);
  const target = `ns.dns.${view.domain}`;
  return found([record(lookup, TYPE.NS, { target })], serverRecords(view, target));
}

function answerNameServer(lookup: Lookup, labels: readonly string[]): ZoneAnswer {
  if (labels.length === 1) return noData(lookup);
  if (labels.length > 2 || labels[0] !== 'ns') return noSuchName(lookup);
  return foundOrNoData(
    lookup,
    serverRecords(lookup.view, lookup.asked).filter((r) => r.type === lookup.type),
  );
}

function serverRecords(view: ZoneView, name: Name): ResourceRecord[] {
  return view.serverAddresses.flatMap((address) => addressRecords(view, name, [address]));
}

/**
 * Answers a name below "svc". `labels` before "svc": [namespace], [service, namespace], [x, service,
 * namespace] or one more.
 */
function answerServices(lookup: Lookup, labels: readonly string[]): ZoneAnswer {
  const { view } = lookup;
  if (labels.length === 0) return noData(lookup);
  const namespace = labels.at(-1) ?? '';
  if (labels.length === 1) return view.hasNamespace(namespace) ? noData(lookup) : noSuchName(lookup);
  const service = view.service(namespace, labels.at(-2) ?? '');
  if (!service) return noSuchName(lookup);
  const [first = '', second = ''] = labels;
  switch (labels.length) {
    case 2:
      return answerService(lookup, service);
    case 3:
      return first.startsWith('_')
        ? answerProtocol(lookup, service, first)
        : answerHost(lookup, service, first);
    case 4:
      return first.startsWith('_') && second.startsWith('_')
        ? answerPort(lookup, service, first.slice(1), second.slice(1))
        : noSuchName(lookup);
    default:
      return noSuchName(lookup);
  }
}

function answerService(lookup: Lookup, service: ServiceEntry): ZoneAnswer {
  const { view, type, asked } = lookup;
  if (service.externalName !== null) {
    const alias = record(lookup, TYPE.CNAME, { target: service.externalName });
    return { ...found([alias]), alias: type === TYPE.CNAME ? null : service.externalName };
  }
  if (service.headless && view.hosts(service).hosts.length === 0) return noSuchName(lookup);
  // The specification names ports in SRV queries; existing peer finders query only the Service's name,
  // which CoreDNS answers too.
  if (type === TYPE.SRV) return answerPort(lookup, service, null, null);
  const records = service.headless
    ? hostRecords(lookup, view.hosts(service).hosts)
    : addressRecords(view, asked, service.clusterIPs).filter((address) => address.type === type);
  return foundOrNoData(lookup, records);
}

/**
 * Answers "_tcp.web.shop.svc", which has no records, but exists while there is a named port of this
 * protocol.
 */
function answerProtocol(lookup: Lookup, service: ServiceEntry, label: string): ZoneAnswer {
  const exists = portsOf(lookup.view, service).some((port) => port.name && label === `_${port.protocol}`);
  return exists ? noData(lookup) : noSuchName(lookup);
}

function answerHost(lookup: Lookup, service: ServiceEntry, label: string): ZoneAnswer {
  if (!hasHosts(service)) return noSuchName(lookup);
  const { byName } = lookup.view.hosts(service);
  const hosts = byName.get(label) ?? byName.get(undashed(label)?.replace(/[.:]/g, '-') ?? '');
  return hosts ? foundOrNoData(lookup, hostRecords(lookup, hosts)) : noSuchName(lookup);
}

/** Returns the SRV records of the ports with this name and protocol; null for all of them. */
function answerPort(
  lookup: Lookup,
  service: ServiceEntry,
  name: string | null,
  protocol: string | null,
): ZoneAnswer {
  const { view, type } = lookup;
  const wanted = (port: NamedPort) =>
    (name === null || (port.name !== '' && port.name === name)) &&
    (protocol === null || port.protocol === protocol);
  const owner = serviceName(view, service);
  const targets = service.headless
    ? view
        .hosts(service)
        .hosts.flatMap((host) =>
          host.ports.filter(wanted).map(({ port }) => ({ name: `${host.name}.${owner}`, port })),
        )
    : service.ports.filter(wanted).map(({ port }) => ({ name: owner, port }));
  if (targets.length === 0) return name === null ? noData(lookup) : noSuchName(lookup);
  if (type !== TYPE.SRV) return noData(lookup);
  const distinct = [...new Map(targets.map((target) => [`${target.port} ${target.name}`, target])).values()];
  const weight = Math.max(1, Math.floor(100 / distinct.length));
  const answers = rotate(distinct, view.random).map(({ name: target, port }) =>
    record(lookup, TYPE.SRV, { priority: 0, weight, port, target }),
  );
  const addresses = service.headless
    ? view
        .hosts(service)
        .hosts.filter((host) => host.ports.some(wanted))
        .map((host) => addressRecord(`${host.name}.${owner}`, host.bytes, view.ttl))
    : addressRecords(view, owner, service.clusterIPs);
  return found(answers, addresses);
}

/** Answers a name below "pod". `labels` before "pod": [namespace] or [address, namespace]. */
function answerPods(lookup: Lookup, labels: readonly string[]): ZoneAnswer {
  const { view } = lookup;
  if (view.podMode === 'disabled' || labels.length > 2) return noSuchName(lookup);
  const namespace = labels.at(-1);
  if (namespace === undefined) return noData(lookup);
  const address = labels.length === 2 ? undashed(labels[0] ?? '') : null;
  const verified = address !== null && view.podAt(namespace, address);
  if (view.podMode === 'verified' && labels.length === 2 && !verified) return noSuchName(lookup);
  // CoreDNS, too, checks the namespace with `pods insecure`. Without a list of namespaces, each may exist.
  const isChecked = view.podMode === 'verified' || view.knowsNamespaces();
  if (isChecked && !verified && !view.hasNamespace(namespace)) return noSuchName(lookup);
  if (labels.length === 1) return noData(lookup);
  if (address === null) return noSuchName(lookup);
  return foundOrNoData(
    lookup,
    addressRecords(view, lookup.asked, [address]).filter((r) => r.type === lookup.type),
  );
}

function portsOf(view: ZoneView, service: ServiceEntry): readonly NamedPort[] {
  return service.headless ? view.hosts(service).hosts.flatMap((host) => host.ports) : service.ports;
}

/** Returns one record per distinct address: an address may be listed under several host names. */
function hostRecords(lookup: Lookup, hosts: readonly Host[]): ResourceRecord[] {
  const { view, type, asked } = lookup;
  const length = type === TYPE.A ? 4 : type === TYPE.AAAA ? 16 : 0;
  const matching = hosts.filter((host) => host.bytes.length === length);
  const distinct =
    matching.length < 2 ? matching : [...new Map(matching.map((host) => [host.bytes.join(), host])).values()];
  return rotate(distinct, view.random).map((host) => addressRecord(asked, host.bytes, view.ttl));
}

function addressRecords(view: ZoneView, name: Name, addresses: readonly string[]): ResourceRecord[] {
  const records: ResourceRecord[] = [];
  for (const address of addresses) {
    const bytes = addressBytes(address);
    if (bytes) records.push(addressRecord(name, bytes, view.ttl));
  }
  return records;
}

function rotate<T>(list: readonly T[], random: () => number): readonly T[] {
  if (list.length < 2) return list;
  const start = Math.floor(random() * list.length);
  return start === 0 ? list : [...list.slice(start), ...list.slice(0, start)];
}

const serviceName = (view: ZoneView, service: ServiceEntry): Name =>
  `${service.name}.${service.namespace}.svc.${view.domain}`;

function record(lookup: Lookup, type: number, data: ResourceRecord['data']): ResourceRecord {
  return { name: lookup.asked, type, class: CLASS_IN, ttl: lookup.view.ttl, data };
}

const NONE: readonly ResourceRecord[] = [];
const AUTHORITY = { authoritative: true, authenticData: false, alias: null } as const;

function found(
  answers: readonly ResourceRecord[],
  additionals: readonly ResourceRecord[] = NONE,
): ZoneAnswer {
  return { ...AUTHORITY, rcode: RCODE.NOERROR, answers, authorities: NONE, additionals };
}

function foundOrNoData(lookup: Lookup, answers: readonly ResourceRecord[]): ZoneAnswer {
  return answers.length > 0 ? found(answers) : noData(lookup);
}

function noData({ view, apex }: Lookup): ZoneAnswer {
  const authorities = [view.soa(apex)];
  return { ...AUTHORITY, rcode: RCODE.NOERROR, answers: NONE, authorities, additionals: NONE };
}

function noSuchName({ view, apex }: Lookup): ZoneAnswer {
  const authorities = [view.soa(apex)];
  return { ...AUTHORITY, rcode: RCODE.NXDOMAIN, answers: NONE, authorities, additionals: NONE };
}

function serverFailure(): ZoneAnswer {
  return {
    ...AUTHORITY,
    authoritative: false,
    rcode: RCODE.SERVFAIL,
    answers: NONE,
    authorities: NONE,
    additionals: NONE,
  };
}
