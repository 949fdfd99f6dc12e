import { cidrContains, familyOf, type IPFamily } from '../lib/address.ts';
import type { NodeView, SourceClass } from './model.ts';

/** Properties of a packet from which its source is classified. */
export interface SourceFacts {
  readonly source: string;
  /** The interface it arrived on; absent for packets of this node's processes. */
  readonly inInterface?: string;
  /** The source is an address of this node. */
  readonly isNodeAddress: boolean;
}

/**
 * Returns the class of a packet's source. Detection comes first, the node's addresses second, as in
 * upstream's rules: a node address inside the detected network (a bridge's, for example) counts as a pod's.
 */
export function classify(node: NodeView, facts: SourceFacts): SourceClass {
  return isDetected(node, facts) ? 'pod' : facts.isNodeAddress ? 'node' : 'external';
}

/** Returns true if this node can distinguish the cluster's pods from clients outside in this family. */
export function hasLocalDetection(node: NodeView, family: IPFamily): boolean {
  const detection = node.localDetection;
  switch (detection.mode) {
    case 'ClusterCIDR':
    case 'NodeCIDR':
      return detection[family] !== null;
    case 'BridgeInterface':
      return detection.interface !== '';
    case 'InterfaceNamePrefix':
      return detection.prefix !== '';
  }
}

function isDetected(node: NodeView, facts: SourceFacts): boolean {
  const detection = node.localDetection;
  const { inInterface } = facts;
  switch (detection.mode) {
    case 'ClusterCIDR':
    case 'NodeCIDR': {
      const family = familyOf(facts.source);
      const cidr = family && detection[family];
      return cidr !== null && cidrContains(cidr, facts.source);
    }
    case 'BridgeInterface':
      return detection.interface !== '' && inInterface === detection.interface;
    case 'InterfaceNamePrefix':
      return detection.prefix !== '' && inInterface?.startsWith(detection.prefix) === true;
  }
}
