import { keyElement, type ListIdentity, listMerge, pathText } from './field-set.ts';
import { isObject, type Json, type JsonObject } from './object.ts';
import type { FieldSchema } from './schema/patch-schema.ts';

/**
 * Returns the problems of an applied value, whose fields and items a manager can own only if they are declared, have the
 * declared type, and can be told apart. In the words of structured-merge-diff (typed/validate.go). An empty schema
 * (null) allows everything; null is a value of every type.
 */
export function appliedProblems(value: Json, schema: FieldSchema | null, path = ''): string[] {
  if (schema === null || schema.kind === 'any' || value === null) return [];
  const problem = (text: string) => [path === '' ? text : `${path}: ${text}`];
  switch (schema.kind) {
    case 'scalar': {
      const text = scalarProblem(value, schema);
      return text === null ? [] : problem(text);
    }
    case 'list':
      return Array.isArray(value)
        ? itemProblems(value, schema, path)
        : problem(`expected list, got ${goText(value)}`);
    case 'object':
    case 'map':
      if (!isObject(value)) return problem(`expected map, got ${goText(value)}`);
      return Object.entries(value).flatMap(([name, member]) => {
        if (member === undefined) return [];
        const field = schema.field(name);
        if (field === null) {
          return schema.kind === 'object' ? [`${path}.${name}: field not declared in schema`] : [];
        }
        return appliedProblems(member, field, `${path}.${name}`);
      });
  }
}

function itemProblems(list: readonly Json[], schema: FieldSchema, path: string): string[] {
  const identity = listMerge(schema);
  const seen = new Set<string>();
  const problems: string[] = [];
  for (const [index, item] of list.entries()) {
    let element = `[${index}]`;
    if (identity !== null) {
      const reason = identityProblem(item, identity, schema);
      if (reason !== null) return [...problems, `${path}: element ${index}: ${reason}`];
      const id = elementOf(item, identity);
      element = pathText([id]);
      if (seen.has(id)) problems.push(`${path}: duplicate entries for key ${element}`);
      seen.add(id);
    }
    problems.push(...appliedProblems(item, schema.items, `${path}${element}`));
  }
  return problems;
}

const elementOf = (item: Json, identity: ListIdentity): string =>
  identity === 'set' || !isObject(item) ? `v:${JSON.stringify(item)}` : keyElement(item, identity);

/** Returns the reason why an item cannot be told apart from others; null if it can. */
function identityProblem(item: Json, identity: ListIdentity, { listKeys }: FieldSchema): string | null {
  if (identity === 'set') {
    const kind = 'associative list without keys has an element that';
    if (item === null) return `${kind}'s an explicit null`;
    if (isObject(item)) return `${kind}'s a map type`;
    return Array.isArray(item) ? 'not supported: associative list with lists as elements' : null;
  }
  const kind = 'associative list with keys';
  if (item === null) return `${kind} may not have a null element`;
  if (!isObject(item)) return `${kind} may not have non-map elements`;
  if (hasKey(item, identity)) return null;
  const names = listKeys.map((key) => JSON.stringify(key)).join(' ');
  return `${kind} has an element that omits all key fields [${names}] (and doesn't have default values for any key fields)`;
}

const hasKey = (item: JsonObject, { keys, defaults }: Exclude<ListIdentity, 'set'>): boolean =>
  keys.some((key) => item[key] !== undefined || defaults[key] !== undefined);

function scalarProblem(value: Json, { scalar }: FieldSchema): string | null {
  switch (scalar) {
    case null:
      return isObject(value) || Array.isArray(value) ? `expected any scalar, got ${goText(value)}` : null;
    case 'integer':
    case 'number':
      return typeof value === 'number' ? null : `expected numeric (int or float), got ${goType(value)}`;
    case 'boolean':
      return typeof value === 'boolean' ? null : `expected boolean, got ${goText(value)}`;
    case 'string':
    case 'bytes':
    case 'timestamp':
    case 'duration':
      return typeof value === 'string'
        ? null
        : `expected string, got &value.valueUnstructured{Value:${goSyntax(value)}}`;
  }
}

/** Formats a value as Go's %v does for the value of an unstructured object. */
const goText = (value: Json): string => `&{${plainText(value)}}`;

function plainText(value: Json): string {
  if (value === null) return '<nil>';
  if (Array.isArray(value)) return `[${value.map(plainText).join(' ')}]`;
  if (!isObject(value)) return String(value);
  const members = sortedMembers(value).map(([name, member]) => `${name}:${plainText(member)}`);
  return `map[${members.join(' ')}]`;
}

/** Formats a value as Go's %#v does. */
function goSyntax(value: Json): string {
  if (value === null) return 'interface {}(nil)';
  if (Array.isArray(value)) return `[]interface {}{${value.map(goSyntax).join(', ')}}`;
  if (!isObject(value)) return JSON.stringify(value);
  const members = sortedMembers(value).map(([name, member]) => `${JSON.stringify(name)}:${goSyntax(member)}`);
  return `map[string]interface {}{${members.join(', ')}}`;
}

const sortedMembers = (value: JsonObject): [string, Json][] =>
  Object.entries(value)
    .flatMap(([name, member]): [string, Json][] => (member === undefined ? [] : [[name, member]]))
    .sort(([a], [b]) => (a < b ? -1 : 1));

/** Returns the name of a value's type in Go. */
function goType(value: Json): string {
  if (Array.isArray(value)) return '[]interface {}';
  if (isObject(value)) return 'map[string]interface {}';
  return typeof value === 'boolean' ? 'bool' : typeof value;
}
