import { type ExplainBody, type ListedObjects, listObjectsToExplain } from '../agent/explain-part.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { hostPort } from '../lib/address.ts';
import { messageOf } from '../lib/errors.ts';
import { nodeNetns } from '../network/topology.ts';
import type { ExplainRequest, Explanation } from '../observe/explain-view.ts';
import { type Fact, type FactAnswer, type FactRequest, factKey } from '../observe/facts.ts';
import { gatherFact } from '../observe/gather-facts.ts';
import { hasFaultTable } from '../observe/planted-faults.ts';
import { askAgent } from './agent-client.ts';
import { linkHosts, localPlace, OWN_NETNS } from './places.ts';
import { type ClusterState, clusterPaths } from './state.ts';

/** Sufficient for a name, a route, the node of the tables, the sockets, and the path of a DNS question. */
const MAX_ROUNDS = 12;

/** Explains flows of a local cluster. It caches the collected facts, so create one for each independent question. */
export interface FlowExplainer {
  /** Throws the errors of `explain` in src/observe, and FairleadError if the agent of a node is not running. */
  explain(request: ExplainRequest): Promise<Explanation>;
}

/**
 * `machine`: the network namespace of the machine, if it is not this process's. `listObjects`: lists the objects for agents
 * that cannot reach the API server, because a fault cuts the link of their node.
 */
export function createFlowExplainer(
  state: ClusterState,
  machine: NetnsRef = OWN_NETNS,
  listObjects: () => Promise<ListedObjects> = () => listByFiles(state),
): FlowExplainer {
  const isCut = (node: string) =>
    state.nodes.some(({ name }) => name === node) && hasFaultTable(nodeNetns(state.name, node));
  async function answerTo(request: FactRequest): Promise<FactAnswer> {
    if (request.kind !== 'entry') return gatherFact(request, (place) => localPlace(state, place, machine));
    const { node, source, destination, port, protocol } = request;
    const to = `${hostPort({ ip: destination, port })}/${protocol}`;
    try {
      return { kind: 'entry', explanation: await explain({ from: source, to, family: null, entry: node }) };
    } catch (error) {
      return {
        kind: 'failed',
        reason: `failed to ask ${node} for its part of the path: ${messageOf(error)}`,
      };
    }
  }
  const known = new Map<string, Fact>();
  const gathering = new Map<string, Promise<void>>();
  const gather = (request: Fact[0]): Promise<void> => {
    const key = factKey(request);
    const running = gathering.get(key);
    if (running) return running;
    const started = answerTo(request).then((answer) => {
      known.set(key, [request, answer]);
    });
    gathering.set(key, started);
    return started;
  };
  async function explain(request: ExplainRequest): Promise<Explanation> {
    const hosts = linkHosts(state);
    const names = state.nodes.map(({ name }) => name);
    let node = request.entry ?? names.find((name) => !isCut(name)) ?? names[0] ?? '';
    const sent = new Map<string, Fact>();
    for (const [key, fact] of known) if (isUseful(fact[0], request.to)) sent.set(key, fact);
    for (let round = 1; ; round++) {
      const objects = isCut(node) ? await listObjects() : null;
      const body: ExplainBody = { ...request, hosts, facts: [...sent.values()], objects };
      const explanation = await askAgent<Explanation>(state, node, 'POST', '/explain', body);
      const { missing, askNode } = explanation;
      const isElsewhere =
        askNode !== null && askNode !== node && state.nodes.some(({ name }) => name === askNode);
      if ((missing.length === 0 && !isElsewhere) || round === MAX_ROUNDS) return explanation;
      if (isElsewhere) node = askNode;
      await Promise.all(missing.map(gather));
      for (const key of missing.map(factKey)) {
        const fact = known.get(key);
        if (fact) sent.set(key, fact);
      }
    }
  }
  return { explain };
}

/** Reports whether a fact of an earlier question may be needed for this one; others would only enlarge the request. */
function isUseful(request: FactRequest, to: string): boolean {
  switch (request.kind) {
    case 'sockets':
    case 'fault':
      return true;
    case 'route':
      return request.place.kind === 'node' || to.includes(request.destination);
    case 'names':
    case 'entry':
      return false;
  }
}

async function listByFiles(state: ClusterState): Promise<ListedObjects> {
  const transport = httpTransport(readKubeconfig(clusterPaths(state.name).kubeconfig));
  try {
    return await listObjectsToExplain(createClient(transport, 'fairlead-explain'));
  } finally {
    transport.close();
  }
}
