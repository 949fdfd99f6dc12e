import { PassThrough } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { listObjectsToExplain } from '../agent/explain-objects.ts';
import type { FurtherPaths } from '../apiserver/services.ts';
import { type FlowsRequest, readFlowsRequest } from '../flows/flow-stream.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { isRunning } from '../kernel/process-identity.ts';
import type { Client } from '../kube/client.ts';
import { RESOURCES } from '../kube/types.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { createSemaphore } from '../lib/semaphore.ts';
import type { ExplainRequest } from '../observe/explain-view.ts';
import { compareModesOn, openFlows, readModesQuestion } from './agent-client.ts';
import { readReport } from './cluster-report.ts';
import { createFlowExplainer } from './explain-flow.ts';
import { explainUrl } from './explain-url.ts';
import { listFaults, plantFault, readFaultRequest, undoFaults } from './faults.ts';
import { changeMode, readModeRequest } from './mode-change.ts';
import { readObjectQuestion, readObjectText } from './object-text.ts';
import { readSupervision, requireCluster } from './state.ts';
import { traceFlow } from './trace-flow.ts';

/**
 * Below this path, a local cluster's API server answers commands of users who may not read the state folder: GET
 * cluster (ClusterReport), POST explain (ExplainRequest → Explanation), POST trace (TraceQuestion → TracedFlow),
 * POST object (ObjectQuestion → ObjectText), GET faults (Fault[]), POST faults (FaultRequest → PlantedFault), DELETE faults (the Fault[] that were undone), POST mode
 * ({mode} → NodeMode[]), POST modes (ModesQuestion → ModeComparison) and GET nodes/NAME/flows (see
 * FlowsRequest; one FlowsEntry per line).
 */
export const COMMAND_ROOT = '/fairlead/v1';

/** The operations below COMMAND_ROOT; command-openapi.ts describes each. */
export const COMMAND_OPERATIONS = [
  'GET cluster',
  'POST explain',
  'POST trace',
  'GET faults',
  'POST faults',
  'DELETE faults',
  'POST object',
  'POST modes',
  'POST mode',
  'GET nodes/{node}/flows',
] as const;
export type CommandOperation = (typeof COMMAND_OPERATIONS)[number];

/** An error as these paths answer it. */
export interface CommandRefusal {
  readonly message: string;
  readonly code?: string;
  readonly hint?: string;
}

type Answer = Awaited<NonNullable<ReturnType<FurtherPaths>>>;

/** Packets that are traced at the same time; each reads the frames of many devices. */
const MAX_TRACES = 2;

/** Returns the handler of a cluster's paths, for its control plane. `client`: returns a client of its API server. */
export function commandPaths(name: string, client: () => Client): FurtherPaths {
  const traces = createSemaphore(MAX_TRACES);
  const listObjects = () => listObjectsToExplain(client());
  return ({ method, path, query, body, signal }) => {
    if (!path.startsWith(`${COMMAND_ROOT}/`)) return null;
    const answer = async (): Promise<Answer> => {
      const typed = `${method} ${path.slice(COMMAND_ROOT.length + 1)}`;
      const node = /^GET nodes\/([^/]+)\/flows$/.exec(typed)?.[1] ?? '';
      const operation = node === '' ? typed : 'GET nodes/{node}/flows';
      if (!isOperation(operation)) return json(404, { message: `no such operation: ${typed}` });
      switch (operation) {
        case 'GET cluster':
          return json(200, await readReport(requireCluster(name)));
        case 'POST explain': {
          const explainer = createFlowExplainer(requireCluster(name), {
            machine: machineOf(name),
            listObjects,
          });
          return json(200, await explainUrl(readExplainRequest(await body()), client, explainer));
        }
        case 'POST trace': {
          const question = readExplainRequest(await body());
          const { items } = await client().list(RESOURCES.pods);
          return json(
            200,
            await traces.run(() =>
              traceFlow(requireCluster(name), items, question, machineOf(name), listObjects),
            ),
          );
        }
        case 'GET faults':
          return json(200, await listFaults(requireCluster(name), client()));
        case 'POST faults':
          return json(
            200,
            await plantFault(requireCluster(name), client(), readFaultRequest(readJson(await body()))),
          );
        case 'DELETE faults':
          return json(200, await undoFaults(requireCluster(name), client()));
        case 'POST object':
          return json(
            200,
            await readObjectText(requireCluster(name), readObjectQuestion(readJson(await body()))),
          );
        case 'POST modes':
          return json(
            200,
            await compareModesOn(requireCluster(name), readModesQuestion(readJson(await body()))),
          );
        case 'POST mode': {
          const mode = readModeRequest(readJson(await body()));
          return json(200, await changeMode(requireCluster(name), client(), mode));
        }
        case 'GET nodes/{node}/flows':
          return await flows(name, node, readFlowsRequest(query), signal);
      }
    };
    return answer().catch((error: unknown) => {
      if (!(error instanceof FairleadError)) throw error;
      const { message, code, hint } = error;
      return json(400, { message, code, ...(hint === undefined ? {} : { hint }) });
    });
  };
}

const isOperation = (text: string): text is CommandOperation =>
  COMMAND_OPERATIONS.some((operation) => operation === text);

/** The supervisor runs in the machine's own network, this process does not. */
function machineOf(name: string): NetnsRef {
  const { supervisor, standby } = readSupervision(name);
  // The path of process 0 does not exist: what cannot be read is unknown to the explanation.
  return { pid: [supervisor, standby].find(isRunning)?.pid ?? 0 };
}

async function flows(name: string, node: string, wanted: FlowsRequest, signal: AbortSignal): Promise<Answer> {
  const state = requireCluster(name);
  if (!state.nodes.some((one) => one.name === node))
    throw new FairleadError(`no such node: ${node}`, { op: 'read flows', code: 'no-node' });
  const lines = await openFlows(state, node, wanted, signal);
  const body = new PassThrough();
  // The reader sees the end of the stream, for whichever reason.
  pipeline(lines, body, { signal }).catch(() => body.end());
  return { status: 200, headers: { 'content-type': 'application/x-ndjson' }, body };
}

function readExplainRequest(body: Buffer): ExplainRequest {
  const { from, to, family = null } = (readJson(body) ?? {}) as Partial<ExplainRequest>;
  if (typeof from !== 'string' || typeof to !== 'string') throw badRequest('from and to must be strings');
  if (family !== null && family !== 'ipv4' && family !== 'ipv6')
    throw badRequest('family must be ipv4, ipv6 or null');
  return { from, to, family };
}

function readJson(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch (error) {
    throw badRequest(`the body is not JSON: ${messageOf(error)}`);
  }
}

const badRequest = (message: string) =>
  new FairleadError(message, { op: 'answer a command', code: 'BadRequest' });

const json = (status: number, value: unknown): Answer => ({
  status,
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify(value),
});
