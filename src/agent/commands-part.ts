import { readFlowsRequest, streamFlows } from '../flows/flow-stream.ts';
import type { PolicyPacket } from '../policy/allows.ts';
import type { AgentContext } from './agent-context.ts';
import { agentState, decidePackets, decidePolicies, switchMode } from './agent-state.ts';
import { createCommandAuthorization } from './command-authorization.ts';
import { startCommandPort } from './command-port.ts';
import type { ControlSources } from './control-sources.ts';
import { answerExplain, type ExplainBody } from './explain-part.ts';
import { answerModes, type ModesRequest } from './modes-part.ts';
import { type CaptureBody, createNodeCapture } from './node-capture.ts';
import { answerFact, type FactBody } from './node-facts.ts';
import { createNodeProber, nodeSettings, type ProbeBody } from './node-probes.ts';
import { createNodeTrace } from './node-trace.ts';
import type { TraceBody } from './trace-body.ts';

/** Serves commands from other machines at the configured address; null: none is configured. */
export function startCommands(context: AgentContext, sources: ControlSources): { close(): void } | null {
  const { configuration, client, clock, logger } = context;
  const { commandsBindAddress: bind, nodeName: node } = configuration;
  if (bind === null) return null;
  const { part, policies, services } = sources;
  const probe = createNodeProber(clock);
  const capture = createNodeCapture(configuration);
  const trace = createNodeTrace(configuration);
  return startCommandPort({
    bind,
    node,
    authorization: createCommandAuthorization(client, node, clock),
    clock,
    logger: logger.child({ part: 'commands' }),
    handlers: {
      state: () => agentState(context, part, sources.health),
      mode: (body) => switchMode(context, part, body),
      explain: (body) => answerExplain(context, sources, (body ?? {}) as Partial<ExplainBody>),
      modes: (body) => answerModes(sources, (body ?? {}) as Partial<ModesRequest>),
      fact: (body) => answerFact(configuration, services, body as Partial<FactBody> | null),
      settings: () => ({
        ...nodeSettings(configuration),
        enforcesPolicies: policies !== null && !policies.isForbidden(),
      }),
      decide: (body) => {
        const { policyPackets } = (body ?? {}) as { readonly policyPackets?: readonly PolicyPacket[] };
        return policyPackets ? decidePolicies(policies, policyPackets) : decidePackets(part, body);
      },
      verify: async () => ({ drifts: await part.proxy.drifts() }),
      capture: (body, response) => capture(body as Partial<CaptureBody> | null, response),
      trace: (body, response) => trace(body as Partial<TraceBody> | null, response),
      probe: (body) => probe(body as Partial<ProbeBody> | null),
      flows: (query, response) => streamFlows(response, part.flows, readFlowsRequest(query)),
    },
  });
}
