import type { ApiObject } from './object.ts';

/** Reads stored objects. Keys are "namespace/name", or "/name" without a namespace. */
export interface ObjectView {
  get(collection: string, key: string): ApiObject | undefined;
  /** Sorted by key; of one namespace if given. */
  list(collection: string, namespace?: string): readonly ApiObject[];
}
