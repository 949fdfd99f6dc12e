import { allows, type EndVerdict, inGroup, isolating, type PolicyPacket } from './allows.ts';
import type { PolicyAction, PolicyMap, PolicyPeer, PolicyPod, Protocol } from './model.ts';

/** A peer of a rule that decides about packets to a port of a pod. */
export interface Admission {
  /** The policy's key: "namespace/name", or "ClusterNetworkPolicy/name". */
  readonly policy: string;
  /** Rules are listed in the order of evaluation; those of NetworkPolicies accept. */
  readonly action: PolicyAction;
  /** "spec.ingress[0].from[1]"; without a peer: the rule allows any address. */
  readonly field: string;
  /** "pods with app=a in namespace x", "10.0.0.0/8 except 10.1.0.0/16", "any address". */
  readonly peer: string;
  /** The pods that it selects now; null: it is not a selector. */
  readonly pods: readonly string[] | null;
}

/** The clients that may open a connection to a port of a pod. */
export interface Reach {
  readonly pod: string;
  readonly port: number;
  readonly protocol: Protocol;
  /** The policies that apply to the pod for ingress; none: any address is allowed. */
  readonly isolatedBy: readonly string[];
  readonly admissions: readonly Admission[];
  /** Pods that are currently allowed, without the pod itself. */
  readonly allowed: readonly string[];
  /** Pods that this pod allows, but whose own policies for egress deny the connection, with these policies. */
  readonly deniedBySender: readonly { readonly pod: string; readonly policies: readonly string[] }[];
}

/** Lists the clients that may reach a port of a pod, by selector and by pod; `pods`: all pods of the cluster. */
export function whoCan(
  map: PolicyMap,
  pods: readonly PolicyPod[],
  to: { readonly pod: PolicyPod; readonly port: number; readonly protocol: Protocol },
): Reach {
  const { pod, port, protocol } = to;
  const policies = isolating(map, pod, 'ingress');
  const admissions = policies.flatMap((policy) =>
    (policy.ingress ?? []).flatMap((rule, index): Admission[] => {
      const field = `spec.ingress[${index}]`;
      const isForPort = rule.ports?.some((one) =>
        one.kind === 'range'
          ? one.protocol === protocol && one.first <= port && port <= one.last
          : pod.ports.some(
              (named) => named.name === one.name && named.protocol === protocol && named.port === port,
            ) && one.protocol === protocol,
      );
      if (isForPort === false) return [];
      const { action } = rule;
      if (!rule.peers) return [{ policy: policy.key, action, field, peer: 'any address', pods: null }];
      return rule.peers.map((peer, i) => ({
        policy: policy.key,
        action,
        field: `${field}.from[${i}]`,
        peer: peerText(peer),
        pods: peer.kind === 'pods' ? membersOf(map, pods, peer) : null,
      }));
    }),
  );
  const verdicts = pods
    .filter(({ key }) => key !== pod.key)
    .flatMap((sender) => {
      const packet = packetBetween(sender, pod, port, protocol);
      return packet ? [{ sender: sender.key, ...allows(map, packet) }] : [];
    });
  return {
    pod: pod.key,
    port,
    protocol,
    isolatedBy: policies.map(({ key }) => key),
    admissions,
    allowed: verdicts.filter(({ isAllowed }) => isAllowed).map(({ sender }) => sender),
    deniedBySender: verdicts
      .filter(({ egress, ingress }) => ingress.isAllowed && !egress.isAllowed)
      .map(({ sender, egress }) => ({ pod: sender, policies: policiesOf(egress) })),
  };
}

const policiesOf = ({ reason }: EndVerdict): readonly string[] =>
  reason.kind === 'no-rule' ? reason.policies : reason.kind === 'rule' ? [reason.policy] : [];

const membersOf = (
  map: PolicyMap,
  pods: readonly PolicyPod[],
  { group }: Extract<PolicyPeer, { kind: 'pods' }>,
): string[] =>
  pods
    .filter((one) => inGroup(group, one, map.namespaceLabels(one.namespace)))
    .map(({ key }) => key)
    .sort();

/** Uses addresses of a family that both have; null: there is none. */
function packetBetween(
  from: PolicyPod,
  to: PolicyPod,
  port: number,
  protocol: Protocol,
): PolicyPacket | null {
  for (const destination of to.addresses) {
    const source = from.addresses.find((one) => one.includes(':') === destination.includes(':'));
    if (source !== undefined) return { source, destination, port, protocol };
  }
  return null;
}

function peerText(peer: PolicyPeer): string {
  if (peer.kind === 'block') return peer.block.text;
  if (peer.kind === 'names') return peer.group.patterns.join(', ');
  const { pods, namespaces } = peer.group;
  const selected = selectorText(pods);
  if (namespaces === '') return selected === '' ? 'all nodes' : `nodes with ${selected}`;
  const what = selected === '' ? 'all pods' : `pods with ${selected}`;
  if (typeof namespaces === 'string') return `${what} in namespace ${namespaces}`;
  const spaces = selectorText(namespaces);
  return `${what} in ${spaces === '' ? 'all namespaces' : `namespaces with ${spaces}`}`;
}

/** Returns "app=a, tier in (x, y), !old"; '': it selects all pods. */
function selectorText(selector: {
  readonly matchLabels?: Readonly<Record<string, string>>;
  readonly matchExpressions?: readonly {
    readonly key: string;
    readonly operator: string;
    readonly values?: readonly string[];
  }[];
}): string {
  const labels = Object.entries(selector.matchLabels ?? {}).map(([key, value]) => `${key}=${value}`);
  const expressions = (selector.matchExpressions ?? []).map(({ key, operator, values = [] }) => {
    if (operator === 'Exists') return key;
    if (operator === 'DoesNotExist') return `!${key}`;
    return `${key} ${operator === 'In' ? 'in' : 'not in'} (${values.join(', ')})`;
  });
  return [...labels, ...expressions].join(', ');
}
