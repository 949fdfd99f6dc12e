import { allows, type EndVerdict, type PolicyPacket } from '../policy/allows.ts';
import { type PolicyMap, policyText, type Tier } from '../policy/model.ts';
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
      return {
        subject,
        object: policy,
        ruleOrKey: `spec.${direction}[${reason.rule}]${peer}`,
        text: `${policy}${tierText(reason.tier)} ${isAllowed ? 'allows' : 'denies'} ${what} on port ${packet.port}/${packet.protocol}`,
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

const tierText = (tier: Tier): string => (tier === 'NetworkPolicy' ? '' : ` (tier ${tier})`);

function causeOf(policies: PolicyMap, { direction, pod, reason }: EndVerdict, packet: PolicyPacket): Cause {
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
