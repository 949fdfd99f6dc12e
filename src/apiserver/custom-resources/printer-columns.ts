import type { ApiObject } from '../object.ts';
import { type Column, type Printer, since } from '../tables/printer.ts';
import { type JsonPath, parseJsonPath } from './json-path.ts';

/** apiextensions.k8s.io/v1 CustomResourceColumnDefinition. */
export interface PrinterColumn {
  readonly name: string;
  readonly type: string;
  readonly format?: string;
  readonly description?: string;
  readonly priority?: number;
  readonly jsonPath: string;
}

const NAME: Column = {
  name: 'Name',
  type: 'string',
  format: 'name',
  description: 'The name of the object, unique within its namespace.',
  priority: 0,
};

const AGE: PrinterColumn = {
  name: 'Age',
  type: 'date',
  description: 'The time since the object was created.',
  jsonPath: '.metadata.creationTimestamp',
};

/** Renders custom objects with the columns of their definition; with Name and Age if it has none. */
export function createColumnPrinter(columns: readonly PrinterColumn[] | undefined): Printer {
  const shown = (columns?.length ? columns : [AGE]).map((column) => ({
    column,
    path: parseJsonPath(column.jsonPath),
  }));
  return {
    columns: [
      NAME,
      ...shown.map(({ column }) => ({
        name: column.name,
        type: column.type,
        format: column.format ?? '',
        description: column.description ?? '',
        priority: column.priority ?? 0,
      })),
    ],
    cells: (object, now) => [
      object.metadata.name,
      ...shown.map(({ column, path }) => cell(column.type, path, object, now)),
    ],
  };
}

/**
 * Shows the first of several values, and only a value of its column's type (apiextensions-apiserver's
 * tableconvertor.go).
 */
function cell(type: string, path: JsonPath, object: ApiObject, now: Date): unknown {
  const values = path(object);
  if (values.length === 0) return null;
  const [value] = values;
  switch (type) {
    case 'integer':
      return typeof value === 'number' ? Math.trunc(value) : null;
    case 'number':
      return typeof value === 'number' ? value : null;
    case 'boolean':
      return typeof value === 'boolean' ? value : null;
    case 'date':
      return typeof value === 'string' ? since(value, now) : null;
    default:
      return typeof value === 'string' ? value : JSON.stringify(value);
  }
}
