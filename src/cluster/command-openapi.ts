import { availableModes } from '../agent/dataplanes.ts';
import { FLOW_LINE_KINDS, FLOW_VERDICTS } from '../flows/flow-line.ts';
import { COUNT, FLAG, type JsonSchema, list, object, orNull, TEXT } from '../lib/json-schema.ts';
import { COMMAND_OPERATIONS, COMMAND_ROOT, type CommandOperation } from './command-paths.ts';
import { requestSchema } from './explained-request-schema.ts';
import { DEFAULT_DELAY_MS, FAULT_KINDS, MAX_DELAY_MS } from './faults.ts';

const NUMBER: JsonSchema = { type: 'number' };
const one = (...values: readonly unknown[]): JsonSchema => ({ enum: values });
const ref = (name: keyof typeof SCHEMAS | 'Explanation'): JsonSchema => ({
  $ref: `#/components/schemas/${name}`,
});

const MODE = one(...availableModes());
const FAMILY = one('ipv4', 'ipv6');
const PROCESS = orNull(object({ pid: COUNT, startTime: TEXT }));
const SOCKET = object({ ip: TEXT, port: COUNT });
const LOOKUPS = object({ least: COUNT, most: COUNT, text: TEXT });
/** The packets and devices of a trace, for people: docs/trace.md. */
const TRACE = object({
  legs: list({ type: 'object' }),
  answer: {
    type: 'object',
    properties: { kind: one('answered', 'refused', 'unreachable', 'nothing') },
    required: ['kind'],
  },
  answeredAfterMs: orNull(NUMBER),
  counters: list({ type: 'object' }),
  drops: list(object({ place: TEXT, where: TEXT })),
  sizes: list({ type: 'object' }),
  lostFrames: COUNT,
  clocks: list({ type: 'object' }),
});
const STEP = object(
  {
    subject: one('name', 'entry', 'rule', 'endpoints', 'source', 'policy', 'route', 'arrival'),
    object: orNull(TEXT),
    ruleOrKey: orNull(TEXT),
    text: TEXT,
    to: list(object({ ip: TEXT, port: COUNT })),
    question: object({ name: TEXT, server: TEXT, result: TEXT }),
  },
  ['to', 'question'],
);

const MODE_SECTION = object({ kind: TEXT, command: TEXT, count: COUNT, lines: list(TEXT), isShared: FLAG });

/** The schemas of bodies, by the names of their types. */
export const SCHEMAS = {
  CommandRefusal: object({ message: TEXT, code: TEXT, hint: TEXT }, ['code', 'hint']),
  ClusterReport: object(
    {
      state: {
        ...object({
          name: TEXT,
          version: TEXT,
          createdAt: { type: 'string', format: 'date-time' },
          isCreated: FLAG,
          mode: MODE,
          proxy: object({ masqueradeAll: FLAG, localDetection: FLAG }),
          ipFamily: one('ipv4', 'ipv6', 'dual'),
          overlay: one('routes', 'vxlan'),
          clusterDomain: TEXT,
          authorization: one('RBAC', 'AlwaysAllow'),
          podCidrs: list(TEXT),
          serviceCidrs: list(TEXT),
          wireCidrs: list(TEXT),
          dnsAddresses: list(TEXT),
          apiPort: COUNT,
          nodes: list(
            object({ name: TEXT, addresses: list(TEXT), agent: PROCESS, isLeaving: FLAG }, ['isLeaving']),
          ),
        }),
        // The record of `up`, whose other fields may change with any version.
        additionalProperties: true,
      },
      supervision: object({
        supervisor: PROCESS,
        standby: PROCESS,
        processes: {
          type: 'object',
          additionalProperties: object({
            identity: PROCESS,
            startedAt: orNull(NUMBER),
            restarts: COUNT,
            failures: COUNT,
            lastExit: orNull(object({ at: NUMBER, reason: TEXT })),
            startAt: orNull(NUMBER),
          }),
        },
      }),
      recordProblem: orNull(TEXT),
      running: list(COUNT),
      ports: list(object({ text: TEXT, problem: orNull(TEXT) })),
      egress: list(object({ family: FAMILY, uplinks: list(TEXT), problem: orNull(TEXT) })),
      nameProblem: orNull(TEXT),
      links: list(
        object({
          node: TEXT,
          links: list(object({ role: one('uplink', 'tunnel', 'pod', 'wire'), device: TEXT, mtu: COUNT })),
        }),
      ),
    },
    ['links'],
  ),
  ExplainRequest: object({ from: TEXT, to: TEXT, family: orNull(FAMILY) }, ['family']),
  Explanation: object(
    {
      from: TEXT,
      to: TEXT,
      packet: orNull(
        object({
          source: TEXT,
          sourceClass: one('pod', 'node', 'external'),
          destination: TEXT,
          port: COUNT,
          protocol: one('TCP', 'UDP', 'SCTP'),
          node: orNull(TEXT),
        }),
      ),
      steps: list(STEP),
      endpoints: list(
        object({
          address: TEXT,
          port: COUNT,
          pod: orNull(TEXT),
          node: orNull(TEXT),
          odds: { type: 'number', minimum: 0, maximum: 1 },
          terminating: FLAG,
          masquerade: FLAG,
          hairpin: FLAG,
          nextHop: TEXT,
          arrival: one(
            ...[
              'answered',
              'refused',
              'queue-full',
              'waits',
              'no-host',
              'reply-lost',
              'unreachable',
              'denied',
              'filtered',
              'filtered-rejected',
              'fault',
              'unknown',
            ],
          ),
          clientSeen: orNull(TEXT),
        }),
      ),
      clientSeen: orNull(TEXT),
      verdict: one('delivered', 'partial', 'rejected', 'dropped', 'unreachable', 'unresolved', 'unknown'),
      reason: TEXT,
      causes: list(object({ text: TEXT, object: orNull(TEXT), field: orNull(TEXT), fix: orNull(TEXT) })),
      missing: list({
        type: 'object',
        properties: { kind: TEXT },
        required: ['kind'],
        additionalProperties: true,
      }),
      askNode: orNull(TEXT),
      gateway: requestSchema(),
    },
    ['gateway'],
  ),
  TracedFlow: object({
    explanation: { $ref: '#/components/schemas/Explanation' },
    lookups: list(object({ name: TEXT, type: one('A', 'AAAA'), server: TEXT, said: TEXT, trace: TRACE })),
    trace: orNull(TRACE),
    agreement: orNull(
      object({
        steps: list(object({ step: STEP, isRight: orNull(FLAG), seen: orNull(TEXT) })),
        isVerdictRight: orNull(FLAG),
      }),
    ),
  }),
  Fault: object({ kind: one(...FAULT_KINDS), target: TEXT }),
  FaultRequest: object(
    {
      kind: one(...FAULT_KINDS),
      target: { type: 'string', minLength: 1 },
      delayMs: { type: 'number', minimum: 1, maximum: MAX_DELAY_MS, default: DEFAULT_DELAY_MS },
    },
    ['delayMs'],
  ),
  PlantedFault: object({ fault: { $ref: '#/components/schemas/Fault' }, warnings: list(TEXT) }),
  ObjectQuestion: object({ node: TEXT, object: TEXT }),
  ObjectText: object({ text: TEXT, isCut: FLAG }),
  ModesQuestion: object({ namespace: TEXT, name: TEXT, node: orNull(TEXT) }, ['node']),
  ModeComparison: object({
    service: TEXT,
    node: TEXT,
    mode: MODE,
    frontends: list(TEXT),
    endpoints: COUNT,
    modes: list(
      object(
        {
          mode: MODE,
          isInUse: FLAG,
          unavailable: orNull(object({ reason: TEXT, fix: orNull(TEXT) })),
          sections: list(MODE_SECTION),
          counts: list(object({ kind: TEXT, count: COUNT })),
          sizes: list(object({ what: TEXT, bytes: COUNT })),
          translatedAt: TEXT,
          firstPacket: LOOKUPS,
          laterPackets: TEXT,
          differences: list(TEXT),
          notes: list(TEXT),
          kubeProxy: list(MODE_SECTION),
          drifts: orNull(list(TEXT)),
        },
        ['kubeProxy'],
      ),
    ),
  }),
  ModeRequest: object({ mode: MODE }),
  NodeMode: object({ name: TEXT, mode: TEXT }),
  FlowsEntry: {
    anyOf: [
      object(
        {
          asked: TEXT,
          type: one('flow'),
          time: { type: 'string', format: 'date-time' },
          kind: one(...FLOW_LINE_KINDS.filter((kind) => kind !== 'dns')),
          verdict: orNull(one(...FLOW_VERDICTS)),
          protocol: TEXT,
          client: SOCKET,
          service: orNull(object({ ip: TEXT, port: COUNT, name: orNull(TEXT) })),
          endpoint: orNull(SOCKET),
          proxy: orNull(SOCKET),
          micros: NUMBER,
          reason: orNull(TEXT),
        },
        ['asked'],
      ),
      object(
        {
          type: one('dns'),
          time: { type: 'string', format: 'date-time' },
          kind: one('dns'),
          verdict: one(...FLOW_VERDICTS),
          client: SOCKET,
          server: SOCKET,
          name: TEXT,
          types: list(TEXT),
          answers: list(TEXT),
          rcode: orNull(TEXT),
          tried: list(TEXT),
          questions: COUNT,
          micros: NUMBER,
          reason: orNull(TEXT),
        },
        ['reason'],
      ),
      object({ type: one('notice'), text: TEXT }),
    ],
  },
} as const satisfies Readonly<Record<string, JsonSchema>>;

interface OperationDescription {
  readonly summary: string;
  readonly request?: keyof typeof SCHEMAS;
  readonly answer: JsonSchema;
  /** One object per line, until the reader disconnects. */
  readonly isStream?: boolean;
  readonly parameters?: readonly {
    readonly in: 'path' | 'query';
    readonly name: string;
    readonly schema: JsonSchema;
    readonly description: string;
  }[];
}

const OPERATIONS: Readonly<Record<CommandOperation, OperationDescription>> = {
  'GET cluster': { summary: 'the state of the cluster and of its processes', answer: ref('ClusterReport') },
  'POST explain': {
    summary: 'explain the path of a packet, without sending one',
    request: 'ExplainRequest',
    answer: ref('Explanation'),
  },
  'POST trace': {
    summary: 'send one packet, and follow it through all devices',
    request: 'ExplainRequest',
    answer: ref('TracedFlow'),
  },
  'GET faults': { summary: 'list planted faults', answer: list(ref('Fault')) },
  'POST faults': { summary: 'plant a fault', request: 'FaultRequest', answer: ref('PlantedFault') },
  'DELETE faults': { summary: 'undo all faults, and return them', answer: list(ref('Fault')) },
  'POST object': {
    summary: 'print a kernel object of a node, as its tools do',
    request: 'ObjectQuestion',
    answer: ref('ObjectText'),
  },
  'POST modes': {
    summary: 'compare how each proxy mode implements a Service',
    request: 'ModesQuestion',
    answer: ref('ModeComparison'),
  },
  'POST mode': {
    summary: 'switch the proxy mode of all nodes',
    request: 'ModeRequest',
    answer: list(ref('NodeMode')),
  },
  'GET nodes/{node}/flows': {
    summary: 'follow connections and DNS lookups of a node',
    answer: ref('FlowsEntry'),
    isStream: true,
    parameters: [
      { in: 'path', name: 'node', schema: TEXT, description: 'the name of the node' },
      {
        in: 'query',
        name: 'since',
        schema: NUMBER,
        description: 'recorded entries since this time come first, in milliseconds since 1970',
      },
      {
        in: 'query',
        name: 'follow',
        schema: { type: 'boolean', default: true },
        description: 'false: the answer ends after the recorded entries',
      },
    ],
  },
};

/** Returns the OpenAPI 3.1 document of the paths that a local cluster's API server answers for commands. */
export function commandOpenApi() {
  const paths: Record<string, Record<string, object>> = {};
  for (const operation of COMMAND_OPERATIONS) {
    const [method = '', path = ''] = operation.split(' ');
    const place = `${COMMAND_ROOT}/${path}`;
    paths[place] = { ...paths[place], [method.toLowerCase()]: operationObject(OPERATIONS[operation]) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Commands of a local Fairlead cluster',
      version: 'v1',
      description:
        "Served by the cluster's API server to users whom its authorization lets access these non-resource URLs; with RBAC, the default, these are administrators.",
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    paths,
    components: { schemas: SCHEMAS },
  };
}

function operationObject({
  summary,
  request,
  answer,
  isStream = false,
  parameters = [],
}: OperationDescription): object {
  const content = (type: string, schema: JsonSchema) => ({ [type]: { schema } });
  return {
    summary,
    ...(parameters.length === 0
      ? {}
      : { parameters: parameters.map((parameter) => ({ ...parameter, required: parameter.in === 'path' })) }),
    ...(request === undefined
      ? {}
      : { requestBody: { required: true, content: content('application/json', ref(request)) } }),
    responses: {
      200: {
        description: isStream ? 'one object per line' : 'the answer',
        content: content(isStream ? 'application/x-ndjson' : 'application/json', answer),
      },
      400: {
        description: 'why the command failed, and what to do',
        content: content('application/json', ref('CommandRefusal')),
      },
    },
  };
}
