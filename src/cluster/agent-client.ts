import { type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { controlSocketPath } from '../agent/control-socket-path.ts';
import type { ModesRequest } from '../agent/modes-part.ts';
import { type FlowsRequest, flowsQuery } from '../flows/flow-stream.ts';
import { errorCode } from '../lib/error-codes.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import type { ModeComparison } from '../modes/comparison.ts';
import { type ClusterState, clusterPaths } from './state.ts';

/** A question about a Service in all modes. */
export interface ModesQuestion extends ModesRequest {
  readonly node: string | null;
}

/** Reads a question from JSON: {namespace, name, node?}. Throws FairleadError. */
export function readModesQuestion(value: unknown): ModesQuestion {
  const { namespace, name, node = null } = (value ?? {}) as Record<string, unknown>;
  if (
    typeof namespace === 'string' &&
    typeof name === 'string' &&
    (node === null || typeof node === 'string')
  )
    return { namespace, name, node };
  throw new FairleadError('namespace and name must be strings, node a string or null', {
    op: 'compare modes',
    code: 'BadRequest',
  });
}

/** An agent by its control socket. */
interface AgentPlace {
  /** As errors name it: "node-1". */
  readonly name: string;
  readonly socketPath: string;
  /** The fix if it is not running. */
  readonly hint: string;
}

const agentOf = (state: ClusterState, node: string): AgentPlace => ({
  name: node,
  socketPath: controlSocketPath(join(clusterPaths(state.name).node(node), 'state')),
  hint: `fairlead status --name ${state.name}`,
});

/** Sends a request to the agent of a local node through its control socket. Throws FairleadError with the agent's message. */
export const askAgent = <T>(
  state: ClusterState,
  node: string,
  method: 'GET' | 'POST',
  path: string,
  body?: unknown,
): Promise<T> => ask<T>(agentOf(state, node), method, path, body);

function ask<T>(place: AgentPlace, method: 'GET' | 'POST', path: string, body?: unknown): Promise<T> {
  const { name, socketPath } = place;
  return new Promise((resolve, reject) => {
    // Not a kept connection: the agent may close it while the next request is being sent.
    const headers = { 'content-type': 'application/json' };
    const call = request({ socketPath, method, path, headers, agent: false });
    call.on('response', (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      response.on('end', () => {
        const answer = JSON.parse(text || '{}') as { message?: string; code?: string; hint?: string };
        if (response.statusCode === 200) return resolve(answer as T);
        reject(
          new FairleadError(answer.message ?? `status ${response.statusCode}`, {
            op: `ask ${name}`,
            code: errorCode(answer.code),
            ...(answer.hint === undefined ? {} : { hint: answer.hint }),
          }),
        );
      });
      response.on('error', reject);
    });
    call.on('error', (error) => {
      reject(hasCode(error, 'ENOENT', 'ECONNREFUSED') ? notRunning(place, error) : error);
    });
    call.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

/**
 * Compares the proxy modes for a Service on this machine, by its agent's state folder: the way to the agent of a real
 * cluster's node, whose control socket only root on the node may open. Throws FairleadError.
 */
export const compareModesHere = (stateDir: string, wanted: ModesRequest): Promise<ModeComparison> =>
  ask(
    {
      name: 'this machine',
      socketPath: controlSocketPath(stateDir),
      hint: `--agent takes the stateDir of the agent's configuration, and only root may read it`,
    },
    'POST',
    '/modes',
    wanted,
  );

/** Compares the proxy modes for a Service on a node; null: the first one. Throws FairleadError. */
export function compareModesOn(
  state: ClusterState,
  { node, namespace, name }: ModesQuestion,
): Promise<ModeComparison> {
  const names = state.nodes.map((one) => one.name);
  const asked = node ?? names[0] ?? '';
  if (names.includes(asked)) return askAgent(state, asked, 'POST', '/modes', { namespace, name });
  throw new FairleadError(`no such node: ${asked}`, {
    op: 'compare modes',
    code: 'no-node',
    hint: `use one of ${names.join(', ')}`,
  });
}

/**
 * Opens the stream of a node's flows: one FlowsEntry per line, until the signal aborts, or all was read that was asked for.
 * Throws FairleadError if the agent is not running.
 */
export function openFlows(
  state: ClusterState,
  node: string,
  wanted: FlowsRequest,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const socketPath = controlSocketPath(join(clusterPaths(state.name).node(node), 'state'));
  return new Promise((resolve, reject) => {
    const call = request({ socketPath, path: `/flows?${flowsQuery(wanted)}`, signal, agent: false });
    call.on('response', resolve);
    // After the response, the errors are those of its stream.
    call.on('error', (error) => reject(agentNotRunning(state, node, error)));
    call.end();
  });
}

/** Returns the error for a control socket without a listener. */
export const agentNotRunning = (state: ClusterState, node: string, cause?: unknown): FairleadError =>
  notRunning(agentOf(state, node), cause);

const notRunning = ({ name, hint }: AgentPlace, cause?: unknown): FairleadError =>
  new FairleadError(`the agent of ${name} is not running`, {
    op: `ask ${name}`,
    code: 'not-running',
    hint,
    ...(cause === undefined ? {} : { cause }),
  });
