import type { Informer } from '../kube/informer.ts';
import type { MissingRule } from '../kube/missing-rule.ts';
import { type Node, RESOURCES } from '../kube/types.ts';
import type { AgentContext } from './agent-context.ts';
import type { AgentConfiguration } from './configuration.ts';
import { trimNode } from './informer-transforms.ts';
import { nodeWhen } from './own-node.ts';

/** The Nodes that an agent follows. */
export interface FollowedNodes {
  /** All Nodes, if a part needs them; otherwise this machine's. */
  readonly nodes: Informer<Node>;
  /** This machine's Node, and possibly others. */
  readonly own: Informer<Node>;
  /** Returns all Nodes, which are followed from now on. */
  allNodes(): Informer<Node>;
  /** Resolves when `nodes` has this machine's Node in this state, or the API server forbids to list them. */
  present(wanted: (node: Node) => boolean): Promise<void>;
  /** Returns what the pod network lacks because all Nodes are forbidden; null: nothing. */
  problem(): string | null;
  /** Calls the listener when the result of `problem` has changed. */
  onProblem(listener: () => void): void;
}

/**
 * Returns whether a part needs the Nodes of other machines, and so more rights than a node's identity: the Node authorizer
 * of the API server allows a node its own Node only.
 */
export function needsAllNodes({
  pods,
  proxy,
  dns,
  loadBalancer,
  network,
}: Pick<AgentConfiguration, 'pods' | 'proxy' | 'dns' | 'loadBalancer' | 'network'>): boolean {
  const isRouted = network !== null && network.overlay !== 'none';
  return pods === null || proxy !== null || dns !== null || loadBalancer !== null || isRouted;
}

/** Follows the Nodes that the configured parts need. */
export function followNodes(context: AgentContext): FollowedNodes {
  const { configuration, signal } = context;
  const name = configuration.nodeName;
  const listeners = new Set<() => void>();
  const forbidden = Promise.withResolvers<void>();
  let missing: MissingRule | null = null;
  const followAll = () =>
    context.follow(RESOURCES.nodes, {
      transform: trimNode,
      cacheAs: 'nodes',
      onMissingRule(rule) {
        missing = rule;
        if (rule) forbidden.resolve();
        for (const listener of listeners) listener();
      },
    });
  let all = needsAllNodes(configuration) ? followAll() : null;
  const own =
    configuration.pods || !all
      ? context.follow(RESOURCES.nodes, { transform: trimNode, fieldSelector: `metadata.name=${name}` })
      : all;
  return {
    nodes: all ?? own,
    own,
    allNodes() {
      all ??= followAll();
      return all;
    },
    async present(wanted) {
      if (!all || all === own) return;
      await Promise.race([nodeWhen({ nodes: all, name, signal }, wanted), forbidden.promise]);
    },
    problem: () =>
      missing === null || configuration.network?.overlay === 'none'
        ? null
        : `no routes to the pods of other nodes: ${missing.message}`,
    onProblem: (listener) => listeners.add(listener),
  };
}
