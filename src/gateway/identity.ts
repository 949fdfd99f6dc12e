import type { GatewayObject } from './objects.ts';
import { record, text } from './raw.ts';

/** The metadata of an object, as checked. */
export interface Identity {
  readonly namespace: string;
  readonly name: string;
  /** Milliseconds since 1970; of an object without a creation time, later than all others. */
  readonly createdAt: number;
  readonly generation: number;
}

const NAME = /^[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?$/;

export const isObjectName = (name: string): boolean => NAME.test(name);

/** Returns the identity of an object; null if its name is none that the API server allows. */
export function identityOf(object: GatewayObject, namespaced = true): Identity | null {
  const meta = record(object.metadata);
  const name = text(meta['name']);
  const namespace = namespaced ? text(meta['namespace']) : '';
  if (!NAME.test(name) || (namespaced && !NAME.test(namespace))) return null;
  const createdAt = Date.parse(text(meta['creationTimestamp']));
  const generation = meta['generation'];
  return {
    namespace,
    name,
    createdAt: Number.isNaN(createdAt) ? Number.MAX_SAFE_INTEGER : createdAt,
    generation: typeof generation === 'number' && Number.isSafeInteger(generation) ? generation : 0,
  };
}

/** Orders by age, then by namespace and name: the precedence of the Gateway API between objects. */
export function compareAge(a: Identity, b: Identity): number {
  return a.createdAt - b.createdAt || compareText(keyOf(a), keyOf(b));
}

export const keyOf = ({ namespace, name }: { namespace: string; name: string }): string =>
  `${namespace}/${name}`;

export const compareText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** Returns the value of an annotation, or null. */
export function annotation(object: GatewayObject, key: string): string | null {
  const annotations = record(record(object.metadata)['annotations']);
  const value = Object.hasOwn(annotations, key) ? annotations[key] : null;
  return typeof value === 'string' ? value : null;
}

/** Returns the labels of an object that are text. */
export function labelsOf(object: GatewayObject): Readonly<Record<string, string>> {
  const labels = record(record(object.metadata)['labels']);
  return Object.fromEntries(
    Object.entries(labels).filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
  );
}
