import type { Client } from '../kube/client.ts';
import { ANNOUNCEMENT_LABEL, ANNOUNCEMENT_NAMESPACE, announcingNode } from '../kube/load-balancer.ts';
import { type Lease, type Pod, RESOURCES } from '../kube/types.ts';
import { FairleadError } from '../lib/errors.ts';
import { explain } from '../observe/explain.ts';
import type { ExplainRequest, ExplainView, Explanation, LinkHost } from '../observe/explain-view.ts';
import { type Fact, knownFacts } from '../observe/facts.ts';
import type { AgentContext } from './agent-context.ts';
import type { ControlSources } from './control-socket.ts';

/** The body of POST /explain. */
export interface ExplainBody extends ExplainRequest {
  /** See ExplainView. */
  readonly hosts: readonly LinkHost[];
  readonly facts: readonly Fact[];
  /** The objects that the agent does not watch; null: it lists them itself. */
  readonly objects?: ListedObjects | null;
}

export interface ListedObjects {
  readonly pods: readonly Pod[];
  /** Those of announced addresses. */
  readonly leases: readonly Lease[];
}

/**
 * Lists the objects that an explanation needs and agents do not watch; listing them for each question is cheap
 * enough. `announcer`: may list the Leases of announced addresses.
 */
export async function listObjectsToExplain(client: Client, announcer = client): Promise<ListedObjects> {
  const [{ items: pods }, { items: leases }] = await Promise.all([
    client.list(RESOURCES.pods),
    announcer.list(RESOURCES.leases, {
      namespace: ANNOUNCEMENT_NAMESPACE,
      labelSelector: ANNOUNCEMENT_LABEL,
    }),
  ]);
  return { pods, leases };
}

/**
 * Explains a flow by this node's tables and the objects in the agent's informers. Throws as `explain` does.
 */
export async function answerExplain(
  context: AgentContext,
  sources: ControlSources,
  body: Partial<ExplainBody>,
): Promise<Explanation> {
  const { from, to, family = null, entry = null, hosts = [], facts = [], objects = null } = body;
  if (!from || !to) {
    throw new FairleadError('from and to are needed', { op: 'ask the agent', code: 'bad-request' });
  }
  const listed = objects ?? (await listObjectsToExplain(context.client, context.announcer));
  return explain(explainView(context, sources, hosts, facts, listed), { from, to, family, entry });
}

function explainView(
  { configuration }: AgentContext,
  { part, nodes, services, slices, policies }: ControlSources,
  hosts: readonly LinkHost[],
  facts: readonly Fact[],
  { pods, leases }: ListedObjects,
): ExplainView {
  const here = configuration.nodeName;
  return {
    services: () => services.list(),
    slices: () => slices.list(),
    pods: () => pods,
    nodes: () => nodes.list(),
    map: (node) => (node === here ? part.proxy.map : null),
    mode: (node) => (node === here ? part.mode : null),
    locate: (node, frontend, packet) => (node === here ? part.proxy.dataplane.locate(frontend, packet) : []),
    facts: knownFacts(facts),
    hosts,
    policies: () => policies?.table ?? null,
    entryNode: (address) => announcingNode(leases, address),
  };
}
