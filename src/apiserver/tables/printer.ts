import { ownMember } from '../../lib/own-member.ts';
import type { ApiObject } from '../object.ts';
import { isObject } from '../object.ts';
import { humanDuration } from './human-duration.ts';

/** meta/v1 TableColumnDefinition. */
export interface Column {
  readonly name: string;
  readonly type: string;
  readonly format: string;
  readonly description: string;
  /** 0: always shown, 1: with `-o wide`. */
  readonly priority: number;
}

/** Renders the objects of one kind as rows. */
export interface Printer {
  readonly columns: readonly Column[];
  cells(object: ApiObject, now: Date): unknown[];
}

const DESCRIPTIONS: Readonly<Record<string, string>> = {
  Name: 'The name of the object, unique within its namespace.',
  Age: 'The time since the object was created.',
  Containers: 'Names of each container in the template.',
  Images: 'Images referenced by each container in the template.',
  Selector: 'The label selector of the objects that belong to this one.',
  Status: 'The state of the object in a word.',
  Ready: 'How many are ready, of how many.',
};

/**
 * Parses column definitions from a line such as "Name; Desired:integer; Selector|": the type follows a colon, a bar at
 * the end means "only with -o wide".
 */
export function columns(line: string): Column[] {
  return line.split('; ').map((text) => {
    const wide = text.endsWith('|');
    const [name = '', type = 'string'] = (wide ? text.slice(0, -1) : text).split(':');
    return {
      name,
      type,
      format: name === 'Name' ? 'name' : '',
      description: ownMember(DESCRIPTIONS, name) ?? '',
      priority: wide ? 1 : 0,
    };
  });
}

/** Formats the age of an instant; "<unknown>" if absent. */
export function since(instant: unknown, now: Date): string {
  if (typeof instant !== 'string' || instant === '') return '<unknown>';
  return humanDuration(now.getTime() - Date.parse(instant));
}

/** Formats "a=b,c=d" sorted by key; "<none>" if empty. */
export function labelsText(labels: unknown): string {
  const entries = isObject(labels) ? Object.entries(labels) : [];
  return entries.length === 0
    ? '<none>'
    : entries
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .map(([key, value]) => `${key}=${value}`)
        .join(',');
}

/** Formats a label selector as in kubectl's `-l`: "app=web,tier in (a,b),!old"; "<none>" if it is empty. */
export function selectorText(selector: unknown): string {
  if (!isObject(selector)) return '<none>';
  const parts: [key: string, text: string][] = [];
  if (isObject(selector['matchLabels'])) {
    for (const [key, value] of Object.entries(selector['matchLabels'])) parts.push([key, `${key}=${value}`]);
  }
  const expressions = selector['matchExpressions'];
  for (const expression of Array.isArray(expressions) ? expressions : []) {
    if (!isObject(expression)) continue;
    const key = String(expression['key']);
    const values = Array.isArray(expression['values']) ? expression['values'].map(String).sort() : [];
    switch (expression['operator']) {
      case 'In':
        parts.push([key, `${key} in (${values.join(',')})`]);
        break;
      case 'NotIn':
        parts.push([key, `${key} notin (${values.join(',')})`]);
        break;
      case 'Exists':
        parts.push([key, key]);
        break;
      case 'DoesNotExist':
        parts.push([key, `!${key}`]);
        break;
      default:
        return '<error>';
    }
  }
  if (parts.length === 0) return '<none>';
  return parts
    .sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))
    .map(([, text]) => text)
    .join(',');
}

/** Formats the first three items of a list, and the number of others. */
export function firstThree(items: readonly string[]): string {
  const shown = items.slice(0, 3).join(',');
  return items.length > 3 ? `${shown} + ${items.length - 3} more...` : shown;
}

/** Returns names and images of containers, each separated by commas. */
export function containerCells(containers: readonly { readonly [field: string]: unknown }[]): string[] {
  return [
    containers.map((container) => container['name']).join(','),
    containers.map((container) => container['image']).join(','),
  ];
}

export function countAt(value: unknown): number {
  return typeof value === 'number' ? value : 0;
}
