import type { Mode } from '../dataplane/dataplane.ts';
import { flowsQuery } from '../flows/flow-stream.ts';
import { type Client, createClient, readBody } from '../kube/client.ts';
import type { Credentials } from '../kube/credentials.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { type ApiRequest, httpTransport } from '../kube/transport.ts';
import { RESOURCES } from '../kube/types.ts';
import { errorCode } from '../lib/error-codes.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { ModeComparison } from '../modes/comparison.ts';
import type { ExplainRequest } from '../observe/explain-view.ts';
import type { Explanation } from '../observe/explanation.ts';
import { compareModesOn, type ModesQuestion, openFlows } from './agent-client.ts';
import { type ClusterReport, readReport } from './cluster-report.ts';
import { COMMAND_ROOT, type CommandRefusal } from './command-paths.ts';
import { createFlowExplainer } from './explain-flow.ts';
import { explainUrl } from './explain-url.ts';
import type { FlowExplainer } from './explainer.ts';
import {
  type Fault,
  type FaultRequest,
  listFaults,
  type PlantedFault,
  plantFault,
  undoFaults,
} from './faults.ts';
import type { NodeFlows } from './flow-reader.ts';
import { changeMode, type NodeMode } from './mode-change.ts';
import { type ObjectQuestion, type ObjectText, readObjectText } from './object-text.ts';
import { checkClusterName, clusterPaths, mayReadCluster, readCluster, requireCluster } from './state.ts';
import { type TracedFlow, type TraceQuestion, traceFlow } from './trace-flow.ts';
import { findContext } from './user-contexts.ts';

/** For so long agents may use the objects that they listed for an earlier question of an explainer. */
const OBJECTS_MAX_AGE_MS = 1000;

/** A local cluster as commands read it: from its files and sockets, or through its API server. */
export interface ClusterAccess extends NodeFlows {
  readonly report: ClusterReport;
  /** The administrator's credentials for the API server. */
  readonly credentials: Credentials;
  /** Throws the errors of `explain` in src/observe, and FairleadError if the agent of a node is not running. */
  explain(request: ExplainRequest): Promise<Explanation>;
  /** Returns an explainer for many questions about this moment: what it has read, it does not read again. */
  explainer(): FlowExplainer;
  /** Sends one real packet and follows it. Throws the errors of `traceFlow`. */
  trace(question: TraceQuestion): Promise<TracedFlow>;
  /** The faults that users have planted; see faults.ts. */
  readonly faults: {
    list(): Promise<readonly Fault[]>;
    plant(request: FaultRequest): Promise<PlantedFault>;
    undoAll(): Promise<readonly Fault[]>;
  };
  /** Prints a kernel object as its tools do, on its node. Throws the errors of `readObjectText`. */
  objectText(question: ObjectQuestion): Promise<ObjectText>;
  /** Renders a Service in all proxy modes, on one node. */
  compareModes(question: ModesQuestion): Promise<ModeComparison>;
  /** Switches the proxy mode of all nodes; see mode-change.ts. */
  changeMode(mode: Mode): Promise<readonly NodeMode[]>;
}

/**
 * Opens a cluster for a command: by its files if this process may read them (root), otherwise by the context of the
 * cluster in the user's kubeconfig. Throws FairleadError if neither exists, and if the API server does not answer.
 */
export async function openCluster(name: string): Promise<ClusterAccess> {
  checkClusterName(name);
  const isRoot = process.getuid?.() === 0;
  if (isRoot || (mayReadCluster(name) && readCluster(name) !== null)) return await openByFiles(name);
  const context = findContext(name, process.env);
  if (context === null) {
    throw new FairleadError(`no such cluster in your kubeconfig: ${name}`, {
      op: 'find cluster',
      code: 'no-cluster',
      hint: 'start one: fairlead up. Of root\'s clusters, only those that "sudo fairlead up" added to your kubeconfig are shown; use sudo for others',
    });
  }
  return await openByApi(readKubeconfig(context.file, context.name), name);
}

async function openByFiles(name: string): Promise<ClusterAccess> {
  const state = requireCluster(name);
  return {
    report: await readReport(state),
    get credentials() {
      return readKubeconfig(clusterPaths(name).kubeconfig);
    },
    explain: (request) =>
      withClient(name, (client) => explainUrl(request, () => client, createFlowExplainer(state))),
    explainer: () => createFlowExplainer(state, { objectsMaxAgeMs: OBJECTS_MAX_AGE_MS }),
    trace: (question) =>
      withClient(name, async (client) =>
        traceFlow(state, (await client.list(RESOURCES.pods)).items, question),
      ),
    faults: {
      list: () => withClient(name, (client) => listFaults(state, client)),
      plant: (request) => withClient(name, (client) => plantFault(state, client, request)),
      undoAll: () => withClient(name, (client) => undoFaults(state, client)),
    },
    objectText: (question) => readObjectText(state, question),
    compareModes: async (question) => compareModesOn(state, question),
    changeMode: (mode) => withClient(name, (client) => changeMode(state, client, mode)),
    flows: (node, wanted, signal) => openFlows(state, node, wanted, signal),
  };
}

/** Calls `use` with a client of the API server, as its administrator. */
async function withClient<T>(name: string, use: (client: Client) => Promise<T>): Promise<T> {
  const transport = httpTransport(readKubeconfig(clusterPaths(name).kubeconfig));
  try {
    return await use(createClient(transport, 'fairlead'));
  } finally {
    transport.close();
  }
}

async function openByApi(credentials: Credentials, name: string): Promise<ClusterAccess> {
  /** Sends a request on a connection of its own. Throws FairleadError with the server's message. */
  const ask = async (request: Omit<ApiRequest, 'headers'>): Promise<AsyncIterable<Uint8Array>> => {
    const transport = httpTransport(credentials);
    try {
      const path = `${COMMAND_ROOT}/${request.path}`;
      const headers = { accept: 'application/json', 'content-type': 'application/json' };
      const response = await transport({ ...request, path, headers }).catch((error: unknown) => {
        throw new FairleadError(`the control plane of cluster ${name} does not answer: ${messageOf(error)}`, {
          op: 'ask the cluster',
          code: 'not-running',
          hint: `sudo fairlead status --name ${name}`,
          cause: error,
        });
      });
      if (response.status === 200) return closeAfter(response.body, transport);
      throw refusal(name, response.status, await readBody(response.body));
    } catch (error) {
      transport.close();
      throw error;
    }
  };
  const askJson = async (request: Omit<ApiRequest, 'headers'>): Promise<unknown> =>
    JSON.parse(await readBody(await ask(request)));
  const explain = async (request: ExplainRequest): Promise<Explanation> =>
    (await askJson({ method: 'POST', path: 'explain', body: JSON.stringify(request) })) as Explanation;
  return {
    report: (await askJson({ method: 'GET', path: 'cluster' })) as ClusterReport,
    credentials,
    explain,
    // Each question is answered afresh there.
    explainer: () => ({ explain }),
    trace: async (question) =>
      (await askJson({ method: 'POST', path: 'trace', body: JSON.stringify(question) })) as TracedFlow,
    faults: {
      list: async () => (await askJson({ method: 'GET', path: 'faults' })) as Fault[],
      plant: async (request) =>
        (await askJson({ method: 'POST', path: 'faults', body: JSON.stringify(request) })) as PlantedFault,
      undoAll: async () => (await askJson({ method: 'DELETE', path: 'faults' })) as Fault[],
    },
    objectText: async (question) =>
      (await askJson({ method: 'POST', path: 'object', body: JSON.stringify(question) })) as ObjectText,
    compareModes: async (question) =>
      (await askJson({ method: 'POST', path: 'modes', body: JSON.stringify(question) })) as ModeComparison,
    changeMode: async (mode) =>
      (await askJson({ method: 'POST', path: 'mode', body: JSON.stringify({ mode }) })) as NodeMode[],
    flows: (node, wanted, signal) =>
      ask({ method: 'GET', path: `nodes/${node}/flows?${flowsQuery(wanted)}`, signal }),
  };
}

/** Yields a body, and closes its connection at the end. */
async function* closeAfter(
  body: AsyncIterable<Uint8Array>,
  transport: { close(): void },
): AsyncGenerator<Uint8Array> {
  try {
    yield* body;
  } finally {
    transport.close();
  }
}

function refusal(name: string, status: number, text: string): FairleadError {
  let answer: Partial<CommandRefusal> = {};
  try {
    answer = JSON.parse(text) as Partial<CommandRefusal>;
  } catch {
    // A server without these paths answers with text.
  }
  const isUnknown = status === 404;
  const hint = isUnknown
    ? 'use sudo: the cluster runs another version, or a real control plane, which does not serve this path'
    : answer.hint;
  return new FairleadError(answer.message ?? `the control plane of cluster ${name} answers ${status}`, {
    op: 'ask the cluster',
    code: errorCode(answer.code),
    ...(hint === undefined ? {} : { hint }),
  });
}
