import type { ScalarType } from '../schema/patch-schema.ts';
import { BOOL, BYTES, type CelType, DOUBLE, DURATION, INT, STRING, TIMESTAMP } from './types.ts';

/** The types of scalars in expressions. */
export const SCALARS: Readonly<Record<ScalarType, CelType>> = {
  string: STRING,
  integer: INT,
  number: DOUBLE,
  boolean: BOOL,
  bytes: BYTES,
  timestamp: TIMESTAMP,
  duration: DURATION,
};

/** Formats of texts that have a type of their own in expressions. */
const TEXTS: ReadonlyMap<string | undefined, ScalarType> = new Map([
  ['byte', 'bytes'],
  ['date', 'timestamp'],
  ['date-time', 'timestamp'],
  ['duration', 'duration'],
]);

/** Returns the type of a schema's scalars; null for other values (k8s.io/apiserver/pkg/cel/common/schemas.go). */
export function scalarType(schema: { readonly type?: string; readonly format?: string }): ScalarType | null {
  switch (schema.type) {
    case 'integer':
    case 'number':
    case 'boolean':
      return schema.type;
    case 'string':
      return TEXTS.get(schema.format) ?? 'string';
    default:
      return null;
  }
}
