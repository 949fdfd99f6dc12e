import { coversNamespace, matchesPeer, matchesPort, type PolicyPacket } from '../policy/allows.ts';
import type { Direction, Policy, PolicyMap, PolicyPod, PolicyRule } from '../policy/model.ts';

/** A packet that no rule of the NetworkPolicies of a pod allows, as that pod's end sees it. */
export interface DeniedPacket {
  readonly direction: Direction;
  readonly packet: PolicyPacket;
  /** The address at the other end, as the policies compare it. */
  readonly other: string;
}

const DNS_PORT = 53;
/** The most labels that a pod is asked to get. */
const MAX_LABELS = 2;
/** Labels of controllers: they select one pod or one version, or are replaced at the next roll-out. */
const OF_CONTROLLERS =
  /^(pod-template-hash|controller-revision-hash|pod-template-generation|controller-uid|job-name|statefulset\.kubernetes\.io\/.*|apps\.kubernetes\.io\/pod-index|batch\.kubernetes\.io\/.*)$/;

/**
 * Returns the smallest change of NetworkPolicies, or of the other pod's labels, that allows a packet: a label that an existing
 * rule admits, a port that is added to a rule, or a rule as YAML.
 */
export function smallestChange(
  map: PolicyMap,
  policies: readonly Policy[],
  { direction, packet, other }: DeniedPacket,
): string {
  const pod = packet.fromNode === undefined || direction === 'egress' ? map.podAt(other) : null;
  const destination = map.podAt(packet.destination);
  const subject = direction === 'egress' ? map.podAt(packet.source) : destination;
  const rules = policies.flatMap((policy) =>
    (policy[direction] ?? []).map((rule, index) => ({
      rule,
      where: `spec.${direction}[${index}] of NetworkPolicy ${policy.key}`,
      hasPort: rule.ports?.some((port) => matchesPort(port, packet, destination)) ?? true,
    })),
  );
  for (const { rule, where, hasPort } of rules) {
    const labels = pod && hasPort ? missingLabels(map, rule, pod) : null;
    if (pod && labels)
      return `give pod ${pod.key} ${labels.length === 1 ? 'the label' : 'the labels'} ${labels.join(' ')}, which ${where} allows: kubectl -n ${pod.namespace} label pod ${pod.key.slice(pod.namespace.length + 1)} ${labels.join(' ')} (and in the template of its workload)`;
  }
  const port = `{protocol: ${packet.protocol}, port: ${packet.port}}`;
  for (const { rule, where, hasPort } of rules) {
    const hasPeer = rule.peers?.some((peer) => matchesPeer(map, peer, pod, other, subject)) ?? true;
    if (hasPeer && !hasPort) return `add a port to ${where}: ${port}`;
  }
  const [policy] = policies;
  const field = direction === 'egress' ? 'to' : 'from';
  const which = policies.length === 1 ? 'it' : 'one of them';
  const { label, peer } = newPeer(pod, other, policy?.namespace ?? '');
  const first = label === null ? '' : `${label}, and `;
  // Resolvers ask over TCP what does not fit into a datagram.
  const isDns = direction === 'egress' && packet.port === DNS_PORT;
  const ports = isDns
    ? ['UDP', 'TCP'].map((protocol) => `{protocol: ${protocol}, port: ${packet.port}}`).join(', ')
    : port;
  return `${first}add to spec.${direction} of ${which}: - {${field}: [${peer}], ports: [${ports}]}`;
}

/** Returns the labels ("key=value") with which a rule would allow a pod; null: none, or too many, or others stand in the way. */
function missingLabels(map: PolicyMap, rule: PolicyRule, pod: PolicyPod): string[] | null {
  for (const peer of rule.peers ?? []) {
    if (peer.kind !== 'pods' || peer.group.namespaces === '') continue;
    const { matchLabels = {}, matchExpressions = [] } = peer.group.pods;
    if (matchExpressions.length > 0) continue;
    if (!coversNamespace(peer.group, pod.namespace, map.namespaceLabels(pod.namespace))) continue;
    const missing = Object.entries(matchLabels).filter(([key, value]) => pod.labels[key] !== value);
    // Another value may select it for a Service, or belong to its workload.
    const isFree = missing.every(([key]) => pod.labels[key] === undefined);
    if (isFree && missing.length > 0 && missing.length <= MAX_LABELS)
      return missing.map(([key, value]) => `${key}=${value}`);
  }
  return null;
}

/** Returns a peer as YAML; `label`: what a pod without labels of its own needs first. */
function newPeer(
  pod: PolicyPod | null,
  address: string,
  namespace: string,
): { readonly label: string | null; readonly peer: string } {
  if (!pod)
    return {
      label: null,
      peer: `{ipBlock: {cidr: ${scalar(`${address}/${address.includes(':') ? 128 : 32}`)}}}`,
    };
  const own = Object.entries(pod.labels).filter(([key]) => !OF_CONTROLLERS.test(key));
  const name = pod.key.slice(pod.namespace.length + 1);
  const labels = own.length > 0 ? own : [['app', name] as const];
  const label =
    own.length > 0 ? null : `label the pod first (kubectl -n ${pod.namespace} label pod ${name} app=${name})`;
  const pods = labels.map(([key, value]) => `${key}: ${scalar(value)}`).join(', ');
  const other =
    pod.namespace === namespace
      ? ''
      : `namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ${scalar(pod.namespace)}}}, `;
  return { label, peer: `{${other}podSelector: {matchLabels: {${pods}}}}` };
}

/** Quotes a value that YAML would not read as text. */
function scalar(value: string): string {
  const isPlain = /^[A-Za-z][\w.-]*$/.test(value) && !/^(true|false|yes|no|on|off|null|y|n)$/i.test(value);
  return isPlain ? value : JSON.stringify(value);
}
