/** Below this path, an agent answers commands from other machines. */
const COMMAND_PORT_ROOT = '/fairlead/v1';

/** The port if a pod of agents does not name another one in its annotation. */
export const COMMAND_PORT = 10_268;
/** Annotation of an agent's pod: the port of `commandsBindAddress`. */
export const COMMAND_PORT_ANNOTATION = 'fairlead.dev/commands-port';

/** The header with the token of a request: API servers remove Authorization from requests that they forward. */
export const TOKEN_HEADER = 'fairlead-token';

/** The ServiceAccounts whose tokens the commands send, in the namespace of the agents' pods. */
export const VIEWER = 'fairlead-viewer';
export const OPERATOR = 'fairlead-operator';

/**
 * Returns the audience of tokens for a node's agent. Other nodes and the API server do not accept the token, so that
 * a node from which it is stolen can do nothing with it.
 */
export const audienceOf = (node: string): string => `fairlead-agent/${node}`;

/** Whether an operation only looks, or changes something: the verb of its access review. */
export type CommandVerb = 'get' | 'update';

interface CommandRight {
  readonly method: 'GET' | 'POST';
  readonly verb: CommandVerb;
}

/** The operations of an agent, by the last part of their paths. */
export const COMMAND_OPERATIONS = {
  /** AgentState */
  state: { method: 'GET', verb: 'get' },
  /** FlowsRequest → one FlowsEntry per line */
  flows: { method: 'GET', verb: 'get' },
  /** ExplainBody → Explanation */
  explain: { method: 'POST', verb: 'get' },
  /** FactBody → FactAnswer */
  fact: { method: 'POST', verb: 'get' },
  /** ModesRequest → ModeComparison */
  modes: { method: 'POST', verb: 'get' },
  /** → NodeSettings */
  settings: { method: 'GET', verb: 'get' },
  /** {packets: Packet[]} → {verdicts: Verdict[]}, or {policyPackets: PolicyPacket[]} → {verdicts: PolicyVerdict[]} */
  decide: { method: 'POST', verb: 'get' },
  /** → {drifts: Drift[]} */
  verify: { method: 'GET', verb: 'get' },
  /** CaptureBody → one CaptureLine per line: packets with their contents */
  capture: { method: 'POST', verb: 'update' },
  /** TraceBody → one TraceLine per line: sends a packet, and observes it */
  trace: { method: 'POST', verb: 'update' },
  /** ProbeBody → Outcome: sends packets from the node or a pod */
  probe: { method: 'POST', verb: 'update' },
  /** {mode} → AgentState */
  mode: { method: 'POST', verb: 'update' },
} as const satisfies Readonly<Record<string, CommandRight>>;

export type CommandOperation = keyof typeof COMMAND_OPERATIONS;

/** Returns the operations that only look, or all. */
export const operationsOf = (who: 'viewer' | 'operator'): readonly CommandOperation[] =>
  (Object.keys(COMMAND_OPERATIONS) as CommandOperation[]).filter(
    (name) => who === 'operator' || COMMAND_OPERATIONS[name].verb === 'get',
  );

/** Returns the path of an operation, which is also the URL of its access review. */
export const commandPath = (operation: CommandOperation): string => `${COMMAND_PORT_ROOT}/${operation}`;
