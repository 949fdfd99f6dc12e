import { type ListedObjects, listObjectsToExplain } from '../agent/explain-objects.ts';
import type { ExplainAnswer, ExplainBatch } from '../agent/explain-part.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { OWN_NETNS } from '../kernel/netns.ts';
import { createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { errorCode } from '../lib/error-codes.ts';
import { FairleadError } from '../lib/errors.ts';
import { nodeNetns } from '../network/topology.ts';
import type { ExplainRequest } from '../observe/explain-view.ts';
import type { Explanation } from '../observe/explanation.ts';
import type { Fact } from '../observe/facts.ts';
import { gatherFact } from '../observe/gather-facts.ts';
import { hasFaultTable } from '../observe/planted-faults.ts';
import { askAgent } from './agent-client.ts';
import { createBatches } from './batches.ts';
import { createExplainer, type FlowExplainer } from './explainer.ts';
import { linkHosts, localPlace } from './places.ts';
import { type ClusterState, clusterPaths } from './state.ts';

type KnownRequest = ExplainRequest & { readonly facts: readonly Fact[] };

/** Questions of one request to an agent: some hundred milliseconds of its time. */
const MAX_QUESTIONS = 32;

const refusalOf = (
  node: string,
  { message, code, hint }: Extract<ExplainAnswer, { error: unknown }>['error'],
): FairleadError =>
  new FairleadError(message, {
    op: `ask ${node}`,
    code: errorCode(code),
    ...(hint === undefined ? {} : { hint }),
  });

export interface FlowExplainerOptions extends Pick<ExplainBatch, 'objectsMaxAgeMs'> {
  /** The network namespace of the machine. Default: that of this process. */
  readonly machine?: NetnsRef;
  /** Lists the objects for agents that cannot reach the API server, because a fault cuts the link of their node. */
  readonly listObjects?: () => Promise<ListedObjects>;
}

/** Explains flows of a local cluster. */
export function createFlowExplainer(state: ClusterState, options: FlowExplainerOptions = {}): FlowExplainer {
  const { machine = OWN_NETNS, listObjects = () => listByFiles(state), objectsMaxAgeMs = 0 } = options;
  const cut = new Map<string, boolean>();
  // Read once, as all facts of an explainer are.
  const isCut = (node: string): boolean => {
    const known = cut.get(node);
    if (known !== undefined) return known;
    const found = state.nodes.some(({ name }) => name === node) && hasFaultTable(nodeNetns(state.name, node));
    cut.set(node, found);
    return found;
  };
  const hosts = linkHosts(state);
  const names = state.nodes.map(({ name }) => name);
  const batches = createBatches<KnownRequest, Explanation>({
    max: MAX_QUESTIONS,
    soon: setImmediate,
    async send(node, asked) {
      const { answers } = await askAgent<{ answers: readonly ExplainAnswer[] }>(
        state,
        node,
        'POST',
        '/explain',
        {
          questions: asked.map(({ facts: _facts, ...question }) => question),
          facts: [...new Set(asked.flatMap(({ facts }) => facts))],
          hosts,
          objects: isCut(node) ? await listObjects() : null,
          objectsMaxAgeMs,
        } satisfies ExplainBatch,
      );
      return answers.map((answer) =>
        'error' in answer ? refusalOf(node, answer.error) : answer.explanation,
      );
    },
  });
  return createExplainer({
    nodes: () => names,
    firstNode: () => names.find((name) => !isCut(name)) ?? names[0] ?? '',
    ask: batches.ask,
    gather: (request) => gatherFact(request, (place) => localPlace(state, place, machine)),
  });
}

async function listByFiles(state: ClusterState): Promise<ListedObjects> {
  const transport = httpTransport(readKubeconfig(clusterPaths(state.name).kubeconfig));
  try {
    return await listObjectsToExplain(createClient(transport, 'fairlead-explain'));
  } finally {
    transport.close();
  }
}
