import { readNamePattern } from '../kube/egress-names.ts';
import type { KubeObject, LabelSelector } from '../kube/types.ts';
import { readAddressBlock } from './address-block.ts';
import { hashOf } from './json-hash.ts';
import type {
  PodGroup,
  Policy,
  PolicyAction,
  PolicyPeer,
  PolicyPort,
  PolicyRule,
  Protocol,
} from './model.ts';
import { nameGroup } from './name-group.ts';
import { podGroup } from './policy-reader.ts';

/**
 * The kinds of policies of the whole cluster, in policy.networking.k8s.io, and the versions of each that are read: of those that
 * are served, the first. The fields of v1beta1 and v1alpha2 are the same.
 */
export const CLUSTER_POLICY_KINDS = {
  ClusterNetworkPolicy: { plural: 'clusternetworkpolicies', versions: ['v1beta1', 'v1alpha2'] },
  AdminNetworkPolicy: { plural: 'adminnetworkpolicies', versions: ['v1alpha1'] },
  BaselineAdminNetworkPolicy: { plural: 'baselineadminnetworkpolicies', versions: ['v1alpha1'] },
} as const;
export type ClusterPolicyKind = keyof typeof CLUSTER_POLICY_KINDS;

interface NamespacedPods {
  namespaceSelector?: LabelSelector;
  podSelector?: LabelSelector;
}
interface Subject {
  namespaces?: LabelSelector;
  pods?: NamespacedPods;
}
interface ApiPeer extends Subject {
  nodes?: LabelSelector;
  networks?: string[];
  domainNames?: string[];
}
interface ProtocolPorts {
  destinationPort?: { number?: number; range?: { start?: number; end?: number } };
}
/** Ports of v1alpha1 are below `ports`, those of later versions below `protocols`. */
interface ApiPort {
  portNumber?: { protocol?: string; port?: number };
  portRange?: { protocol?: string; start?: number; end?: number };
  namedPort?: string;
  tcp?: ProtocolPorts;
  udp?: ProtocolPorts;
  sctp?: ProtocolPorts;
  destinationNamedPort?: string;
}
interface ApiRule {
  action?: string;
  from?: ApiPeer[];
  to?: ApiPeer[];
  ports?: ApiPort[];
  protocols?: ApiPort[];
}
/** A condition of meta/v1. */
export interface ClusterPolicyCondition {
  type: string;
  status: string;
  reason: string;
  message: string;
  observedGeneration?: number;
  lastTransitionTime: string;
}
export interface ClusterPolicyObject extends KubeObject {
  spec?: {
    tier?: string;
    priority?: number;
    subject?: Subject;
    ingress?: ApiRule[];
    egress?: ApiRule[];
  };
  status?: { conditions?: ClusterPolicyCondition[] };
}

export interface ReadClusterPolicy {
  readonly policy: Policy;
  /** The fields that are not supported, such as "spec.egress[0].to[1].domainNames". */
  readonly unsupported: readonly string[];
}

const MAX_PORT = 65535;
const PROTOCOLS: readonly Protocol[] = ['TCP', 'UDP', 'SCTP'];
const NO_PODS: PodGroup = podGroup({ matchExpressions: [{ key: 'a', operator: 'In', values: [] }] }, {});

export const clusterPolicyKey = (kind: ClusterPolicyKind, name: string): string => `${kind}/${name}`;

/** Splits a key that `clusterPolicyKey` made. */
export function splitClusterPolicyKey(key: string): { kind: ClusterPolicyKind; name: string } {
  const slash = key.indexOf('/');
  return { kind: key.slice(0, slash) as ClusterPolicyKind, name: key.slice(slash + 1) };
}

/**
 * Reads a policy of the whole cluster. A rule with a peer or port that is not understood fails closed: an accepting rule
 * matches less, and any other rule denies everything (ClusterNetworkPolicyIngressPeer in policy.networking.k8s.io).
 */
export function readClusterPolicy(kind: ClusterPolicyKind, object: ClusterPolicyObject): ReadClusterPolicy {
  const { metadata, spec = {} } = object;
  const { name = '' } = metadata ?? {};
  const unsupported: string[] = [];
  const rules = (list: readonly ApiRule[] | undefined, direction: 'ingress' | 'egress') =>
    list && list.length > 0
      ? list.map((rule, index) => readRule(rule, `spec.${direction}[${index}]`, unsupported))
      : null;
  const subject = readGroup(spec.subject ?? {});
  if (!subject) unsupported.push('spec.subject');
  const isBaseline =
    kind === 'BaselineAdminNetworkPolicy' || (kind === 'ClusterNetworkPolicy' && spec.tier === 'Baseline');
  const content = {
    kind,
    tier: isBaseline ? 'Baseline' : 'Admin',
    priority: spec.priority ?? 0,
    subject: subject ?? NO_PODS,
    ingress: rules(spec.ingress, 'ingress'),
    egress: rules(spec.egress, 'egress'),
  } as const;
  const key = clusterPolicyKey(kind, name);
  return {
    policy: { key, namespace: '', name, ...content, hash: hashOf([key, spec]) },
    unsupported,
  };
}

function readGroup({ namespaces, pods }: Subject): PodGroup | null {
  if (namespaces) return podGroup({}, namespaces);
  if (pods) return podGroup(pods.podSelector ?? {}, pods.namespaceSelector ?? {});
  return null;
}

function readRule(rule: ApiRule, field: string, unsupported: string[]): PolicyRule {
  const missed: string[] = [];
  const action = actionOf(rule.action);
  const peersField = rule.to ? 'to' : 'from';
  const peers = (rule.to ?? rule.from ?? []).flatMap((peer, index): PolicyPeer[] => {
    const read = readPeer(peer, peersField === 'to' && action === 'Accept');
    if (read) return read;
    missed.push(`${field}.${peersField}[${index}].${Object.keys(peer)[0] ?? ''}`.replace(/\.$/, ''));
    return [];
  });
  const portsField = rule.protocols ? 'protocols' : 'ports';
  const listed = rule.protocols ?? rule.ports;
  const ports = listed?.flatMap((port, index): PolicyPort[] => {
    const read = readPort(port);
    if (read) return read;
    missed.push(`${field}.${portsField}[${index}]`);
    return [];
  });
  if (!action) missed.push(`${field}.action`);
  unsupported.push(...missed);
  if (missed.length > 0 && action !== 'Accept') return { action: 'Deny', peers: null, ports: null };
  return { action: action ?? 'Deny', peers, ports: ports && ports.length + missed.length > 0 ? ports : null };
}

function actionOf(text: string | undefined): PolicyAction | null {
  // The name in v1alpha1.
  if (text === 'Allow') return 'Accept';
  return text === 'Accept' || text === 'Deny' || text === 'Pass' ? text : null;
}

/** `mayName`: names are supported only by rules for egress that accept (NPEP-133). */
function readPeer(peer: ApiPeer, mayName: boolean): PolicyPeer[] | null {
  const group = readGroup(peer);
  if (group) return [{ kind: 'pods', group }];
  if (peer.nodes) return [{ kind: 'pods', group: podGroup(peer.nodes, '') }];
  if (peer.domainNames && mayName) {
    const patterns = peer.domainNames.map(readNamePattern);
    return patterns.every((one) => one !== null) ? [{ kind: 'names', group: nameGroup(patterns) }] : null;
  }
  if (!peer.networks) return null;
  const blocks = peer.networks.map((cidr) => readAddressBlock(cidr, []));
  return blocks.every((block) => block !== null) ? blocks.map((block) => ({ kind: 'block', block })) : null;
}

function readPort(port: ApiPort): PolicyPort[] | null {
  const name = port.namedPort ?? port.destinationNamedPort;
  if (name !== undefined) return PROTOCOLS.map((protocol) => ({ kind: 'name', protocol, name }));
  const { portNumber, portRange } = port;
  if (portNumber) return range(portNumber.protocol, portNumber.port, portNumber.port);
  if (portRange) return range(portRange.protocol, portRange.start, portRange.end);
  for (const [protocol, one] of [
    ['TCP', port.tcp],
    ['UDP', port.udp],
    ['SCTP', port.sctp],
  ] as const) {
    if (!one) continue;
    const { destinationPort } = one;
    if (!destinationPort) return range(protocol, 0, MAX_PORT);
    const { number, range: between } = destinationPort;
    return number === undefined
      ? range(protocol, between?.start, between?.end)
      : range(protocol, number, number);
  }
  return null;
}

function range(
  protocol: string | undefined = 'TCP',
  first: number | undefined,
  last: number | undefined,
): PolicyPort[] | null {
  const known = PROTOCOLS.find((one) => one === protocol);
  if (!known || first === undefined || last === undefined || last < first) return null;
  return [{ kind: 'range', protocol: known, first, last }];
}
