import { ANNOUNCEMENT_LABEL, ANNOUNCEMENT_NAMESPACE, announcingNode } from '../kube/load-balancer.ts';
import { RESOURCES } from '../kube/types.ts';
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
}

/**
 * Explains a flow by this node's tables and the objects in the agent's informers. Throws as `explain` does.
 */
export async function answerExplain(
  context: AgentContext,
  sources: ControlSources,
  body: Partial<ExplainBody>,
): Promise<Explanation> {
  const { from, to, family = null, entry = null, hosts = [], facts = [] } = body;
  if (!from || !to) {
    throw new FairleadError('from and to are needed', { op: 'ask the agent', code: 'bad-request' });
  }
  return explain(await explainView(context, sources, hosts, facts), { from, to, family, entry });
}

async function explainView(
  { configuration, client }: AgentContext,
  { part, nodes, services, slices, policies }: ControlSources,
  hosts: readonly LinkHost[],
  facts: readonly Fact[],
): Promise<ExplainView> {
  // The agent watches only its own node's pods; listing them for each question is cheap enough.
  const [pods, leases] = await Promise.all([
    client.list(RESOURCES.pods).then(({ items }) => items),
    client
      .list(RESOURCES.leases, { namespace: ANNOUNCEMENT_NAMESPACE, labelSelector: ANNOUNCEMENT_LABEL })
      .then(({ items }) => items),
  ]);
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
