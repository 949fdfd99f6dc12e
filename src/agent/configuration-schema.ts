import { DRAFT, type JsonSchema } from '../lib/json-schema.ts';
import { readAgent } from './configuration.ts';
import { FIELD_MEANINGS } from './configuration-document.ts';
import { type FieldDescription, recordFields } from './field-recorder.ts';

/**
 * Returns the JSON Schema of an AgentConfiguration, from the fields of its reader. It is narrower than the reader in one
 * point: the reader takes null as an absent field.
 */
export function agentConfigurationSchema(): JsonSchema {
  return {
    $schema: DRAFT,
    $id: 'urn:fairlead:schema:agent-configuration:v1alpha1',
    title: 'AgentConfiguration',
    description: 'The configuration of the agent of a node: fairlead agent --config FILE.',
    ...agentSchemaAt(''),
    required: ['apiVersion', 'kind'],
  };
}

/** Returns the schema of the fields below a path, such as "loadBalancer.pools.NAME."; the root is "". */
export function agentSchemaAt(prefix: string): JsonSchema {
  const fields = recordFields(readAgent);
  return {
    type: 'object',
    properties: Object.fromEntries(
      fields
        .filter(({ path }) => isChild(path, prefix))
        .map((field) => [field.path.slice(prefix.length), fieldSchema(field)]),
    ),
    additionalProperties: false,
  };
}

/** Returns whether a path is that of a field directly below a prefix. */
const isChild = (path: string, prefix: string): boolean =>
  path.startsWith(prefix) && path.length > prefix.length && !/[.[]/.test(path.slice(prefix.length));

function fieldSchema({ path, schema }: FieldDescription): JsonSchema {
  const described = { ...schema, description: FIELD_MEANINGS[path] ?? '' };
  if (path === 'kind') return { ...described, const: 'AgentConfiguration' };
  const objects = ['.', '[].', '.NAME.'].map((end) => agentSchemaAt(`${path}${end}`));
  const [own, ofItems, ofEntries] = objects.map((one) => (hasFields(one) ? one : undefined));
  if (ofItems) return { ...described, items: ofItems };
  if (ofEntries) {
    const { additionalProperties } = schema;
    const forms = typeof additionalProperties === 'object' ? (additionalProperties.anyOf ?? []) : [];
    const anyOf = forms.map((form) => (form.type === 'object' ? ofEntries : form));
    return { ...described, additionalProperties: { anyOf } };
  }
  return own ? { ...described, ...own } : described;
}

const hasFields = ({ properties = {} }: JsonSchema): boolean => Object.keys(properties).length > 0;
