import { differenceText, modeDiffers } from '../dataplane/mode-differences.ts';
import { familyOf } from '../lib/address.ts';
import { classify } from '../service/classify.ts';
import { decide, type Verdict } from '../service/decide.ts';
import type { LocalDetection, Packet, ServiceMap } from '../service/model.ts';
import { findCauses, serviceAt } from './explain-causes.ts';
import { findDestination } from './explain-destination.ts';
import { entryStep, silenceCauses } from './explain-entry.ts';
import { endpointStep, kernelSteps, sourceStep } from './explain-forwarding.ts';
import { findNode, findOrigin, nameOf, nodeAddresses, nodeAt, podAt } from './explain-places.ts';
import { explainPolicies } from './explain-policies.ts';
import { parseTarget } from './explain-target.ts';
import type {
  Cause,
  ExplainedEndpoint,
  ExplainStep,
  ExplainView,
  Explanation,
  Origin,
} from './explain-view.ts';

/**
 * Explains what would happen to a packet that opens a flow: each step with the object and the rule or map key behind it
 * and, if it is not delivered, the reason and the fix. Sends no packets. Throws FairleadError if FROM or TO are invalid
 * ("bad-argument") or name an object that does not exist ("not-found").
 */
export async function explain(view: ExplainView, from: string, to: string): Promise<Explanation> {
  const origin = findOrigin(view, parseTarget(from));
  const destination = await findDestination(view, origin, parseTarget(to));
  const base = { from: origin.label, to };
  const steps: ExplainStep[] = [...destination.steps];
  const unresolved = (reason: string, causes: readonly Cause[]): Explanation => {
    return { ...base, packet: null, steps, endpoints: [], verdict: 'unresolved', reason, causes };
  };
  if (!destination.found) return unresolved('no packet is sent', destination.causes);
  const { address, port, protocol } = destination;
  const source = origin.addresses.find((candidate) => familyOf(candidate) === familyOf(address));
  if (source === undefined) {
    const text = `${origin.label} has no address of the family of ${address}`;
    return unresolved('no packet is sent', [{ text, object: null, field: null, fix: 'use another address' }]);
  }
  const silence = silenceCauses(view, origin, address);
  if (silence.length > 0) {
    const packet = {
      source,
      sourceClass: 'external' as const,
      destination: address,
      port,
      protocol,
      node: null,
    };
    const reason = `no node announces ${address} on the link`;
    return { ...base, packet, steps, endpoints: [], verdict: 'dropped', reason, causes: silence };
  }
  const node = tablesOf(view, origin, address);
  const map = node === null ? null : view.map(node);
  if (node === null || map === null) {
    const reason = `the forwarding table of ${node === null ? 'the node it enters by' : node} is not known`;
    const packet = { source, sourceClass: 'external' as const, destination: address, port, protocol, node };
    return { ...base, packet, steps, endpoints: [], verdict: 'unknown', reason, causes: [] };
  }
  const packet: Packet = {
    source,
    sourceClass: classOf(map, origin, source),
    destination: address,
    destinationIsLocal: isNodeAddress(view, node, address),
    port,
    protocol,
  };
  steps.push(...[entryStep(view, origin, address, node)].filter((step) => step !== null));
  steps.push(classStep(origin, packet, node, map.node.localDetection));
  const mode = view.mode(node);
  const verdict = decide(map, packet);
  steps.push(...kernelSteps(view, node, map, packet, verdict));
  if (verdict.action === 'forward' && packet.protocol === 'SCTP' && mode && modeDiffers(mode, 'no-sctp')) {
    const cause: Cause = {
      text: differenceText('no-sctp'),
      object: `Node ${node}`,
      field: `mode ${mode}`,
      fix: `use another mode on ${node}`,
    };
    const reason = `${mode} mode does not support SCTP`;
    const info = { source, sourceClass: packet.sourceClass, destination: address, port, protocol, node };
    return { ...base, packet: info, steps, endpoints: [], verdict: 'rejected', reason, causes: [cause] };
  }
  const endpoints = verdict.candidates.map((candidate): ExplainedEndpoint => {
    const { endpoint, odds, masquerade, hairpin } = candidate;
    return {
      address: endpoint.ip,
      port: endpoint.port,
      pod: endpoint.target,
      node: endpoint.nodeName,
      odds,
      terminating: endpoint.terminating,
      masquerade,
      hairpin,
      nextHop: nextHop(view, map, endpoint.ip, endpoint.nodeName),
    };
  });
  if (verdict.action === 'forward') {
    steps.push(endpointStep(view, map, packet, verdict), sourceStep(mode, map, packet, verdict));
  }
  const causes = verdict.action === 'forward' ? [] : findCauses(view, map, packet, verdict);
  const policies = explainPolicies(view, origin, map, packet, verdict);
  steps.push(...policies.steps);
  if (policies.isDenied) {
    const info = { source, sourceClass: packet.sourceClass, destination: address, port, protocol, node };
    const reason = 'denied by network policies: dropped without an answer';
    return { ...base, packet: info, steps, endpoints, verdict: 'dropped', reason, causes: policies.causes };
  }
  return {
    ...base,
    packet: { source, sourceClass: packet.sourceClass, destination: address, port, protocol, node },
    steps: verdict.action === 'pass' ? [...steps, passStep(view, map, packet)] : steps,
    endpoints,
    verdict: outcome(view, packet, verdict, causes),
    reason: reasonText(verdict),
    causes,
  };
}

/** Returns the node whose tables the packet passes first. */
function tablesOf(view: ExplainView, origin: Origin, destination: string): string | null {
  if (origin.node !== null) return origin.node;
  const owner = nodeAt(view, destination);
  if (owner) return nameOf(owner);
  const entry = view.entryNode?.(destination) ?? podAt(view, destination)?.spec?.nodeName;
  if (entry) return entry;
  for (const node of view.nodes()) if (view.map(nameOf(node))) return nameOf(node);
  return null;
}

function classOf(map: ServiceMap, origin: Origin, source: string): Packet['sourceClass'] {
  const isNodeAddress = origin.kind === 'node';
  const detection = map.node.localDetection;
  if (origin.kind !== 'pod') return classify(map.node, { source, isNodeAddress });
  // A pod's packets enter by the bridge or by the pod's own interface, as detectLocalMode expects.
  const inInterface =
    detection.mode === 'BridgeInterface'
      ? detection.interface
      : detection.mode === 'InterfaceNamePrefix'
        ? detection.prefix
        : '';
  return classify(map.node, { source, inInterface, isNodeAddress });
}

function isNodeAddress(view: ExplainView, node: string, address: string): boolean {
  const owner = nodeAt(view, address);
  return address.startsWith('127.') || address === '::1' || (owner !== null && nameOf(owner) === node);
}

function classStep(origin: Origin, packet: Packet, node: string, detection: LocalDetection): ExplainStep {
  const means = {
    pod: 'treated as traffic of a pod of this cluster',
    node: "treated as the node's own traffic",
    external: 'treated as traffic from outside the cluster',
  }[packet.sourceClass];
  return {
    object: `Node ${node}`,
    ruleOrKey: `detectLocalMode ${detection.mode}`,
    text: `${packet.source} (${origin.label}) enters the Service rules of ${node}; ${means}`,
  };
}

function passStep(view: ExplainView, map: ServiceMap, { destination }: Packet): ExplainStep {
  const pod = podAt(view, destination);
  if (pod) {
    const text = `${destination} is pod ${nameOf(pod)}: ${nextHop(view, map, destination, pod.spec?.nodeName ?? null)}`;
    return { object: `Pod ${nameOf(pod)}`, ruleOrKey: null, text };
  }
  if (map.node.ownServiceAddresses.includes(destination)) {
    return {
      object: `Node ${map.node.name}`,
      ruleOrKey: null,
      text: `${destination} is an address of this node, which answers itself`,
    };
  }
  const node = nodeAt(view, destination);
  if (node) {
    const text = `${destination} is node ${nameOf(node)}: a process there answers, or the connection is refused`;
    return { object: `Node ${nameOf(node)}`, ruleOrKey: null, text };
  }
  return {
    object: null,
    ruleOrKey: 'routes of the node',
    text: `${destination} is not the address of a pod or a node: the packet is routed out of the cluster`,
  };
}

function nextHop(view: ExplainView, map: ServiceMap, ip: string, nodeName: string | null): string {
  if (nodeName === map.node.name) return `bridge of ${nodeName}`;
  if (nodeName === null) return "by the node's routes";
  const known = [...view.nodes()].some(({ metadata }) => metadata?.name === nodeName);
  const addresses = known ? nodeAddresses(findNode(view, nodeName)) : [];
  const address = addresses.find((candidate) => familyOf(candidate) === familyOf(ip));
  return `route to ${nodeName}${address ? ` (${address})` : ''}`;
}

function outcome(
  view: ExplainView,
  packet: Packet,
  verdict: Verdict,
  causes: readonly Cause[],
): Explanation['verdict'] {
  switch (verdict.action) {
    case 'forward':
      return 'delivered';
    case 'reject':
      return 'rejected';
    case 'drop':
      return 'dropped';
    case 'pass':
      // Routed, although an object was meant: the tables do not tell whether anything answers.
      return causes.length > 0 || serviceAt(view, packet.destination) ? 'unknown' : 'delivered';
  }
}

function reasonText({ reason, action }: Verdict): string {
  switch (reason) {
    case 'forwarded':
      return 'forwarded to an endpoint of the Service';
    case 'no-endpoints':
      return 'the Service has no usable endpoint: refused at once';
    case 'no-local-endpoints':
      return 'the Service has endpoints, but none on this node: dropped without an answer';
    case 'source-range':
      return 'this source is not in loadBalancerSourceRanges: dropped without an answer';
    case 'wrong-port':
      return 'a cluster IP, but not a port of its Service: refused at once';
    case 'unallocated-cluster-ip':
      return 'an address of the Service network without a Service: dropped without an answer';
    case 'own-service-address':
      return 'an address of the node, which answers itself';
    case 'martian':
      return 'a loopback address from another host: dropped without an answer';
    case 'no-service':
      return action === 'pass' ? 'no Service is involved' : reason;
  }
}
