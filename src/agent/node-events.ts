import type { EventType } from '../kube/events.ts';
import type { Informer } from '../kube/informer.ts';
import type { Node } from '../kube/types.ts';
import { OS_LABEL } from '../kube/well-known-labels.ts';
import { addressesOf } from './agent-context.ts';

/** The labels that the DaemonSet of agents selects Nodes by. */
export const AGENT_NODE_LABELS: Readonly<Record<string, string>> = { [OS_LABEL]: 'linux' };

export interface NodeEventsOptions {
  readonly nodes: Pick<Informer<Node>, 'handle'>;
  readonly name: string;
  /** The configured primary address; null: the Node object's. */
  readonly address: string | null;
  /** Records an event of this Node, as it was last. */
  readonly event: (node: Node, type: EventType, reason: string, message: string) => void;
}

/** Records an event whenever this machine's Node loses what the agent needs of it, until the result is called. */
export function reportNodeLosses({ nodes, name, address, event }: NodeEventsOptions): () => void {
  const warn = (node: Node, reason: string, message: string) => event(node, 'Warning', reason, message);
  return nodes.handle({
    onUpdate(node, before) {
      if (node.metadata?.name !== name) return;
      for (const [label, value] of Object.entries(AGENT_NODE_LABELS)) {
        if (before.metadata?.labels?.[label] !== value || node.metadata.labels?.[label] === value) continue;
        const message = `the label ${label}=${value} was removed: a DaemonSet of agents that selects it removes the agent of this node; its rules stay, and are not updated. Add the label again`;
        warn(node, 'NodeLabelLost', message);
      }
      if (address === null && addressesOf(before).length > 0 && addressesOf(node).length === 0) {
        const message =
          'the Node no longer has an InternalIP or ExternalIP: Services are programmed without node-dependent features';
        warn(node, 'NodeAddressLost', message);
      }
    },
    onDelete(node) {
      if (node.metadata?.name !== name) return;
      const message =
        'the Node object was deleted while its agent runs: Services are programmed without node-dependent features until it exists again; a kubelet registers it when it starts';
      warn(node, 'NodeDeleted', message);
    },
  });
}
