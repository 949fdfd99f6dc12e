import type { Client } from '../kube/client.ts';
import { informerWithFallback } from '../kube/fallback-informer.ts';
import type { Informer } from '../kube/informer.ts';
import type { MissingRule } from '../kube/missing-rule.ts';
import { type Node, RESOURCES } from '../kube/types.ts';
import type { AgentConfiguration } from './agent-configuration.ts';
import type { AgentContext } from './agent-context.ts';
import { trimNode } from './informer-transforms.ts';
import { nodeWhen } from './own-node.ts';

/** The Nodes that an agent follows. */
export interface FollowedNodes {
  /** All Nodes, if a part needs them; otherwise this machine's. */
  readonly nodes: Informer<Node>;
  /** This machine's Node, and possibly others. */
  readonly own: Informer<Node>;
  /** Returns whether a Node exists and is ready; the API server is asked if the Nodes are not followed. */
  isReady(name: string): Promise<boolean>;
  /** Returns all Nodes as they are now; the API server is asked if they are not followed. */
  list(): Promise<readonly Node[]>;
  /** Returns all Nodes, which are followed from now on. */
  allNodes(): Informer<Node>;
  /** Resolves when `nodes` has this machine's Node in this state, or the API server forbids to list them. */
  present(wanted: (node: Node) => boolean): Promise<void>;
  /** Returns what the pod network lacks because all Nodes are forbidden; null: nothing. */
  problem(): string | null;
  /** Calls the listener when the result of `problem` has changed. */
  onProblem(listener: () => void): void;
}

type Parts = Pick<AgentConfiguration, 'pods' | 'proxy' | 'dns' | 'loadBalancer' | 'network' | 'policy'>;

const isRouted = ({ network }: Parts) => network !== null && network.overlay !== 'none';

/**
 * Returns whether a part needs the Nodes of other machines: their addresses for routes and announcements, their name servers,
 * or their labels in policies. As kube-proxy, a proxy follows its own Node only: all of them are 60 MB on 5,000 machines.
 */
export function needsAllNodes(parts: Parts): boolean {
  const { pods, dns, loadBalancer, network, policy } = parts;
  const isPolicyOfPods = pods === null && policy?.enforce === true;
  return isRouted(parts) || loadBalancer !== null || (dns !== null && network !== null) || isPolicyOfPods;
}

/** Returns whether a part needs more rights than a node's identity, by which the API server shows it its own Node only. */
export function needsProxierRights(parts: Parts): boolean {
  const { pods, proxy, dns, loadBalancer } = parts;
  return pods === null || proxy !== null || dns !== null || loadBalancer !== null || isRouted(parts);
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
  const followOwn = () =>
    context.follow(RESOURCES.nodes, {
      transform: trimNode,
      fieldSelector: `metadata.name=${name}`,
      ...(configuration.pods ? {} : { cacheAs: 'own-node' }),
    });
  // A node that runs pods may be forbidden to read the others.
  const among = (nodes: Informer<Node>) =>
    configuration.pods ? informerWithFallback(nodes, forbidden.promise, followOwn) : nodes;
  const own = all ? among(all) : followOwn();
  return {
    nodes: all ?? own,
    own,
    async isReady(wanted) {
      if (all) {
        await all.synced;
        return isReady(all.get(wanted));
      }
      return await isNodeReady(context.client, wanted);
    },
    async list() {
      return all?.list() ?? (await context.client.list(RESOURCES.nodes)).items;
    },
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

/** Asks the API server whether a Node exists and is ready. Proxies have no right to `get` a Node, but to list. */
export async function isNodeReady(client: Client, name: string): Promise<boolean> {
  const { items } = await client.list(RESOURCES.nodes, { fieldSelector: `metadata.name=${name}` });
  return isReady(items[0]);
}

export function isReady(node: Node | undefined): boolean {
  return node?.status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True') === true;
}
