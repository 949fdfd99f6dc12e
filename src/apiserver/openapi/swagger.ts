/** Plain JSON of a document. */
type Json = Record<string, unknown>;

const COMPONENTS = '#/components/schemas/';
const METHODS = ['get', 'put', 'post', 'delete', 'options', 'head', 'patch'];
/** Keywords of a schema that OpenAPI 2 also has. */
const COMMON_KEYWORDS = [
  'description',
  'format',
  'title',
  'default',
  'multipleOf',
  'maximum',
  'exclusiveMaximum',
  'minimum',
  'exclusiveMinimum',
  'maxLength',
  'minLength',
  'pattern',
  'maxItems',
  'minItems',
  'uniqueItems',
  'maxProperties',
  'minProperties',
  'required',
  'enum',
  'type',
  'readOnly',
  'example',
];

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Merges the OpenAPI 3 documents of all group-versions into one OpenAPI 2 document, as served at /openapi/v2. */
export function swaggerDocument(documents: readonly Json[], version: string): Json {
  const paths: Json = {};
  const definitions: Json = {};
  for (const { paths: own, components } of documents) {
    for (const [path, item] of Object.entries(isObject(own) ? own : {})) paths[path] = pathItem(item as Json);
    const schemas = isObject(components) && isObject(components['schemas']) ? components['schemas'] : {};
    for (const [name, schema] of Object.entries(schemas)) {
      // Shared types (ObjectMeta) occur in many documents; the type of a kind names its group, version and kind.
      const converted = definition(schema as Json);
      definitions[name] = mergedDefinition(definitions[name] as Json | undefined, converted);
    }
  }
  return {
    swagger: '2.0',
    info: { title: 'Kubernetes', version },
    paths: sorted(paths),
    definitions: sorted(definitions),
  };
}

const KINDS = 'x-kubernetes-group-version-kind';

/**
 * Converts a schema to a definition. A custom kind that preserves unknown fields is published as any object, as
 * upstream does: old clients reject properties that are not listed.
 */
function definition(schema: Json): Json {
  const isOpen = schema['x-kubernetes-preserve-unknown-fields'] === true && schema[KINDS] !== undefined;
  return isOpen ? { type: 'object', [KINDS]: schema[KINDS] } : swaggerSchema(schema);
}

/** Merges the kinds of two definitions: DeleteOptions, for example, belongs to every group. */
function mergedDefinition(one: Json | undefined, other: Json): Json {
  const kinds = [one?.[KINDS], other[KINDS]].flatMap((list) => (Array.isArray(list) ? list : []));
  if (kinds.length === 0) return one ?? other;
  const unique = [...new Map(kinds.map((kind) => [JSON.stringify(kind), kind])).values()];
  return { ...(one ?? other), [KINDS]: unique };
}

function sorted(object: Json): Json {
  return Object.fromEntries(Object.entries(object).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Converts a schema to OpenAPI 2: references to definitions, one type, no alternatives. */
function swaggerSchema(schema: Json): Json {
  const { $ref, allOf, oneOf, items, properties, additionalProperties } = schema;
  const result: Json = {};
  for (const key of COMMON_KEYWORDS) if (schema[key] !== undefined) result[key] = schema[key];
  for (const [key, value] of Object.entries(schema)) if (key.startsWith('x-')) result[key] = value;
  if (typeof $ref === 'string') result['$ref'] = definitionReference($ref);
  // OpenAPI 3 wraps a reference that has its own description.
  const [only] = Array.isArray(allOf) && allOf.length === 1 ? (allOf as Json[]) : [];
  if (only && typeof only['$ref'] === 'string') result['$ref'] = definitionReference(only['$ref']);
  // A value of several types (Quantity, IntOrString) is published as a string, which is always valid.
  if (Array.isArray(oneOf) && result['type'] === undefined) result['type'] = 'string';
  if (isObject(items)) result['items'] = swaggerSchema(items);
  if (isObject(properties)) {
    result['properties'] = Object.fromEntries(
      Object.entries(properties).map(([name, property]) => [name, swaggerSchema(property as Json)]),
    );
  }
  if (isObject(additionalProperties)) result['additionalProperties'] = swaggerSchema(additionalProperties);
  else if (additionalProperties !== undefined) result['additionalProperties'] = additionalProperties;
  return result;
}

function definitionReference(reference: string): string {
  return reference.startsWith(COMPONENTS) ? `#/definitions/${reference.slice(COMPONENTS.length)}` : reference;
}

function pathItem(item: Json): Json {
  const result: Json = {};
  for (const [key, value] of Object.entries(item)) {
    if (METHODS.includes(key) && isObject(value)) result[key] = operation(value);
    else if (key === 'parameters') result[key] = (value as Json[]).map(parameter);
    else if (key.startsWith('x-')) result[key] = value;
  }
  return result;
}

function operation(source: Json): Json {
  const { requestBody, parameters, responses, ...rest } = source;
  const content = isObject(requestBody) && isObject(requestBody['content']) ? requestBody['content'] : {};
  const consumes = Object.keys(content);
  const [body] = Object.values(content) as { schema?: Json }[];
  const produced = new Set<string>();
  const answers = Object.entries(isObject(responses) ? responses : {}).map(([code, answer]) => {
    const types = isObject(answer) && isObject(answer['content']) ? answer['content'] : {};
    for (const type of Object.keys(types)) produced.add(type);
    const [first] = Object.values(types) as { schema?: Json }[];
    const description = isObject(answer) ? answer['description'] : '';
    return [code, { description, ...(first?.schema ? { schema: swaggerSchema(first.schema) } : {}) }];
  });
  const list = Array.isArray(parameters) ? (parameters as Json[]).map(parameter) : [];
  if (isObject(requestBody) && body?.schema) {
    list.unshift({ name: 'body', in: 'body', required: true, schema: swaggerSchema(body.schema) });
  }
  return {
    ...rest,
    ...(consumes.length > 0 ? { consumes } : {}),
    produces: [...produced],
    ...(list.length > 0 ? { parameters: list } : {}),
    responses: Object.fromEntries(answers),
  };
}

/** Inlines the type of a parameter, which is a schema in OpenAPI 3. */
function parameter(source: Json): Json {
  const { schema, ...rest } = source;
  return { ...rest, ...(isObject(schema) ? swaggerSchema(schema) : {}) };
}
