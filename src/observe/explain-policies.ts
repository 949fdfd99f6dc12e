import { modeDiffers } from '../dataplane/mode-differences.ts';
import { allows, type EndVerdict, type PolicyPacket } from '../policy/allows.ts';
import type { PolicyMap } from '../policy/model.ts';
import type { Verdict } from '../service/decide.ts';
import type { Packet, ServiceMap } from '../service/model.ts';
import type { Cause, ExplainStep, ExplainView, Origin } from './explain-view.ts';

export interface PolicyExplanation {
  readonly steps: readonly ExplainStep[];
  /** The policies deny the packet for all possible endpoints. */
  readonly isDenied: boolean;
  /** The reason of the denial for each possible endpoint. */
  readonly causes: readonly Cause[];
}

/** Returns the verdict of network policies on a packet, for each possible endpoint. */
export function explainPolicies(
  view: ExplainView,
  origin: Origin,
  map: ServiceMap,
  packet: Packet,
  { action, candidates }: Verdict,
): PolicyExplanation {
  const policies = view.policies?.() ?? null;
  const nothing = { steps: [], isDenied: false, causes: [] };
  if (!policies || (action !== 'forward' && action !== 'pass')) return nothing;
  const sent: PolicyPacket = {
    source: packet.source,
    destination: packet.destination,
    protocol: packet.protocol,
    port: packet.port,
    ...(origin.kind === 'node' && origin.node !== null ? { fromNode: origin.node } : {}),
  };
  const packets =
    action === 'pass'
      ? [sent]
      : candidates.map(({ endpoint, masquerade }): PolicyPacket => {
          const reached = { ...sent, destination: endpoint.ip, port: endpoint.port };
          // A proxy asks the policies about its client, whatever address the endpoint sees.
          if (!masquerade || isProxied(view, map.node.name) || endpoint.nodeName === map.node.name)
            return reached;
          const address = map.node[endpoint.ip.includes(':') ? 'ipv6' : 'ipv4'];
          return { ...reached, seenFrom: address ?? packet.source };
        });
  const verdicts = packets.map((one) => ({ packet: one, verdict: allows(policies, one) }));
  const isDenied = verdicts.length > 0 && verdicts.every(({ verdict }) => !verdict.isAllowed);
  const steps = new Map<string, ExplainStep>();
  const causes = new Map<string, Cause>();
  for (const { packet: one, verdict } of verdicts) {
    for (const end of [verdict.egress, verdict.ingress]) {
      const step = stepOf(end, one);
      if (step) steps.set(step.text, step);
      const cause = end.isAllowed ? null : causeOf(policies, end, one);
      if (cause) causes.set(cause.text, cause);
      // Ingress is evaluated only if egress is allowed.
      if (!end.isAllowed) break;
    }
  }
  return { steps: [...steps.values()], isDenied, causes: [...causes.values()] };
}

function isProxied(view: ExplainView, node: string): boolean {
  const mode = view.mode(node);
  return mode !== null && modeDiffers(mode, 'server-sees-node');
}

function stepOf({ direction, pod, isAllowed, reason }: EndVerdict, packet: PolicyPacket): ExplainStep | null {
  const object = `Pod ${pod}`;
  const what = direction === 'egress' ? `egress from ${pod}` : `ingress to ${pod}`;
  switch (reason.kind) {
    case 'no-pod':
    case 'not-isolated':
      return null;
    case 'itself':
      return { object, ruleOrKey: null, text: `network policies do not apply: ${pod} always reaches itself` };
    case 'own-node':
      return {
        object,
        ruleOrKey: null,
        text: `network policies do not apply: its own node always reaches ${pod}`,
      };
    case 'rule': {
      const peer = reason.peer === null ? '' : `.${direction === 'egress' ? 'to' : 'from'}[${reason.peer}]`;
      return {
        object: `NetworkPolicy ${reason.policy}`,
        ruleOrKey: `spec.${direction}[${reason.rule}]${peer}`,
        text: `NetworkPolicy ${reason.policy} allows ${what} on port ${packet.port}/${packet.protocol}`,
      };
    }
    case 'no-rule':
      return {
        object: `NetworkPolicy ${reason.policies[0]}`,
        ruleOrKey: `spec.${direction}`,
        text: `${isAllowed ? '' : 'denied: '}no rule of NetworkPolicy ${reason.policies.join(', ')} allows ${what} on port ${packet.port}/${packet.protocol}`,
      };
  }
}

function causeOf(policies: PolicyMap, { direction, pod, reason }: EndVerdict, packet: PolicyPacket): Cause {
  const names = reason.kind === 'no-rule' ? reason.policies : [];
  const other = direction === 'egress' ? packet.destination : (packet.seenFrom ?? packet.source);
  const field = direction === 'egress' ? 'to' : 'from';
  return {
    text: `pod ${pod} is isolated for ${direction}, and no rule allows ${direction === 'egress' ? 'to' : 'from'} ${other} port ${packet.port}/${packet.protocol}`,
    object: `NetworkPolicy ${names.join(', ')}`,
    field: `spec.${direction}`,
    fix: `add a rule to one of them: ${field} ${peerText(policies, other)}, port ${packet.port}/${packet.protocol}`,
  };
}

/** Returns a peer that selects an address: by labels if it is a pod's address, else as an ipBlock. */
function peerText(policies: PolicyMap, address: string): string {
  const pod = policies.podAt(address);
  if (!pod) return `ipBlock ${address}/${address.includes(':') ? 128 : 32}`;
  const labels = Object.entries(pod.labels).map(([key, value]) => `${key}: ${value}`);
  return `namespaceSelector {kubernetes.io/metadata.name: ${pod.namespace}}, podSelector {${labels.join(', ')}}`;
}
