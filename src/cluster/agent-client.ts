import { request } from 'node:http';
import { join } from 'node:path';
import { controlSocketPath } from '../agent/control-socket.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { type ClusterState, clusterPaths } from './state.ts';

/** Asks the agent of a local cluster's node over its control socket. Throws FairleadError with the agent's words. */
export function askAgent<T>(
  state: ClusterState,
  node: string,
  method: 'GET' | 'POST',
  path: string,
  body?: unknown,
): Promise<T> {
  const socketPath = controlSocketPath(join(clusterPaths(state.name).node(node), 'state'));
  return new Promise((resolve, reject) => {
    const call = request({ socketPath, method, path, headers: { 'content-type': 'application/json' } });
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
            op: `ask ${node}`,
            code: answer.code ?? 'EIO',
            ...(answer.hint === undefined ? {} : { hint: answer.hint }),
          }),
        );
      });
      response.on('error', reject);
    });
    call.on('error', (error) => {
      reject(hasCode(error, 'ENOENT', 'ECONNREFUSED') ? agentNotRunning(state, node, error) : error);
    });
    call.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

/** What is said when nobody answers at an agent's control socket. */
export function agentNotRunning(state: ClusterState, node: string, cause?: unknown): FairleadError {
  return new FairleadError(`the agent of ${node} does not run`, {
    op: `ask ${node}`,
    code: 'not-running',
    hint: `start it again: fairlead up --detach --name ${state.name}`,
    ...(cause === undefined ? {} : { cause }),
  });
}
