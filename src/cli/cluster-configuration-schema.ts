import { agentSchemaAt } from '../agent/configuration-schema.ts';
import { DRAFT, type JsonSchema } from '../lib/json-schema.ts';
import { API_VERSION, fieldName, KIND } from './cluster-configuration.ts';
import type { Option } from './options.ts';
import { CONFIGURABLE, OPTIONS, STRUCTURED } from './up.ts';

const TEXT_OR_TEXTS: readonly JsonSchema[] = [
  { type: ['string', 'number'] },
  { type: 'array', items: { type: ['string', 'number'] } },
];

/** Returns the JSON Schema of the file of `up --config`, from the options of `up` that it may set. */
export function clusterConfigurationSchema(): JsonSchema {
  const options: Readonly<Record<string, Option>> = OPTIONS;
  const fields = CONFIGURABLE.flatMap((name): [string, JsonSchema][] => {
    const option = options[name];
    if (!option) return [];
    const schema = STRUCTURED.includes(name) ? poolsSchema() : optionSchema(option);
    return [[fieldName(name), { description: option.help, ...schema }]];
  });
  return {
    $schema: DRAFT,
    $id: 'urn:fairlead:schema:cluster:v1alpha1',
    title: 'Cluster',
    description: 'A local cluster: fairlead up --config FILE. Each field is an option of the command.',
    type: 'object',
    properties: {
      apiVersion: { const: API_VERSION },
      kind: { const: KIND },
      ...Object.fromEntries(fields),
      manifests: {
        description: 'Files and folders to apply, relative to this file, and URLs.',
        type: 'array',
        items: { type: 'string' },
      },
    },
    required: ['apiVersion', 'kind'],
    additionalProperties: false,
  };
}

function optionSchema(option: Option): JsonSchema {
  switch (option.kind) {
    case 'flag':
      return { type: 'boolean', default: false };
    case 'number':
      return { type: 'integer', minimum: option.min, maximum: option.max, default: option.fallback };
    case 'choice':
      return { enum: option.choices, default: option.fallback };
    case 'text':
      return { anyOf: TEXT_OR_TEXTS, ...(option.fallback === null ? {} : { default: option.fallback }) };
    case 'texts':
      return { anyOf: TEXT_OR_TEXTS };
  }
}

/** Returns the schema of pools: ranges, or pools by name with the fields of the agent's loadBalancer.pools. */
function poolsSchema(): JsonSchema {
  const { properties = {} } = agentSchemaAt('loadBalancer.');
  const { additionalProperties = true } = properties['pools'] ?? {};
  return { anyOf: [...TEXT_OR_TEXTS, { type: 'object', additionalProperties }] };
}
