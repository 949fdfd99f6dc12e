import { type Cidr, cidrContains, familyOf, type IPFamily } from '../lib/address.ts';
import type { LocalDetection, NodeView, SourceClass } from './model.ts';

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

/** The common mark of packets of the cluster's pods: their network, or the device on which they arrive. */
export type PodSource = { readonly cidr: Cidr } | { readonly device: string; readonly isPrefix: boolean };

/** Returns how pods of this family are recognized; null if this node cannot distinguish them from clients outside. */
export function podSource(detection: LocalDetection, family: IPFamily): PodSource | null {
  switch (detection.mode) {
    case 'ClusterCIDR':
    case 'NodeCIDR':
      return detection[family] && { cidr: detection[family] };
    case 'BridgeInterface':
      return detection.interface === '' ? null : { device: detection.interface, isPrefix: false };
    case 'InterfaceNamePrefix':
      return detection.prefix === '' ? null : { device: detection.prefix, isPrefix: true };
  }
}

/** Returns true if this node can distinguish the cluster's pods from clients outside in this family. */
export const hasLocalDetection = ({ localDetection }: NodeView, family: IPFamily): boolean =>
  podSource(localDetection, family) !== null;

function isDetected({ localDetection }: NodeView, { source, inInterface }: SourceFacts): boolean {
  const pods = podSource(localDetection, familyOf(source) ?? 'ipv4');
  if (pods === null) return false;
  if ('cidr' in pods) return cidrContains(pods.cidr, source);
  return pods.isPrefix ? inInterface?.startsWith(pods.device) === true : inInterface === pods.device;
}
