import type { FieldSchema } from '../schema/patch-schema.ts';
import { SCALARS } from './scalar-type.ts';
import { type CelType, DYN, type FieldTypes, listOf, mapOf, STRING } from './types.ts';
import { unescapedName } from './values.ts';

/** Returns the type of values of a kind's field in expressions. `name`: of the type, in errors. */
export function fieldType(schema: FieldSchema, name: string): CelType {
  switch (schema.kind) {
    case 'object':
      return { kind: 'object', name, fields: fieldTypes(schema, name) };
    case 'map':
      return mapOf(STRING, itemType(schema, `${name}.@elem`));
    case 'list':
      return listOf(itemType(schema, `${name}.@idx`));
    case 'scalar':
      return schema.scalar === null ? DYN : SCALARS[schema.scalar];
    case 'any':
      return DYN;
  }
}

const itemType = ({ items }: FieldSchema, name: string): CelType => (items ? fieldType(items, name) : DYN);

/** Types are made when an expression names them: those of some kinds contain themselves. */
function fieldTypes(schema: FieldSchema, name: string): FieldTypes {
  const known = new Map<string, CelType>();
  return {
    get(field) {
      let type = known.get(field);
      if (!type) {
        const member = schema.field(unescapedName(field));
        if (!member) return undefined;
        type = fieldType(member, `${name}.${field}`);
        known.set(field, type);
      }
      return type;
    },
  };
}
