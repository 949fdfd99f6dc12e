import type { ApiObject } from './object.ts';

/** Reads stored objects. Keys are "namespace/name", "/name" without a namespace. */
export interface ObjectView {
  get(collection: string, key: string): ApiObject | undefined;
  /** In the order of the keys; of one namespace when given. */
  list(collection: string, namespace?: string): readonly ApiObject[];
}
