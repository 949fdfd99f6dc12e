import { isObject, type Json } from './object.ts';
import { StatusError } from './status-error.ts';

/** Errors of strategic merge patches are parts of upstream's answer, with the values of the patch. */
const MAX_TEXT = 2000;

/** Returns the error of a patch that does not fit the document, with the status that upstream gives it: 500 without a reason. */
export const notApplied = (message: string): StatusError => new StatusError(500, '', message);

/** Returns the error of a value in the place of a list. */
export const wrongArgument = (value: Json): StatusError =>
  notApplied(`expected a []interface {}, but received a ${value === null ? '%!s(<nil>)' : goType(value)}`);

/** Throws StatusError 500 unless all items of two lists that are merged have one type, which is not a list. */
export function checkSameTypes(list: readonly Json[], patch: readonly Json[]): void {
  const types = new Set([...list, ...patch].map(goType));
  if (types.has('[]interface {}') && types.size === 1) throw notApplied('lists of lists are not supported');
  if (types.size > 1 || types.has('<nil>'))
    throw notApplied(`list element types are not identical: [${goText([...list])} ${goText([...patch])}]`);
}

/** Returns the Go type of a value that was decoded from JSON. */
function goType(value: Json): string {
  if (value === null) return '<nil>';
  if (Array.isArray(value)) return '[]interface {}';
  if (isObject(value)) return 'map[string]interface {}';
  if (typeof value === 'number') return Number.isSafeInteger(value) ? 'int64' : 'float64';
  return typeof value === 'boolean' ? 'bool' : 'string';
}

/** Returns a value as Go prints it ("map[image:x]"), cut after MAX_TEXT characters. */
export function goText(value: Json): string {
  const text = printed(value, MAX_TEXT);
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}

/** Prints at least `room` characters of a value, as far as it has so many, and little more. */
function printed(value: Json, room: number): string {
  if (value === null) return '<nil>';
  if (typeof value !== 'object') return String(value);
  const isList = Array.isArray(value);
  const entries: [string, Json][] = isList
    ? value.map((item) => ['', item])
    : Object.entries(value as Readonly<Record<string, Json>>).sort(([a], [b]) => (a < b ? -1 : 1));
  let text = isList ? '[' : 'map[';
  for (const [at, [field, item]] of entries.entries()) {
    if (text.length > room) return text;
    text += `${at > 0 ? ' ' : ''}${isList ? '' : `${field}:`}${printed(item, room - text.length)}`;
  }
  return `${text}]`;
}
