import { hostPort } from '../lib/address.ts';
import { messageOf } from '../lib/errors.ts';
import type { ExplainRequest } from '../observe/explain-view.ts';
import type { Explanation } from '../observe/explanation.ts';
import type { FactRequest, LocalFactRequest } from '../observe/fact-requests.ts';
import { type Fact, type FactAnswer, factKey } from '../observe/facts.ts';

/** Sufficient for a name, a route, the node of the tables, the sockets, and the path of a DNS question. */
const MAX_ROUNDS = 12;

/** Explains flows of a cluster. It caches the collected facts, so create one for each independent question. */
export interface FlowExplainer {
  /** Throws the errors of `explain` in src/observe, and FairleadError if the agent of a node does not answer. */
  explain(request: ExplainRequest): Promise<Explanation>;
}

/** How an explainer reaches the agents of a cluster. */
export interface ExplainerOptions {
  readonly nodes: () => readonly string[];
  /** The node that is asked first: it finds out which one has to be asked. */
  readonly firstNode: () => string;
  /** Asks the agent of a node for an explanation with the known facts. */
  readonly ask: (
    node: string,
    request: ExplainRequest & { readonly facts: readonly Fact[] },
  ) => Promise<Explanation>;
  /** Collects a fact; failures are answers. */
  readonly gather: (request: LocalFactRequest) => Promise<FactAnswer>;
}

export function createExplainer(options: ExplainerOptions): FlowExplainer {
  const { nodes, firstNode, ask } = options;
  async function answerTo(request: FactRequest): Promise<FactAnswer> {
    if (request.kind !== 'entry') return options.gather(request);
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
  /** The node that explained the last question about an origin: probably that of the next one, too. */
  const lastNodes = new Map<string, string>();
  async function explain(request: ExplainRequest): Promise<Explanation> {
    let node = request.entry ?? lastNodes.get(request.from) ?? firstNode();
    const sent = new Map<string, Fact>();
    for (const [key, fact] of known) if (isUseful(fact[0], request.to)) sent.set(key, fact);
    for (let round = 1; ; round++) {
      const explanation = await ask(node, { ...request, facts: [...sent.values()] });
      const { missing, askNode } = explanation;
      const isElsewhere = askNode !== null && askNode !== node && nodes().includes(askNode);
      if ((missing.length === 0 && !isElsewhere) || round === MAX_ROUNDS) {
        if (request.entry === null) lastNodes.set(request.from, node);
        return explanation;
      }
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
    case 'filters':
      return true;
    case 'route':
      return request.place.kind === 'node' || to.includes(request.destination);
    case 'names':
    case 'entry':
      return false;
  }
}
