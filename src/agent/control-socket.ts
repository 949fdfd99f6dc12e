import { chmodSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { readFlowsRequest, streamFlows } from '../flows/flow-stream.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { PolicyPacket } from '../policy/allows.ts';
import type { AgentContext } from './agent-context.ts';
import { agentState, decidePackets, decidePolicies, readBody, switchMode } from './agent-state.ts';
import { badRequest } from './bad-request.ts';
import { placeControlSocket } from './control-socket-path.ts';
import type { ControlSources } from './control-sources.ts';
import { answerExplainBatch, type ExplainBatch } from './explain-part.ts';
import { answerModes, type ModesRequest } from './modes-part.ts';

/** Questions of one request, and what is known for them. */
const MAX_EXPLAIN_BYTES = 8 << 20;

/**
 * Answers the command line on this machine (root only, by the socket's file mode): HTTP with JSON. GET
 * /state; GET /flows (see FlowsRequest), one FlowsEntry per line; POST /mode {mode};
 * POST /explain ExplainBatch; POST /modes ModesRequest; POST /decide {packets}; POST /decide-policies {packets}, after the kernel has the known policies;
 * POST /verify.
 */
export function startControlSocket(context: AgentContext, sources: ControlSources): { close(): void } {
  const { stateDir } = context.configuration;
  const path = placeControlSocket(stateDir, process.env);
  const respond = (response: ServerResponse, status: number, body: unknown) => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body));
  };
  const server = createServer((request, response) => {
    const { method, url = '' } = request;
    // Inside the promise, so that a synchronous exception becomes a response too.
    Promise.resolve()
      .then(async () => {
        if (method === 'GET' && url.startsWith('/flows')) {
          const { searchParams } = new URL(url, 'http://agent');
          streamFlows(response, sources.part.flows, readFlowsRequest(searchParams));
        } else respond(response, 200, await answer(context, sources, request));
      })
      .catch((error: unknown) => {
        if (response.headersSent) {
          context.logger.warn({ url }, `the answer is incomplete: ${messageOf(error)}`);
          response.destroy();
          return;
        }
        const { op, code, hint } = error instanceof FairleadError ? error : {};
        respond(response, code === undefined ? 500 : 400, { message: messageOf(error), op, code, hint });
      });
  });
  server.on('error', (error) => context.logger.error({ err: error, path }, 'the control socket is closed'));
  server.listen(path, () => chmodSync(path, 0o600));
  server.unref();
  return {
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

async function answer(
  context: AgentContext,
  sources: ControlSources,
  request: IncomingMessage,
): Promise<unknown> {
  const { part } = sources;
  switch (`${request.method} ${request.url}`) {
    case 'GET /state':
      return agentState(context, part, sources.health);
    case 'POST /mode': {
      return await switchMode(context, part, await readBody(request));
    }
    case 'POST /verify':
      return { drifts: await part.proxy.drifts() };
    case 'POST /decide':
      return decidePackets(part, await readBody(request));
    case 'POST /decide-policies': {
      const { packets = [] } = await readBody<{ packets?: PolicyPacket[] }>(request);
      return await decidePolicies(sources.policies, packets);
    }
    case 'POST /explain': {
      const body = await readBody<Partial<ExplainBatch>>(request, MAX_EXPLAIN_BYTES);
      return await answerExplainBatch(context, sources, body);
    }
    case 'POST /modes':
      return await answerModes(sources, await readBody<Partial<ModesRequest>>(request));
    default:
      throw badRequest(`no such operation: ${request.method} ${request.url}`);
  }
}
