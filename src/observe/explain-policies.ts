import { allows, type EndVerdict, isolating, matchesPort, type PolicyPacket } from '../policy/allows.ts';
import {
  type LearnedAddress,
  type PolicyMap,
  type PolicyRule,
  policyText,
  type Tier,
} from '../policy/model.ts';
import type { Packet, ServiceMap } from '../service/model.ts';
import type { ExplainView, Origin } from './explain-view.ts';
import type { Cause, ExplainStep } from './explanation.ts';
import { smallestChange } from './policy-fix.ts';

/** A possible destination of a packet. */
export interface PolicyEnd {
  readonly address: string;
  readonly port: number;
  /** Its node; null if unknown. */
  readonly node: string | null;
  /** The source that the destination's node sees, an address of the sending node; null: that of the packet. */
  readonly seenFrom: string | null;
}

export interface PolicyExplanation {
  readonly steps: readonly ExplainStep[];
  /** One for each destination. */
  readonly verdicts: readonly ('allowed' | 'denied')[];
  /** The reason of the denial for each possible destination. */
  readonly causes: readonly Cause[];
}

/** Returns the verdict of network policies on a packet, for each possible destination. */
export function explainPolicies(
  view: ExplainView,
  origin: Origin,
  map: ServiceMap,
  packet: Packet,
  ends: readonly PolicyEnd[],
): PolicyExplanation {
  const policies = view.policies?.() ?? null;
  const node = map.node.name;
  if (!policies) return { steps: [], causes: [], verdicts: ends.map(() => 'allowed') };
  const steps = new Map<string, ExplainStep>();
  const causes = new Map<string, Cause>();
  const verdicts = ends.map((end) => {
    const sent: PolicyPacket = {
      source: packet.source,
      destination: end.address,
      protocol: packet.protocol,
      port: end.port,
      ...(origin.kind === 'node' && origin.node !== null ? { fromNode: origin.node } : {}),
    };
    // On the node itself, policies come before the source is rewritten.
    const seen = end.seenFrom !== null && end.node !== node ? { ...sent, seenFrom: end.seenFrom } : sent;
    const verdict = allows(policies, seen);
    for (const one of [verdict.egress, verdict.ingress]) {
      const step = stepOf(one, seen);
      if (step) steps.set(step.text, step);
      const cause = one.isAllowed ? null : causeOf(policies, one, seen);
      if (cause) causes.set(cause.text, cause);
      // Ingress is checked only if egress is allowed.
      if (!one.isAllowed) break;
    }
    return verdict.isAllowed ? 'allowed' : 'denied';
  });
  return { steps: [...steps.values()], verdicts, causes: [...causes.values()] };
}

function stepOf({ direction, pod, isAllowed, reason }: EndVerdict, packet: PolicyPacket): ExplainStep | null {
  const object = `Pod ${pod}`;
  const subject = 'policy';
  const what = direction === 'egress' ? `egress from ${pod}` : `ingress to ${pod}`;
  switch (reason.kind) {
    case 'no-pod':
    case 'not-isolated':
      return null;
    case 'itself':
      return {
        subject,
        object,
        ruleOrKey: null,
        text: `network policies do not apply: ${pod} always reaches itself`,
      };
    case 'own-node':
      return {
        subject,
        object,
        ruleOrKey: null,
        text: `network policies do not apply: its own node always reaches ${pod}`,
      };
    case 'rule': {
      const peer = reason.peer === null ? '' : `.${direction === 'egress' ? 'to' : 'from'}[${reason.peer}]`;
      const policy = policyText(reason.policy);
      const { learned, field } = reason;
      const name = learned ? `: ${learnedText(learned, packet.destination)}` : '';
      return {
        subject,
        object: policy,
        ruleOrKey: field ?? `spec.${direction}[${reason.rule}]${peer}`,
        text: `${policy}${tierText(reason.tier)} ${isAllowed ? 'allows' : 'denies'} ${what} on port ${packet.port}/${packet.protocol}${name}`,
      };
    }
    case 'no-rule':
      return {
        subject,
        object: `NetworkPolicy ${reason.policies[0]}`,
        ruleOrKey: `spec.${direction}`,
        text: `${isAllowed ? '' : 'denied: '}no rule of NetworkPolicy ${reason.policies.join(', ')} allows ${what} on port ${packet.port}/${packet.protocol}`,
      };
  }
}

/** Returns "the cluster's DNS gave the pod 198.51.100.7 for api.example.com, and it may connect until 12:30:05". */
function learnedText({ name, until }: LearnedAddress, address: string): string {
  const time = new Date(until).toTimeString().slice(0, 8);
  const which = name === '' ? 'a name (before the agent was started)' : name;
  return `the cluster's DNS gave the pod ${address} for ${which}, and it may connect until ${time}`;
}

/**
 * Returns the names that rules of policies would allow on the packet's port, if the pod got its address for one of them; empty:
 * there are none, or names do not allow such an address.
 */
function namesFor(policies: PolicyMap, packet: PolicyPacket): readonly string[] {
  const pod = policies.podAt(packet.source);
  if (!pod || policies.podAt(packet.destination) || policies.nodeAt(packet.destination)) return [];
  const isForPort = ({ ports }: PolicyRule) => ports?.some((port) => matchesPort(port, packet, null)) ?? true;
  const rules = isolating(policies, pod, 'egress').flatMap(({ egress }) => egress ?? []);
  const patterns = rules
    .filter(isForPort)
    .flatMap(({ peers }) =>
      (peers ?? []).flatMap((peer) => (peer.kind === 'names' ? peer.group.patterns : [])),
    );
  return [...new Set(patterns)];
}

const MAX_NAMES = 3;

/** Adds to the cause why an address is denied that the pod may reach names. */
function namesCause(policies: PolicyMap, packet: PolicyPacket, denied: Cause): Cause {
  const names = namesFor(policies, packet);
  if (names.length === 0) return denied;
  const shown = `${names.slice(0, MAX_NAMES).join(', ')}${names.length > MAX_NAMES ? ', …' : ''}`;
  const fix = `let the pod ask its node's name server for a name that its policies allow (${shown}), and connect to the answer before its time ends; to allow the address itself, ${denied.fix}`;
  return {
    ...denied,
    text: `${denied.text}; its policies allow names, but the name was not asked for through the cluster's DNS, or its time has ended`,
    fix,
  };
}

const tierText = (tier: Tier): string => (tier === 'NetworkPolicy' ? '' : ` (tier ${tier})`);

function causeOf(policies: PolicyMap, end: EndVerdict, packet: PolicyPacket): Cause {
  const cause = denialOf(policies, end, packet);
  return end.direction === 'egress' ? namesCause(policies, packet, cause) : cause;
}

function denialOf(policies: PolicyMap, { direction, pod, reason }: EndVerdict, packet: PolicyPacket): Cause {
  const other = direction === 'egress' ? packet.destination : (packet.seenFrom ?? packet.source);
  const field = direction === 'egress' ? 'to' : 'from';
  const port = `port ${packet.port}/${packet.protocol}`;
  const peer = peerText(policies, other);
  if (reason.kind === 'rule') {
    const policy = policyText(reason.policy);
    const rule = `spec.${direction}[${reason.rule}]`;
    return {
      text: `${policy}${tierText(reason.tier)} denies ${direction} ${direction === 'egress' ? 'from' : 'to'} pod ${pod} ${field} ${other} ${port} by its rule ${rule}`,
      object: policy,
      field: rule,
      fix:
        reason.tier === 'Baseline'
          ? `create a NetworkPolicy that selects the pod, with a rule ${field} ${peer}, ${port}`
          : `add a rule with the action Accept or Pass before it: ${field} ${peer}, ${port}`,
    };
  }
  const names = reason.kind === 'no-rule' ? reason.policies : [];
  const isolating = names.flatMap((name) =>
    policies.policiesIn(name.split('/')[0] ?? '').filter(({ key }) => key === name),
  );
  return {
    text: `NetworkPolicy ${names.join(', ')} isolates pod ${pod} for ${direction}, and no rule allows ${field} ${other} ${port}`,
    object: `NetworkPolicy ${names.join(', ')}`,
    field: `spec.${direction}`,
    fix: smallestChange(policies, isolating, { direction, packet, other }),
  };
}

/** Returns a peer that selects an address: by labels if it is a pod's address, else as an ipBlock. */
function peerText(policies: PolicyMap, address: string): string {
  const pod = policies.podAt(address);
  if (!pod) return `ipBlock ${address}/${address.includes(':') ? 128 : 32}`;
  const labels = Object.entries(pod.labels).map(([key, value]) => `${key}: ${value}`);
  // An empty selector would admit all pods of the namespace.
  const which =
    labels.length > 0
      ? `podSelector {${labels.join(', ')}}`
      : `a podSelector with a label that ${pod.key} gets`;
  return `namespaceSelector {kubernetes.io/metadata.name: ${pod.namespace}}, ${which}`;
}
