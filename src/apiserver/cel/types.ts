/** The types of an object's fields, by the names that expressions use. */
export type FieldTypes = Pick<ReadonlyMap<string, CelType>, 'get'>;

/** A type of CEL, as the checker of expressions about custom resources knows it. */
export type CelType =
  | { readonly kind: 'simple'; readonly name: string }
  | { readonly kind: 'list'; readonly item: CelType }
  | { readonly kind: 'map'; readonly key: CelType; readonly value: CelType }
  | { readonly kind: 'optional'; readonly value: CelType }
  | { readonly kind: 'type'; readonly of: CelType }
  /** An object whose schema names its fields. */
  | { readonly kind: 'object'; readonly name: string; readonly fields: FieldTypes }
  /** A placeholder in the signature of a function. */
  | { readonly kind: 'parameter'; readonly name: string };

const simple = (name: string): CelType => ({ kind: 'simple', name });

/** Of any type: what is done with it is checked when it is evaluated. */
export const DYN = simple('dyn');
export const BOOL = simple('bool');
export const INT = simple('int');
export const UINT = simple('uint');
export const DOUBLE = simple('double');
export const STRING = simple('string');
export const BYTES = simple('bytes');
export const NULL = simple('null');
export const TIMESTAMP = simple('timestamp');
export const DURATION = simple('duration');

export const listOf = (item: CelType): CelType => ({ kind: 'list', item });
export const mapOf = (key: CelType, value: CelType): CelType => ({ kind: 'map', key, value });
export const optionalOf = (value: CelType): CelType => ({ kind: 'optional', value });
export const typeOf = (of: CelType): CelType => ({ kind: 'type', of });

export const isDyn = (type: CelType): boolean => type.kind === 'simple' && type.name === 'dyn';

/** Returns a type's name in errors (cel-go checker/format.go). */
export function typeName(type: CelType): string {
  switch (type.kind) {
    case 'list':
      return `list(${typeName(type.item)})`;
    case 'map':
      return `map(${typeName(type.key)}, ${typeName(type.value)})`;
    case 'optional':
      return `optional_type(${typeName(type.value)})`;
    case 'type':
      return `type(${typeName(type.of)})`;
    default:
      return type.name;
  }
}

/** The types that the parameters of a signature stand for in one call. */
export type Bindings = Map<string, CelType>;

/**
 * Reports whether a value of type `given` may be used where `wanted` is expected; binds the parameters of `wanted`
 * (cel-go checker/types.go, without its wrapper types).
 */
export function isAssignable(wanted: CelType, given: CelType, bindings: Bindings = new Map()): boolean {
  if (isDyn(wanted) || isDyn(given)) return true;
  if (wanted.kind === 'parameter') {
    const bound = bindings.get(wanted.name);
    if (bound === undefined || isDyn(bound)) {
      bindings.set(wanted.name, given);
      return true;
    }
    if (isAssignable(bound, given)) return true;
    if (!isAssignable(given, bound)) return false;
    bindings.set(wanted.name, given);
    return true;
  }
  if (isNull(given) && isNullable(wanted)) return true;
  switch (wanted.kind) {
    case 'list':
      return given.kind === 'list' && isAssignable(wanted.item, given.item, bindings);
    case 'map':
      return (
        given.kind === 'map' &&
        isAssignable(wanted.key, given.key, bindings) &&
        isAssignable(wanted.value, given.value, bindings)
      );
    case 'optional':
      return given.kind === 'optional' && isAssignable(wanted.value, given.value, bindings);
    case 'type':
      return given.kind === 'type';
    default:
      return wanted.kind === given.kind && wanted.name === given.name;
  }
}

const isNull = (type: CelType): boolean => type.kind === 'simple' && type.name === 'null';

/** Messages are nullable, and so are optional values and the types that a library declares. */
function isNullable(type: CelType): boolean {
  if (type.kind === 'object' || type.kind === 'optional') return true;
  return (
    type.kind === 'simple' &&
    (type.name.includes('.') || ['null', 'timestamp', 'duration'].includes(type.name))
  );
}

/** Replaces the parameters of a type; those that no argument bound are of any type. */
export function substitute(type: CelType, bindings: Bindings): CelType {
  switch (type.kind) {
    case 'parameter':
      return bindings.get(type.name) ?? DYN;
    case 'list':
      return listOf(substitute(type.item, bindings));
    case 'map':
      return mapOf(substitute(type.key, bindings), substitute(type.value, bindings));
    case 'optional':
      return optionalOf(substitute(type.value, bindings));
    case 'type':
      return typeOf(substitute(type.of, bindings));
    default:
      return type;
  }
}

/** Parses the notation of types in signatures: `list<T>`, `map<string, int>`, `kubernetes.Quantity`; capitals are parameters. */
export function parseType(text: string): CelType {
  const [, name = '', inner = ''] = /^([\w.]+)(?:<(.*)>)?$/.exec(text.trim()) ?? [];
  const parts = splitTypes(inner).map(parseType);
  const [first = DYN, second = DYN] = parts;
  switch (name) {
    case 'list':
      return listOf(first);
    case 'map':
      return mapOf(first, second);
    case 'optional':
      return optionalOf(first);
    case 'type':
      return typeOf(first);
    default:
      return /^[A-Z]$/.test(name) ? { kind: 'parameter', name } : simple(name);
  }
}

/** Splits a list of types at the commas outside of angle brackets. */
export function splitTypes(text: string): string[] {
  if (text.trim() === '') return [];
  const parts: string[] = [];
  let depth = 0;
  let start = 0;
  for (let at = 0; at < text.length; at++) {
    const char = text.charAt(at);
    if (char === '<') depth++;
    else if (char === '>') depth--;
    else if (char === ',' && depth === 0) {
      parts.push(text.slice(start, at));
      start = at + 1;
    }
  }
  return [...parts, text.slice(start)];
}
