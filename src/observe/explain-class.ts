import { classify } from '../service/classify.ts';
import type { LocalDetection, Packet, ServiceMap } from '../service/model.ts';
import { isLoopback, podNetworkNode } from './explain-arrival.ts';
import { serviceAt } from './explain-causes.ts';
import { hostAt, nodeAt } from './explain-places.ts';
import type { ExplainView, Origin } from './explain-view.ts';
import type { ExplainStep } from './explanation.ts';

/** Returns how a node's Service rules classify packets of an origin. */
export function classOf(map: ServiceMap, origin: Origin, source: string): Packet['sourceClass'] {
  // To another node, it is a client like any other.
  const isNodeAddress = origin.kind === 'node' && origin.node === map.node.name;
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

/** Returns the node that has an address itself: one that its object lists, or that of its bridge; null if none has. */
export function ownerOf(view: ExplainView, address: string): string | null {
  const listed = nodeAt(view, address)?.metadata?.name;
  if (listed !== undefined) return listed;
  const node = podNetworkNode(view, address);
  return node !== null && view.podAt(address) === null && isLocal(view, node, address) ? node : null;
}

/** Reports whether an address is one of a node's own. */
export function isNodeAddress(view: ExplainView, node: string, address: string): boolean {
  if (isLoopback(address)) return true;
  const owner = ownerOf(view, address);
  if (owner !== null) return owner === node;
  // In IPVS mode, addresses of Services are local too.
  if (view.podAt(address) ?? serviceAt(view, address) ?? hostAt(view, address)) return false;
  return isLocal(view, node, address);
}

const isLocal = (view: ExplainView, node: string, address: string): boolean =>
  view.facts.route({ kind: 'node', node }, address)?.type === 'local';

/** Describes the class of a packet that enters a node's Service rules. */
export function classStep(
  origin: Origin,
  packet: Packet,
  node: string,
  detection: LocalDetection,
): ExplainStep {
  const means = {
    pod: 'treated as traffic of a pod of this cluster',
    node: "treated as the node's own traffic",
    external: 'treated as traffic from outside the cluster',
  }[packet.sourceClass];
  return {
    subject: 'entry',
    object: `Node ${node}`,
    ruleOrKey: `detectLocalMode ${detection.mode}`,
    text: `${packet.source} (${origin.label}) enters the Service rules of ${node}; ${means}`,
  };
}
