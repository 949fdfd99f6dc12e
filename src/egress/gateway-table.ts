import { selects } from '../kube/selector.ts';
import { familyOf } from '../lib/address.ts';
import { addressFor } from './assign.ts';
import type { EgressPod, Gateway, SelectingGateway } from './model.ts';

/** A node, as gateways select it. */
export interface GatewayNode {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Ready, and not being deleted. */
  readonly isReady: boolean;
  /** Cordoned: it gets no address, and gives up what it has to another node. */
  readonly isCordoned: boolean;
}

/** Sorts gateways by precedence. */
export const byPrecedence = (a: Gateway, b: Gateway): number =>
  a.createdAt < b.createdAt ? -1 : a.createdAt > b.createdAt ? 1 : a.name < b.name ? -1 : 1;

/**
 * Returns the nodes that may have a gateway's addresses. A cordoned node may only if every other one is, too: so an address
 * leaves a node before its maintenance.
 */
export function candidateNodes(gateway: Gateway, nodes: Iterable<GatewayNode>): Set<string> {
  const able = [...nodes].filter((node) => node.isReady && selects(gateway.nodeSelector, node.labels));
  const open = able.filter((node) => !node.isCordoned);
  return new Set((open.length > 0 ? open : able).map(({ name }) => name));
}

/** Returns whether a gateway selects a pod; `labelsOf`: of a namespace, null: it is unknown. */
export function selectsPod(
  gateway: Gateway,
  pod: Pick<EgressPod, 'namespace' | 'labels'>,
  labelsOf: (namespace: string) => Readonly<Record<string, string>> | null,
): boolean {
  const labels = labelsOf(pod.namespace);
  return (
    labels !== null && selects(gateway.namespaceSelector, labels) && selects(gateway.podSelector, pod.labels)
  );
}

/** Returns a gateway with the sources of the pods that it selects. */
export function selecting(
  gateway: Gateway,
  pods: Iterable<EgressPod>,
  labelsOf: (namespace: string) => Readonly<Record<string, string>> | null,
): SelectingGateway {
  const sources = new Map<string, string | null>();
  for (const pod of pods) {
    if (!selectsPod(gateway, pod, labelsOf)) continue;
    for (const address of pod.addresses) {
      const family = familyOf(address);
      if (family) sources.set(address, addressFor(pod.key, gateway.addresses, family));
    }
  }
  const { name, destinations, except } = gateway;
  return { name, destinations, except, sources };
}
