import type { Node } from '../kube/types.ts';
import { canonicalAddress } from '../lib/address.ts';
import type { PolicyPod } from './model.ts';

/** Nodes are kept as pods of this namespace, so that groups of nodes are sets like those of pods. */
export const NODES = '';
export const nodeKey = (name: string): string => `Node/${name}`;

/** Reads a node as a pod with its addresses; null without addresses. */
export function readNode({ metadata, status }: Node): PolicyPod | null {
  const addresses = (status?.addresses ?? []).flatMap(({ address }) => canonicalAddress(address) ?? []);
  const { name = '', labels = {} } = metadata ?? {};
  return addresses.length === 0
    ? null
    : { key: nodeKey(name), namespace: NODES, labels, node: name, addresses, ports: [] };
}
