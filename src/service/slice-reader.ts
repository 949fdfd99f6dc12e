import { SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { FAMILY_NAMES, type IPFamily } from '../lib/address.ts';
import { addressFamily, readAddress, unusableAs } from './address-text.ts';
import { asRecord, createFindingList, type FindingList, type Raw, show } from './finding-list.ts';
import type { Finding, Protocol } from './model.ts';
import type { EndpointSliceObject } from './objects.ts';
import { hasIgnoreLabel, isPort, readProtocol } from './service-reader.ts';

/** An endpoint of a slice in the compact form that the table stores; repeated texts are shared. */
export interface SliceMember {
  readonly ip: string;
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
  readonly nodeName: string | null;
  /** "namespace/pod". */
  readonly target: string | null;
  /** Hints; null if there are none. */
  readonly zones: readonly string[] | null;
  readonly nodes: readonly string[] | null;
}

/** The part of an EndpointSlice that forwarding needs. */
export interface ParsedSlice {
  readonly name: string;
  readonly family: IPFamily;
  readonly ports: readonly { readonly name: string; readonly protocol: Protocol; readonly port: number }[];
  readonly members: readonly SliceMember[];
}

/** Shares equal texts and lists: node names and zones repeat in every endpoint. */
export interface Interner {
  text(value: string): string;
  list(values: readonly string[]): readonly string[];
}

export function createInterner(): Interner {
  const texts = new Map<string, string>();
  const lists = new Map<string, readonly string[]>();
  return {
    text(value) {
      const known = texts.get(value);
      if (known !== undefined) return known;
      texts.set(value, value);
      return value;
    },
    list(values) {
      const key = values.join('\n');
      const known = lists.get(key);
      if (known) return known;
      lists.set(key, values);
      return values;
    },
  };
}

/**
 * Reads an EndpointSlice. `service` is the name of the Service that it belongs to (its namespace is the
 * slice's). It and `slice` are null if the proxy ignores the slice: without that label, labelled for
 * another proxy, or with addresses of type FQDN. Never throws; unusable parts are left out and reported as
 * findings.
 */
export function readSlice(
  object: EndpointSliceObject,
  interner: Interner,
): { service: string | null; slice: ParsedSlice | null; findings: readonly Finding[] } {
  const raw = asRecord(object) ?? {};
  const meta = asRecord(raw['metadata']) ?? {};
  const namespace = typeof meta['namespace'] === 'string' ? meta['namespace'] : '';
  const name = typeof meta['name'] === 'string' ? meta['name'] : '';
  const service = asRecord(meta['labels'])?.[SERVICE_NAME_LABEL];
  if (typeof service !== 'string' || service === '' || hasIgnoreLabel(meta)) {
    return { service: null, slice: null, findings: [] };
  }
  const findings = createFindingList('EndpointSlice', namespace, name);
  if (namespace === '' || name === '') {
    findings.add('InvalidName', 'metadata', 'an EndpointSlice needs a name and a namespace', 'error');
    return { service: null, slice: null, findings: findings.result() };
  }
  const family = readFamily(raw['addressType'], findings);
  const slice = family && {
    name,
    family,
    ports: readPorts(raw, findings),
    members: readMembers(raw, family, namespace, interner, findings),
  };
  return { service, slice, findings: findings.result() };
}

function readFamily(type: unknown, findings: FindingList): IPFamily | null {
  if (type === 'IPv4') return 'ipv4';
  if (type === 'IPv6') return 'ipv6';
  const problem =
    type === 'FQDN'
      ? 'FQDN: packets cannot be sent to names; use slices of type IPv4 and IPv6, or an ExternalName Service'
      : `${show(type)} is unknown: use IPv4 or IPv6`;
  findings.add('UnsupportedAddressType', 'addressType', problem);
  return null;
}

function readPorts(raw: Raw, findings: FindingList): ParsedSlice['ports'] {
  const ports: ParsedSlice['ports'][number][] = [];
  for (const [i, item] of findings.list(raw, 'ports', 'ports').entries()) {
    const entry = asRecord(item);
    const protocol = readProtocol(entry?.['protocol']);
    const port = entry?.['port'];
    if (!entry) findings.add('InvalidField', `ports[${i}]`, `${show(item)} is not a port`);
    else if (!protocol) {
      const problem = `${show(entry['protocol'])} is unknown: use TCP, UDP or SCTP`;
      findings.add('UnknownProtocol', `ports[${i}].protocol`, problem, 'error');
    } else if (!isPort(port)) {
      const problem = `${show(port)} is not a port number; "all ports" is not supported: use a port from 1 to 65535`;
      findings.add('InvalidEndpointPort', `ports[${i}].port`, problem, 'error');
    } else ports.push({ name: findings.text(entry, 'name', `ports[${i}].name`), protocol, port });
  }
  return ports;
}

function readMembers(
  raw: Raw,
  family: IPFamily,
  namespace: string,
  interner: Interner,
  findings: FindingList,
): SliceMember[] {
  const members: SliceMember[] = [];
  for (const [i, item] of findings.list(raw, 'endpoints', 'endpoints').entries()) {
    const path = `endpoints[${i}]`;
    const entry = asRecord(item);
    if (!entry) {
      findings.add('InvalidField', path, `${show(item)} must be an object with addresses`);
      continue;
    }
    const addresses = findings.list(entry, 'addresses', `${path}.addresses`);
    if (addresses.length === 0) {
      if (entry['addresses'] && !Array.isArray(entry['addresses'])) continue;
      findings.add('InvalidEndpointAddress', `${path}.addresses`, 'is empty: an endpoint needs an address');
      continue;
    }
    const ip = readAddress(addresses[0]);
    const problem =
      ip === null
        ? 'not an IP address'
        : addressFamily(ip) === family
          ? unusableAs(ip)
          : 'of the other family';
    if (ip === null || problem !== null) {
      const text = `${show(addresses[0])} is ${problem}: this slice is of ${FAMILY_NAMES[family]}`;
      findings.add('InvalidEndpointAddress', `${path}.addresses[0]`, text, 'error');
      continue;
    }
    const conditions = findings.record(entry, 'conditions', `${path}.conditions`);
    const hints = findings.record(entry, 'hints', `${path}.hints`);
    const nodeName = findings.text(entry, 'nodeName', `${path}.nodeName`);
    members.push({
      ip,
      ready: readCondition(conditions, 'ready', true, path, findings),
      serving: readCondition(conditions, 'serving', true, path, findings),
      terminating: readCondition(conditions, 'terminating', false, path, findings),
      nodeName: nodeName === '' ? null : interner.text(nodeName),
      target: readTarget(entry, namespace),
      zones: readHints(hints, 'forZones', path, interner, findings),
      nodes: readHints(hints, 'forNodes', path, interner, findings),
    });
  }
  return members;
}

function readCondition(
  conditions: Raw,
  name: string,
  unset: boolean,
  path: string,
  findings: FindingList,
): boolean {
  const value = conditions[name];
  if (typeof value === 'boolean') return value;
  if (value !== undefined && value !== null) {
    findings.add('InvalidField', `${path}.conditions.${name}`, `${show(value)} must be true or false`);
  }
  return unset;
}

function readHints(
  hints: Raw,
  field: string,
  path: string,
  interner: Interner,
  findings: FindingList,
): readonly string[] | null {
  if (hints[field] === undefined || hints[field] === null) return null;
  const names: string[] = [];
  for (const [i, item] of findings.list(hints, field, `${path}.hints.${field}`).entries()) {
    const name = asRecord(item)?.['name'];
    if (typeof name === 'string' && name !== '') names.push(interner.text(name));
    else findings.add('InvalidField', `${path}.hints.${field}[${i}]`, `${show(item)} has no name`);
  }
  return names.length === 0 ? null : interner.list(names);
}

/** Returns "namespace/pod", or null if the endpoint is not a pod. */
function readTarget(entry: Raw, sliceNamespace: string): string | null {
  const reference = asRecord(entry['targetRef']);
  const name = reference?.['name'];
  if (reference?.['kind'] !== 'Pod' || typeof name !== 'string' || name === '') return null;
  const namespace = typeof reference['namespace'] === 'string' ? reference['namespace'] : sliceNamespace;
  // A joined list is flat; a concatenation would keep both of its halves in memory.
  return [namespace, name].join('/');
}
