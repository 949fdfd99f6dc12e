import { ownMember } from '../../lib/own-member.ts';
import { re2 } from '../re2.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { applyDefaults, type StructuralSchema } from './structural-schema.ts';
import { checkRuleTexts } from './validate-rules.ts';
import { validateValue } from './validate-value.ts';

const TYPES = ['array', 'boolean', 'integer', 'number', 'object', 'string'];

export interface SchemaContext {
  readonly isRoot: boolean;
  /** Within allOf, anyOf, oneOf or not, which allow value checks only. */
  readonly isNested: boolean;
}

/** Checks that a schema is structural and that its defaults are valid. */
export function checkSchema(schema: StructuralSchema, path: string, context: SchemaContext): FieldError[] {
  const { isRoot, isNested } = context;
  const below: SchemaContext = { ...context, isRoot: false };
  if (typeof schema !== 'object' || schema === null) return [invalid(path, schema, 'must be an object')];
  const errors: FieldError[] = [];
  const intOrString = schema['x-kubernetes-int-or-string'] === true;
  const untyped = intOrString || schema['x-kubernetes-preserve-unknown-fields'] === true;
  if (isRoot && schema.type !== 'object') {
    errors.push(
      schema.type === undefined
        ? required(`${path}.type`, 'must not be empty at the root')
        : invalid(`${path}.type`, schema.type, 'must be object at the root'),
    );
  } else if (!isNested && !schema.type && !untyped) {
    errors.push(required(`${path}.type`, 'must not be empty for specified object fields'));
  }
  if (schema.type !== undefined && schema.type !== '' && !TYPES.includes(schema.type)) {
    errors.push(notSupported(`${path}.type`, schema.type, TYPES));
  }
  if (isNested) {
    for (const field of ['type', 'additionalProperties', 'nullable', 'default', 'description'] as const) {
      const allowed =
        intOrString ||
        (field === 'type' &&
          schema.properties === undefined &&
          schema.items === undefined &&
          /anyOf/.test(path));
      if (schema[field] !== undefined && !allowed) {
        errors.push(forbidden(`${path}.${field}`, 'must be empty to be structural'));
      }
    }
  }
  if (
    Object.keys(schema.properties ?? {}).length > 0 &&
    schema.additionalProperties !== undefined &&
    schema.additionalProperties !== true
  ) {
    errors.push(
      forbidden(`${path}.additionalProperties`, 'additionalProperties and properties are mutual exclusive'),
    );
  }
  if (schema.type === 'array' && schema.items === undefined && !isNested) {
    errors.push(required(`${path}.items`, 'must be specified'));
  }
  if (schema.uniqueItems === true) {
    errors.push(
      forbidden(
        `${path}.uniqueItems`,
        'uniqueItems cannot be set to true since the runtime complexity becomes quadratic',
      ),
    );
  }
  errors.push(...checkLists(schema, path), ...checkPattern(schema, path), ...checkRuleTexts(schema, path));
  for (const [name, member] of Object.entries(schema.properties ?? {})) {
    if (isRoot && name === 'metadata') {
      const extra = Object.keys(member.properties ?? {}).find(
        (one) => one !== 'name' && one !== 'generateName',
      );
      if (extra !== undefined) {
        errors.push(
          forbidden(
            `${path}.properties[metadata]`,
            'must not specify anything other than name and generateName, but metadata is implicitly specified',
          ),
        );
      }
      continue;
    }
    errors.push(...checkSchema(member, `${path}.properties[${name}]`, below));
  }
  if (typeof schema.additionalProperties === 'object') {
    errors.push(...checkSchema(schema.additionalProperties, `${path}.additionalProperties`, below));
  }
  if (schema.items) errors.push(...checkSchema(schema.items, `${path}.items`, below));
  for (const word of ['allOf', 'anyOf', 'oneOf'] as const) {
    for (const [index, one] of (schema[word] ?? []).entries()) {
      errors.push(...checkSchema(one, `${path}.${word}[${index}]`, { ...below, isNested: true }));
    }
  }
  if (schema.not) errors.push(...checkSchema(schema.not, `${path}.not`, { ...below, isNested: true }));
  if (schema.default !== undefined && errors.length === 0) errors.push(...checkDefault(schema, path));
  return errors;
}

function checkLists(schema: StructuralSchema, path: string): FieldError[] {
  const type = schema['x-kubernetes-list-type'];
  const keys = schema['x-kubernetes-list-map-keys'];
  if (type === undefined) {
    return keys
      ? [forbidden(`${path}.x-kubernetes-list-map-keys`, 'may only be set if x-kubernetes-list-type is map')]
      : [];
  }
  if (!['atomic', 'set', 'map'].includes(type)) {
    return [notSupported(`${path}.x-kubernetes-list-type`, type, ['atomic', 'map', 'set'])];
  }
  if (type !== 'map') return [];
  if (!keys || keys.length === 0) {
    return [
      required(`${path}.x-kubernetes-list-map-keys`, 'must not be empty if x-kubernetes-list-type is map'),
    ];
  }
  return keys.flatMap((key, index) => {
    const member = ownMember(schema.items?.properties, key);
    if (!member) {
      return [
        invalid(
          `${path}.x-kubernetes-list-map-keys[${index}]`,
          key,
          'must be the name of an existing property of the item',
        ),
      ];
    }
    return (schema.items?.required ?? []).includes(key) || member.default !== undefined
      ? []
      : [
          required(
            `${path}.items.properties[${key}].default`,
            'this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property',
          ),
        ];
  });
}

function checkPattern(schema: StructuralSchema, path: string): FieldError[] {
  if (schema.pattern === undefined) return [];
  try {
    re2(schema.pattern);
    return [];
  } catch (error) {
    return [
      invalid(
        `${path}.pattern`,
        schema.pattern,
        `must be a valid regular expression: ${error instanceof Error ? error.message : error}`,
      ),
    ];
  }
}

function checkDefault(schema: StructuralSchema, path: string): FieldError[] {
  const value: unknown = structuredClone(schema.default);
  applyDefaults(schema, value, false);
  return validateValue(schema, value).map((error) => ({
    ...error,
    field: `${path}.default${error.field === '<nil>' || error.field === '' ? '' : `.${error.field}`}`,
  }));
}
