import {
  audienceOf,
  COMMAND_OPERATIONS,
  COMMAND_PORT,
  COMMAND_PORT_ANNOTATION,
  type CommandOperation,
  commandPath,
  OPERATOR,
  TOKEN_HEADER,
  VIEWER,
} from '../agent/command-rights.ts';
import { type Client, hasReason, readBody } from '../kube/client.ts';
import type { ApiResponse, Transport } from '../kube/transport.ts';
import { type Pod, RESOURCES } from '../kube/types.ts';
import { errorCode } from '../lib/error-codes.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { createSemaphore, type Semaphore } from '../lib/semaphore.ts';

/** The agent of a node of any cluster, by its pod. */
export interface RemoteAgent {
  readonly node: string;
  readonly namespace: string;
  readonly pod: string;
  readonly port: number;
}

/** Sends commands to agents through the API server's pods/proxy. */
export interface RemoteAgents {
  /** Throws FairleadError if the agent, or the API server, refuses or does not answer. */
  ask(agent: RemoteAgent, operation: CommandOperation, body?: unknown): Promise<unknown>;
  /** Opens an answer as a stream, until the signal aborts. */
  open(
    agent: RemoteAgent,
    operation: CommandOperation,
    asked: { readonly query?: string; readonly body?: unknown },
    signal: AbortSignal,
  ): Promise<AsyncIterable<Uint8Array>>;
}

/** Selects the pods of agents. */
export const AGENT_SELECTOR = 'app.kubernetes.io/name=fairlead';
/** The shortest life of a token that API servers grant. */
const TOKEN_SECONDS = 600;
/** A token is used for at most this long, so that it is not refused on its way. */
const TOKEN_USE_MS = (TOKEN_SECONDS - 60) * 1000;
/** Requests of a command to one agent at the same time; agents refuse more than 16 of all commands. */
const MAX_ASKED = 8;
/** How long an agent may take to report its state. */
const PATIENCE_MS = 5000;
const INSTALL_HINT = 'fairlead manifests --for commands | kubectl apply -f -';

/** Finds the agents of all nodes, by node name; `namespace` null: in all namespaces. Throws FairleadError if there are none. */
export async function findAgents(client: Client, namespace: string | null): Promise<RemoteAgent[]> {
  const place = namespace === null ? {} : { namespace };
  const { items } = await client
    .list(RESOURCES.pods, { ...place, labelSelector: AGENT_SELECTOR })
    .catch((error: unknown) => {
      if (!hasReason(error, 'Forbidden')) throw error;
      throw new FairleadError(messageOf(error), {
        op: 'find agents',
        code: 'Forbidden',
        hint: `docs/remote-commands.md lists the permissions that commands need${namespace === null ? '; or --agent-namespace NAMESPACE' : ''}`,
      });
    });
  const found = new Map<string, Pod>();
  // During an update a node may have two pods: the one that is ready, else the newest, is its agent.
  for (const pod of items.filter(isRunning).sort(byAge)) {
    const node = pod.spec?.nodeName ?? '';
    const other = found.get(node);
    if (!other || isReady(pod) || !isReady(other)) found.set(node, pod);
  }
  if (found.size === 0) {
    throw new FairleadError(
      `no pod with the label ${AGENT_SELECTOR} runs in ${namespace === null ? 'this cluster' : `namespace ${namespace}`}`,
      {
        op: 'find agents',
        code: 'not-running',
        hint: 'install the agents: fairlead manifests | kubectl apply -f -',
      },
    );
  }
  return [...found]
    .map(([node, { metadata }]) => ({
      node,
      namespace: metadata?.namespace ?? '',
      pod: metadata?.name ?? '',
      port: Number(metadata?.annotations?.[COMMAND_PORT_ANNOTATION] ?? COMMAND_PORT),
    }))
    .sort((a, b) => a.node.localeCompare(b.node, 'en', { numeric: true }));
}

const isRunning = ({ spec, status, metadata }: Pod) =>
  spec?.nodeName !== undefined && status?.phase === 'Running' && !metadata?.deletionTimestamp;
const isReady = ({ status }: Pod) =>
  status?.conditions?.some(({ type, status: value }) => type === 'Ready' && value === 'True') === true;
const byAge = (a: Pod, b: Pod) =>
  String(a.metadata?.creationTimestamp ?? '').localeCompare(String(b.metadata?.creationTimestamp ?? ''));

/** `now`: milliseconds. */
export function createRemoteAgents(
  transport: Transport,
  client: Pick<Client, 'request'>,
  now: () => number,
): RemoteAgents {
  const turns = new Map<string, Semaphore>();
  const tokens = new Map<string, { readonly until: number; readonly token: Promise<string> }>();

  const tokenFor = (agent: RemoteAgent, operation: CommandOperation): Promise<string> => {
    const account = COMMAND_OPERATIONS[operation].verb === 'get' ? VIEWER : OPERATOR;
    const key = `${agent.namespace} ${agent.node} ${account}`;
    const found = tokens.get(key);
    if (found && found.until > now()) return found.token;
    const token = requestToken(client, agent, account);
    tokens.set(key, { until: now() + TOKEN_USE_MS, token });
    // The next request tries again.
    token.catch(() => tokens.delete(key));
    return token;
  };

  const send = async (
    agent: RemoteAgent,
    operation: CommandOperation,
    { query = '', body, signal }: { query?: string; body?: unknown; signal?: AbortSignal },
  ): Promise<ApiResponse> => {
    const { namespace, pod, port, node } = agent;
    const token = await tokenFor(agent, operation);
    // A switch of the mode programs all Services, and a stream lasts.
    const limit = operation === 'state' ? AbortSignal.timeout(PATIENCE_MS) : undefined;
    const stop = signal ?? limit;
    const { method } = COMMAND_OPERATIONS[operation];
    const response = await transport({
      method,
      path: `/api/v1/namespaces/${namespace}/pods/https:${pod}:${port}/proxy${commandPath(operation)}${query}`,
      headers: {
        accept: 'application/json',
        'content-type': 'application/json',
        'user-agent': 'fairlead',
        [TOKEN_HEADER]: token,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(stop ? { signal: stop } : {}),
    }).catch((error: unknown) => {
      const message = limit?.aborted
        ? `its agent does not answer within ${PATIENCE_MS / 1000} s`
        : `the API server does not answer: ${messageOf(error)}`;
      throw new FairleadError(message, {
        op: `ask ${node}`,
        code: 'not-running',
        ...(limit?.aborted ? { hint: `kubectl -n ${namespace} logs ${pod}` } : { cause: error }),
      });
    });
    if (response.status === 200) return response;
    throw refusal(agent, response.status, await readBody(response.body));
  };

  return {
    async ask(agent, operation, body) {
      const key = `${agent.namespace}/${agent.pod}`;
      const turn = turns.get(key) ?? createSemaphore(MAX_ASKED);
      turns.set(key, turn);
      return await turn.run(async () => {
        const { body: answer } = await send(agent, operation, body === undefined ? {} : { body });
        return JSON.parse(await readBody(answer)) as unknown;
      });
    },
    async open(agent, operation, { query, body }, signal) {
      const asked = {
        ...(query === undefined ? {} : { query: `?${query}` }),
        ...(body === undefined ? {} : { body }),
      };
      return (await send(agent, operation, { ...asked, signal })).body;
    },
  };
}

async function requestToken(
  client: Pick<Client, 'request'>,
  { namespace, node }: RemoteAgent,
  account: string,
): Promise<string> {
  const object = `ServiceAccount ${namespace}/${account}`;
  try {
    const answer = (await client.request(
      'POST',
      `/api/v1/namespaces/${namespace}/serviceaccounts/${account}/token`,
      {
        apiVersion: 'authentication.k8s.io/v1',
        kind: 'TokenRequest',
        spec: { audiences: [audienceOf(node)], expirationSeconds: TOKEN_SECONDS },
      },
    )) as { readonly status?: { readonly token?: string } };
    const token = answer.status?.token;
    if (token) return token;
    throw new FairleadError('the API server answers without a token', {
      op: `get a token of ${object}`,
      code: 'InternalError',
    });
  } catch (error) {
    const hint = hasReason(error, 'NotFound')
      ? INSTALL_HINT
      : hasReason(error, 'Forbidden')
        ? `bind the Role: kubectl -n ${namespace} create rolebinding NAME --role ${account} --user USER`
        : undefined;
    if (hint === undefined) throw error;
    throw new FairleadError(`no token of ${object}: ${messageOf(error)}`, {
      op: `ask ${node}`,
      code: 'Forbidden',
      hint,
    });
  }
}

/** Reads the answer of the agent, or the Status of the API server. */
function refusal(agent: RemoteAgent, status: number, text: string): FairleadError {
  const { node, namespace, pod, port } = agent;
  let answer: { kind?: string; message?: string; code?: unknown; hint?: string; reason?: string } = {};
  try {
    answer = JSON.parse(text) as typeof answer;
  } catch {
    // A proxy on the way answers with text.
  }
  const isAgents = answer.kind === undefined && answer.message !== undefined;
  const code = typeof answer.code === 'string' ? answer.code : status === 403 ? 'Forbidden' : undefined;
  const hint =
    answer.hint ??
    (isAgents
      ? status === 404
        ? "update the agents: this node's is older than the command"
        : undefined
      : status === 403
        ? `bind the Role: kubectl -n ${namespace} create rolebinding NAME --role ${VIEWER} --user USER`
        : `agents open port ${port} with \`fairlead manifests --commands\` (commandsBindAddress) only; if they have it: kubectl -n ${namespace} logs ${pod}`);
  return new FairleadError(
    answer.message ?? `the agent of ${node} answers ${status}: ${text.slice(0, 200)}`,
    {
      op: `ask ${node}`,
      code: code === undefined ? 'not-running' : errorCode(code),
      ...(hint === undefined ? {} : { hint }),
    },
  );
}
