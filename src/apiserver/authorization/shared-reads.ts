import type { ApiObject } from '../object.ts';
import type { GraphSource } from './graph-source.ts';

/**
 * What the agents of all nodes may read because other objects refer to it, such as the certificates of gateways. The rules are
 * those of the part that reads them.
 */
export interface SharedReads {
  /** Collections of the objects that refer to others. */
  readonly collections: readonly string[];
  /** Returns the objects that may be read: "secrets NAMESPACE/NAME", "configmaps NAMESPACE/NAME". */
  find(list: (collection: string) => readonly ApiObject[]): ReadonlySet<string>;
}

export interface SharedReadIndex {
  allows(collection: string, key: string): boolean;
  close(): void;
}

/** Keeps the result until one of the objects changes. */
export function indexSharedReads(source: GraphSource, reads: SharedReads): SharedReadIndex {
  let found: ReadonlySet<string> | null = null;
  const ends = reads.collections.map((collection) =>
    source.listen(collection, () => {
      found = null;
    }),
  );
  return {
    allows(collection, key) {
      found ??= reads.find((name) => source.list(name));
      return found.has(`${collection} ${key}`);
    },
    close() {
      for (const end of ends) end();
    },
  };
}
