import { availableModes } from '../agent/dataplanes.ts';
import { SCHEMAS } from '../cluster/command-openapi.ts';
import { COUNT, DRAFT, FLAG, type JsonSchema, list, object, orNull, TEXT } from '../lib/json-schema.ts';
import { OUTPUT_VERSION } from './output-format.ts';
import { PROBLEM_CODES } from './problem.ts';

const TIME: JsonSchema = { type: 'string', format: 'date-time' };
const byName = (additionalProperties: JsonSchema): JsonSchema => ({ type: 'object', additionalProperties });
const ref = (name: string): JsonSchema => ({ $ref: `#/$defs/${name}` });
const MODE: JsonSchema = { enum: availableModes() };
const FAMILY: JsonSchema = { enum: ['ipv4', 'ipv6'] };

/** An object that a command prints: all of them have the version. */
const output = (
  properties: Readonly<Record<string, JsonSchema>>,
  optional: readonly string[] = [],
): JsonSchema => object({ apiVersion: { const: OUTPUT_VERSION }, ...properties }, optional);

/** An object that the API of a local cluster answers, too. */
const answered = (name: keyof typeof SCHEMAS): JsonSchema => {
  const schema: JsonSchema = SCHEMAS[name];
  const versioned = (one: JsonSchema): JsonSchema => ({
    ...one,
    properties: { apiVersion: { const: OUTPUT_VERSION }, ...one.properties },
    required: ['apiVersion', ...(one.required ?? [])],
  });
  return inDefinitions(schema.anyOf ? { anyOf: schema.anyOf.map(versioned) } : versioned(schema));
};

/** Rewrites references to the place of definitions in a document of JSON Schema. */
const inDefinitions = (schema: JsonSchema): JsonSchema =>
  JSON.parse(JSON.stringify(schema).replaceAll('#/components/schemas/', '#/$defs/')) as JsonSchema;

const FLOW_RESULTS = list(
  object({ flow: TEXT, mode: TEXT, expected: TEXT, seen: TEXT, ok: FLAG }, ['mode', 'expected', 'seen']),
);
const NODE_MODES = list(object({ name: TEXT, mode: orNull(MODE), problem: orNull(TEXT) }, ['problem']));

/** A lesson, and how far its learner is. */
const LESSON_ENTRY = object({
  name: TEXT,
  title: TEXT,
  summary: TEXT,
  steps: COUNT,
  done: orNull(COUNT),
  state: { enum: ['not begun', 'begun', 'finished'] },
  at: orNull(TEXT),
});

/** The output of each command with `-o json`, or with `-o yaml`; several forms: it depends on its arguments. */
const OUTPUTS: Readonly<Record<string, JsonSchema>> = {
  status: {
    anyOf: [
      output({
        name: TEXT,
        processes: list(
          object({
            name: TEXT,
            pid: orNull(COUNT),
            since: orNull(TIME),
            restarts: COUNT,
            lastExit: orNull(object({ at: TIME, reason: TEXT })),
            seconds: orNull({ type: 'number' }),
          }),
        ),
        nodes: list(object({ name: TEXT, addresses: list(TEXT), mode: TEXT, ready: FLAG, pods: COUNT })),
        services: list(
          object({
            namespace: TEXT,
            name: TEXT,
            type: TEXT,
            frontends: list(TEXT),
            ready: list(TEXT),
            endpoints: COUNT,
            summary: TEXT,
            loadBalancer: list(object({ address: TEXT, node: orNull(TEXT) })),
          }),
        ),
        ingresses: list(
          object({ namespace: TEXT, name: TEXT, class: TEXT, hosts: list(TEXT), addresses: list(TEXT) }),
        ),
        ports: list(object({ port: COUNT, service: { type: 'object' }, status: TEXT })),
        egress: list(object({ family: FAMILY, uplinks: list(TEXT), problem: orNull(TEXT) })),
        problems: list(ref('Problem')),
        warnings: list(TEXT),
      }),
      output({
        context: TEXT,
        nodes: list(
          object({ name: TEXT, addresses: list(TEXT), ready: FLAG, agent: orNull({ type: 'object' }) }),
        ),
        services: COUNT,
        problems: list(ref('Problem')),
      }),
    ],
  },
  up: output({
    name: TEXT,
    isNew: FLAG,
    server: TEXT,
    kubeconfig: TEXT,
    mode: MODE,
    ipFamily: { enum: ['ipv4', 'ipv6', 'dual'] },
    nodes: list(object({ name: TEXT, addresses: list(TEXT) })),
    publishedPorts: list(object({ localPort: COUNT, service: { type: 'object' } })),
    applied: list(object({ apiVersion: TEXT, kind: TEXT, namespace: TEXT, name: TEXT })),
  }),
  clusters: list(
    output({
      name: TEXT,
      status: { enum: ['running', 'stopped', 'incomplete', 'of root'] },
      nodes: orNull(COUNT),
      mode: orNull(TEXT),
      ipFamily: orNull(TEXT),
      server: orNull(TEXT),
      createdAt: orNull(TIME),
    }),
  ),
  explain: {
    anyOf: [answered('Explanation'), answered('ModeComparison'), output({}), list(output({}))],
  },
  trace: { anyOf: [answered('TracedFlow'), list(answered('TracedFlow'))] },
  flows: answered('FlowsEntry'),
  capture: output({ time: TIME, place: TEXT, direction: TEXT, device: TEXT, packet: TEXT, note: TEXT }, [
    'note',
  ]),
  mode: output({ nodes: NODE_MODES }),
  check: output(
    {
      cluster: TEXT,
      context: TEXT,
      modes: byName(TEXT),
      flows: FLOW_RESULTS,
      drifts: list({ type: 'object' }),
      failed: COUNT,
      skipped: list(TEXT),
    },
    ['cluster', 'context'],
  ),
  fault: {
    anyOf: [
      output({ planted: ref('Fault') }),
      output({ faults: list(ref('Fault')) }),
      output({ undone: list(ref('Fault')) }),
    ],
  },
  request: output({ count: COUNT, answers: byName(COUNT), failures: byName(COUNT) }),
  image: {
    anyOf: [
      list(output({ name: TEXT, digest: TEXT, size: COUNT, source: TEXT, storedAt: TEXT })),
      output({ removed: TEXT }),
    ],
  },
  preflight: {
    anyOf: [output({ findings: list({ type: 'object' }) }), output({ nodes: list({ type: 'object' }) })],
  },
  doctor: output({
    kernel: TEXT,
    node: TEXT,
    facts: list(object({ what: TEXT, state: TEXT, why: TEXT, fix: orNull(TEXT) })),
  }),
  cleanup: output({ steps: list(object({ what: TEXT, error: orNull(TEXT), hint: orNull(TEXT) })) }),
  learn: {
    anyOf: [
      output({ cluster: TEXT, lessons: list(LESSON_ENTRY) }),
      output({ reset: { const: true } }),
      output({}),
    ],
  },
};

/** The names of the commands whose output has a schema. */
export const commandsWithSchemas = (): string[] => Object.keys(OUTPUTS);

/** Returns the JSON Schema of the output of all commands: the definition of a command has its name. */
export function commandOutputSchema(): JsonSchema {
  const codes = Object.entries(PROBLEM_CODES).map(([code, meaning]) => ({
    const: code,
    description: meaning,
  }));
  return {
    $schema: DRAFT,
    $id: 'urn:fairlead:schema:command-output:v1alpha1',
    title: 'Output of commands',
    description:
      'What commands print with -o json and -o yaml: $defs/COMMAND. `flows` and `capture` print one such object a line, or a document of YAML. docs/versioning.md says what may change.',
    $defs: {
      ...OUTPUTS,
      Problem: object({
        code: { anyOf: codes },
        object: orNull(TEXT),
        field: orNull(TEXT),
        message: TEXT,
      }),
      Explanation: inDefinitions(SCHEMAS.Explanation),
      Fault: inDefinitions(SCHEMAS.Fault),
    },
  };
}
