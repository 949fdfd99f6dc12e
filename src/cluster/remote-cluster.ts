import type { AgentState } from '../agent/agent-state.ts';
import type { CommandOperation } from '../agent/command-rights.ts';
import { MODE_ANNOTATION } from '../agent/mode-switch.ts';
import type { CaptureBody } from '../agent/node-capture.ts';
import type { TraceBody } from '../agent/trace-body.ts';
import type { Mode } from '../dataplane/dataplane.ts';
import { type FlowsRequest, flowsQuery } from '../flows/flow-stream.ts';
import { type Client, createClient } from '../kube/client.ts';
import { kubeconfigSource } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { RESOURCES } from '../kube/types.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { createSemaphore } from '../lib/semaphore.ts';
import type { ModeComparison } from '../modes/comparison.ts';
import type { ExplainRequest } from '../observe/explain-view.ts';
import type { Explanation } from '../observe/explanation.ts';
import type { ModesQuestion } from './agent-client.ts';
import { explainUrl } from './explain-url.ts';
import type { FlowExplainer } from './explainer.ts';
import type { ContextPlace } from './kubeconfig-contexts.ts';
import { createRemoteAgents, findAgents, type RemoteAgent, type RemoteAgents } from './remote-agents.ts';
import { openRemoteExplainer, refuseOutside } from './remote-explain.ts';

/** The report of a node's agent about itself, or why there is none. */
export interface AgentReport {
  readonly node: string;
  readonly state: AgentState | null;
  readonly problem: string | null;
}

/** The result of a switch on one node. */
export interface RemoteNodeMode {
  readonly name: string;
  /** Null: the mode is unknown. */
  readonly mode: string | null;
  /** Why the mode was not switched, or will not stay; null: neither. */
  readonly problem: string | null;
}

/** A cluster whose agents run in pods, by a kubeconfig. */
export interface RemoteCluster {
  readonly context: string;
  readonly client: Client;
  readonly agents: readonly RemoteAgent[];
  /** Asks all agents for their state; those that do not answer have a problem. */
  reports(): Promise<AgentReport[]>;
  explain(request: ExplainRequest): Promise<Explanation>;
  /** Returns an explainer for many flows between pods of some namespaces, and nodes: it reads the pods now, and facts once. */
  explainer(namespaces: readonly string[]): Promise<FlowExplainer>;
  /** Asks the agent of a node. */
  ask(node: string, operation: CommandOperation, body?: unknown): Promise<unknown>;
  compareModes(question: ModesQuestion): Promise<ModeComparison>;
  /** Opens the stream of a node's flows, one FlowsEntry per line. */
  flows(node: string, wanted: FlowsRequest, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>;
  /** Opens the stream of a node's captured frames, one CaptureLine per line. */
  capture(node: string, body: CaptureBody, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>;
  /** Opens the stream of what a node's observers of a trace see, one TraceLine per line. */
  trace(node: string, body: TraceBody, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>;
  /** The error of a stream that ended by itself. */
  ended(node: string, cause?: unknown): FairleadError;
  /** Switches the modes of nodes, one after another, also after a node that fails. */
  changeMode(
    mode: Mode,
    only: readonly string[],
    onNode: (node: RemoteNodeMode) => void,
  ): Promise<RemoteNodeMode[]>;
  close(): void;
}

/** Agents that are asked at the same time. */
const MAX_ASKED = 8;

/** `namespace`: of the agents; null: any. Throws FairleadError if the cluster has no agents. */
export async function openRemoteCluster(
  place: ContextPlace,
  namespace: string | null,
): Promise<RemoteCluster> {
  const source = kubeconfigSource(
    place.file,
    { server: null, now: Date.now, onProblem: () => {} },
    place.context,
  );
  const transport = httpTransport(source);
  try {
    const client = createClient(transport, 'fairlead');
    const agents = await findAgents(client, namespace);
    const remote = createRemoteAgents(transport, client, Date.now);
    return remoteCluster(place.context, client, agents, remote, () => transport.close());
  } catch (error) {
    transport.close();
    throw error;
  }
}

export function remoteCluster(
  context: string,
  client: Client,
  agents: readonly RemoteAgent[],
  remote: RemoteAgents,
  close: () => void,
): RemoteCluster {
  const agentOf = (node: string): RemoteAgent => {
    const agent = agents.find((one) => one.node === node);
    if (agent) return agent;
    throw new FairleadError(`no agent runs on node ${node}`, {
      op: 'find agent',
      code: 'no-node',
      hint: `use one of ${agents.map((one) => one.node).join(', ')}`,
    });
  };
  const explainer = (namespaces: readonly string[] | null = null) =>
    openRemoteExplainer(agents, remote, client, namespaces);
  const turns = createSemaphore(MAX_ASKED);
  return {
    context,
    client,
    agents,
    close,
    reports: () =>
      Promise.all(
        agents.map((agent) =>
          turns.run(async (): Promise<AgentReport> => {
            try {
              const state = (await remote.ask(agent, 'state')) as AgentState;
              return { node: agent.node, state, problem: null };
            } catch (error) {
              return { node: agent.node, state: null, problem: problemText(error) };
            }
          }),
        ),
      ),
    explainer,
    async explain(request) {
      refuseOutside(request);
      return await explainUrl(request, () => client, await explainer());
    },
    ask: (node, operation, body) => remote.ask(agentOf(node), operation, body),
    async compareModes({ node, namespace, name }) {
      const agent = agentOf(node ?? agents[0]?.node ?? '');
      return (await remote.ask(agent, 'modes', { namespace, name })) as ModeComparison;
    },
    flows: async (node, wanted, signal) =>
      remote.open(agentOf(node), 'flows', { query: flowsQuery(wanted) }, signal),
    capture: async (node, body, signal) => remote.open(agentOf(node), 'capture', { body }, signal),
    trace: async (node, body, signal) => remote.open(agentOf(node), 'trace', { body }, signal),
    ended: (node, cause) =>
      new FairleadError(`the agent of ${node} no longer answers`, {
        op: `ask ${node}`,
        code: 'ended',
        hint: 'run the command again after the agent has restarted',
        ...(cause === undefined ? {} : { cause }),
      }),
    async changeMode(mode, only, onNode) {
      const changed: RemoteNodeMode[] = [];
      for (const node of only) {
        const result = await switchNode(remote, client, agentOf(node), mode);
        changed.push(result);
        onNode(result);
      }
      return changed;
    },
  };
}

async function switchNode(
  remote: RemoteAgents,
  client: Client,
  agent: RemoteAgent,
  wanted: Mode,
): Promise<RemoteNodeMode> {
  const name = agent.node;
  let mode: string;
  try {
    // The agent switches before the annotation is written, so that an unsupported mode is an error of this command.
    ({ mode } = (await remote.ask(agent, 'mode', { mode: wanted })) as AgentState);
  } catch (error) {
    return { name, mode: null, problem: `not switched: ${problemText(error)}` };
  }
  try {
    await client.patch(RESOURCES.nodes, name, 'merge', {
      metadata: { annotations: { [MODE_ANNOTATION]: mode } },
    });
    return { name, mode, problem: null };
  } catch (error) {
    const problem = `the mode lasts until the agent restarts, because the annotation ${MODE_ANNOTATION} was not written: ${messageOf(error)}`;
    return { name, mode, problem };
  }
}

/** Renders an error with its fix in one line. */
export function problemText(error: unknown): string {
  const hint = error instanceof FairleadError ? error.hint : undefined;
  return `${messageOf(error)}${hint === undefined ? '' : `; try: ${hint}`}`;
}
