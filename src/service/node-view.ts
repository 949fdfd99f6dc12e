import { ZONE_LABEL } from '../kube/well-known-labels.ts';
import { type Cidr, cidrContains, FAMILY_NAMES, hostCidr, type IPFamily, parseCidr } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import { addressFamily, readAddress } from './address-text.ts';
import type { LocalDetection, NodePortAddresses, NodeView } from './model.ts';
import type { NodeObject } from './objects.ts';

/** The part of a proxy's configuration that forwarding depends on. */
export interface NodeSettings {
  /** CIDRs and the keywords "primary", "localhost", "all". Empty: `defaultNodePortAddresses`. */
  readonly nodePortAddresses: readonly string[];
  /** The meaning of an empty list: upstream has "primary" in nftables mode and "all" in the older ones. */
  readonly defaultNodePortAddresses: 'primary' | 'all';
  /** Whether node ports answer on loopback, unless `nodePortAddresses` excludes it. */
  readonly localhostNodePorts: boolean;
  readonly detectLocalMode: LocalDetection['mode'];
  readonly clusterCidrs: readonly Cidr[];
  readonly bridgeInterface: string;
  readonly interfaceNamePrefix: string;
  readonly masqueradeAll: boolean;
  readonly masqueradeBit: number;
  readonly serviceCidrs: readonly Cidr[];
  readonly ownServiceAddresses: readonly string[];
  readonly ipvsScheduler: string;
  /** Families that this node's kernel and mode support. */
  readonly families: readonly IPFamily[];
}

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
const KEYWORDS = ['primary', 'localhost', 'all'];

/**
 * Reads the properties of this node that forwarding depends on from its Node object and the proxy's
 * configuration. `warnings` are sentences for the log. Throws FairleadError (code "bad-config") if the
 * configured detection cannot recognize any pod, or if the node's primary family is not supported.
 */
export function readNodeView(
  object: NodeObject,
  settings: NodeSettings,
): { readonly view: NodeView; readonly warnings: readonly string[] } {
  const addresses = nodeAddresses(object);
  const primary = addresses[0] === undefined ? null : addressFamily(addresses[0]);
  if (primary && !settings.families.includes(primary)) {
    throw badConfig(
      `the node's primary address ${addresses[0]} is ${FAMILY_NAMES[primary]}, which this proxy cannot handle on this node`,
      `enable ${FAMILY_NAMES[primary]} in the kernel, or configure an address of the other family as the node's first`,
    );
  }
  const own = (family: IPFamily) => addresses.find((address) => addressFamily(address) === family) ?? null;
  const warnings: string[] = [];
  const used = FAMILIES.filter((family) => own(family) !== null);
  const view: NodeView = {
    name: object.metadata?.name ?? '',
    zone: object.metadata?.labels?.[ZONE_LABEL] ?? null,
    ipv4: own('ipv4'),
    ipv6: own('ipv6'),
    nodePortAddresses: {
      ipv4: nodePortAddresses(settings, 'ipv4', own('ipv4')),
      ipv6: nodePortAddresses(settings, 'ipv6', own('ipv6')),
    },
    localhostNodePorts: settings.localhostNodePorts && mayAnswerLoopback(settings.nodePortAddresses),
    localDetection: localDetection(object, settings, used, warnings),
    masqueradeAll: settings.masqueradeAll,
    serviceCidrs: settings.serviceCidrs,
    ownServiceAddresses: settings.ownServiceAddresses,
    masqueradeBit: settings.masqueradeBit,
    ipvsScheduler: settings.ipvsScheduler,
  };
  warnAboutNodePorts(settings, used, warnings);
  return { view, warnings };
}

/** Internal addresses first, then external ones, as upstream selects a node's addresses. */
function nodeAddresses(object: NodeObject): string[] {
  const all = Array.isArray(object.status?.addresses) ? object.status.addresses : [];
  return ['InternalIP', 'ExternalIP'].flatMap((type) =>
    all.filter((entry) => entry?.type === type).flatMap((entry) => readAddress(entry.address) ?? []),
  );
}

function nodePortAddresses(
  { nodePortAddresses: configured, defaultNodePortAddresses }: NodeSettings,
  family: IPFamily,
  own: string | null,
): NodePortAddresses {
  const entries = configured.length > 0 ? configured : [defaultNodePortAddresses];
  if (entries.includes('all')) return { all: true };
  const cidrs = entries.flatMap((entry) => parseCidr(entry) ?? []).filter((cidr) => cidr.family === family);
  // Networks of one family do not restrict the other family, where every address answers.
  if (cidrs.length === 0 && !entries.some((entry) => KEYWORDS.includes(entry))) return { all: true };
  const host = entries.includes('primary') && own !== null ? hostCidr(own) : null;
  return { all: false, cidrs: host ? [...cidrs, host] : cidrs };
}

function mayAnswerLoopback(entries: readonly string[]): boolean {
  if (entries.length === 0 || entries.includes('all') || entries.includes('localhost')) return true;
  return entries.some((entry) => {
    const cidr = parseCidr(entry);
    return cidr !== null && (cidrContains(cidr, '127.0.0.1') || cidrContains(cidr, '::1'));
  });
}

function localDetection(
  object: NodeObject,
  settings: NodeSettings,
  used: readonly IPFamily[],
  warnings: string[],
): LocalDetection {
  const mode = settings.detectLocalMode;
  if (mode === 'BridgeInterface') {
    if (settings.bridgeInterface === '') warnings.push(missing('detectLocal.bridgeInterface', mode));
    return { mode, interface: settings.bridgeInterface };
  }
  if (mode === 'InterfaceNamePrefix') {
    if (settings.interfaceNamePrefix === '') warnings.push(missing('detectLocal.interfaceNamePrefix', mode));
    return { mode, prefix: settings.interfaceNamePrefix };
  }
  const field = mode === 'ClusterCIDR' ? 'clusterCIDR' : 'the Node object, spec.podCIDRs';
  const cidrs = mode === 'ClusterCIDR' ? settings.clusterCidrs : podCidrs(object);
  const first = (family: IPFamily) => cidrs.find((cidr) => cidr.family === family) ?? null;
  if (cidrs.length > 0 && used.length > 0 && !used.some((family) => first(family) !== null)) {
    const families = used.map((family) => FAMILY_NAMES[family]).join(' and ');
    throw badConfig(
      `${field}: ${cidrs.map((cidr) => cidr.text).join(', ')} is of another family than the node, which has ${families}`,
      `add a network of ${families}, or use another detectLocalMode`,
    );
  }
  for (const family of used) {
    if (first(family)) continue;
    warnings.push(
      `${field} has no ${FAMILY_NAMES[family]} network: ${FAMILY_NAMES[family]} traffic from pods cannot be distinguished from outside traffic, so ` +
        'clients outside are not masqueraded to cluster IPs and externalTrafficPolicy applies to pods too',
    );
  }
  return { mode, ipv4: first('ipv4'), ipv6: first('ipv6') };
}

function podCidrs({ spec }: NodeObject): readonly Cidr[] {
  const texts = Array.isArray(spec?.podCIDRs) ? spec.podCIDRs : [spec?.podCIDR];
  return texts.flatMap((text) => (typeof text === 'string' ? (parseCidr(text) ?? []) : []));
}

function warnAboutNodePorts(settings: NodeSettings, used: readonly IPFamily[], warnings: string[]): void {
  const entries = settings.nodePortAddresses;
  if (entries.length === 0) {
    if (settings.defaultNodePortAddresses === 'all') {
      warnings.push('nodePortAddresses is not set: node ports answer on every address; consider "primary"');
    }
    return;
  }
  if (entries.some((entry) => KEYWORDS.includes(entry))) return;
  for (const family of used) {
    if (entries.some((entry) => parseCidr(entry)?.family === family)) continue;
    warnings.push(
      `nodePortAddresses has no ${FAMILY_NAMES[family]} network: node ports answer on every ${FAMILY_NAMES[family]} address`,
    );
  }
}

function missing(field: string, mode: string): string {
  return `${field} is empty: detectLocalMode ${mode} requires it to recognize pods`;
}

function badConfig(message: string, hint: string): FairleadError {
  return new FairleadError(message, { op: 'read configuration', code: 'bad-config', hint });
}
