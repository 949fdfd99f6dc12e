import { SCALARS, scalarType } from './scalar-type.ts';
import { type CelType, DYN, listOf, mapOf, STRING } from './types.ts';
import { escapedName, type ValueSchema } from './values.ts';

/** The parts of a schema that determine the type of its values in rules. */
export interface TypeSchema extends ValueSchema {
  readonly properties?: Readonly<Record<string, TypeSchema>>;
  readonly additionalProperties?: boolean | TypeSchema;
  readonly items?: TypeSchema;
  readonly 'x-kubernetes-int-or-string'?: boolean;
  readonly 'x-kubernetes-embedded-resource'?: boolean;
}

/** Upstream appends the time to it, so that no rule depends on it. */
const SELF_TYPE = 'selfType1';

/** The fields that rules see of every object, whatever its schema says. */
export const RESOURCE_FIELDS: Readonly<Record<string, TypeSchema>> = {
  apiVersion: { type: 'string' },
  kind: { type: 'string' },
  metadata: { type: 'object', properties: { name: { type: 'string' }, generateName: { type: 'string' } } },
};

/**
 * Returns the type of a schema's values in rules; null if rules do not see them, because their type is unknown.
 * `isResource`: whether they have metadata. Source: k8s.io/apiserver/pkg/cel/common/schemas.go.
 */
export function schemaType(schema: TypeSchema, isResource: boolean, name = SELF_TYPE): CelType | null {
  if (schema['x-kubernetes-int-or-string'] === true) return DYN;
  const { type, items, additionalProperties } = schema;
  switch (type) {
    case 'array': {
      const item = items ? schemaType(items, isEmbedded(items), `${name}.@idx`) : null;
      return item && listOf(item);
    }
    case 'object': {
      if (typeof additionalProperties === 'object' && !isResource) {
        const value = schemaType(additionalProperties, isEmbedded(additionalProperties), `${name}.@elem`);
        return value && mapOf(STRING, value);
      }
      const fields = new Map<string, CelType>();
      const properties = { ...schema.properties, ...(isResource ? RESOURCE_FIELDS : {}) };
      for (const [property, member] of Object.entries(properties)) {
        const field = escapedName(property);
        const found = schemaType(member, isEmbedded(member), `${name}.${field}`);
        if (found) fields.set(field, found);
      }
      return { kind: 'object', name, fields };
    }
    default: {
      const scalar = scalarType(schema);
      return scalar && SCALARS[scalar];
    }
  }
}

/** Reports whether a schema's values have the metadata of an object. */
export const isEmbedded = (schema: TypeSchema): boolean => schema['x-kubernetes-embedded-resource'] === true;
