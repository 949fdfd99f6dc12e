import type { ApiObject } from '../object.ts';

/** Stored objects by collection and key, and changes of a collection. */
export interface GraphSource {
  get(collection: string, key: string): ApiObject | undefined;
  list(collection: string): readonly ApiObject[];
  /** Calls the listener with every later change. Returns a function that ends it. */
  listen(
    collection: string,
    listener: (before: ApiObject | null, after: ApiObject | null) => void,
  ): () => void;
}
