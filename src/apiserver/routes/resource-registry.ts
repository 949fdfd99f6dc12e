import { compareVersions } from '../version-order.ts';
import type { Resource } from './resource.ts';

/** A group-version of the route table; `resources` in the order of addition. */
export interface GroupVersion {
  readonly group: string;
  readonly version: string;
  readonly resources: readonly Resource[];
}

/**
 * The route table: resources by group, version and name. Resources are added and removed while the server runs (custom
 * resources, aggregated APIs); discovery and OpenAPI read it again after each change.
 */
export interface ResourceRegistry {
  /** Counts changes: output rendered from the table is valid for one revision. */
  readonly revision: number;
  find(group: string, version: string, plural: string): Resource | undefined;
  all(): readonly Resource[];
  /** Returns versions by group, sorted by client preference within each group. */
  groupVersions(): readonly GroupVersion[];
  /** Adds a resource, or replaces the existing one of the same group, version and name. */
  add(resource: Resource): void;
  remove(group: string, version: string, plural: string): void;
  /** Calls the listener after every change. Returns a function that ends it. */
  onChange(listener: () => void): () => void;
  /** Returns a signal that aborts when the resource is removed, to end its watches. */
  lifetime(resource: Resource): AbortSignal;
}

export function createResourceRegistry(initial: readonly Resource[]): ResourceRegistry {
  const resources = new Map<string, Resource>();
  const lifetimes = new WeakMap<Resource, AbortController>();
  const listeners = new Set<() => void>();
  let revision = 0;
  const keyOf = (group: string, version: string, plural: string) => `${group}/${version}/${plural}`;
  const lifetimeOf = (resource: Resource): AbortController => {
    let controller = lifetimes.get(resource);
    if (!controller) {
      controller = new AbortController();
      lifetimes.set(resource, controller);
    }
    return controller;
  };
  const changed = () => {
    revision++;
    for (const listener of [...listeners]) listener();
  };
  const set = (resource: Resource) => {
    const { group, version, plural } = resource.kind;
    const key = keyOf(group, version, plural);
    const before = resources.get(key);
    resources.set(key, resource);
    if (before && before !== resource) lifetimeOf(before).abort();
  };
  for (const resource of initial) set(resource);
  return {
    get revision() {
      return revision;
    },
    find: (group, version, plural) => resources.get(keyOf(group, version, plural)),
    all: () => [...resources.values()],
    groupVersions() {
      const groups = new Map<string, Map<string, Resource[]>>();
      for (const resource of resources.values()) {
        const { group, version } = resource.kind;
        const versions = groups.get(group) ?? new Map<string, Resource[]>();
        versions.set(version, [...(versions.get(version) ?? []), resource]);
        groups.set(group, versions);
      }
      return [...groups].flatMap(([group, versions]) =>
        [...versions]
          .sort(([a], [b]) => compareVersions(a, b))
          .map(([version, members]) => ({ group, version, resources: members })),
      );
    },
    add(resource) {
      set(resource);
      changed();
    },
    remove(group, version, plural) {
      const key = keyOf(group, version, plural);
      const resource = resources.get(key);
      if (!resource) return;
      resources.delete(key);
      lifetimeOf(resource).abort();
      changed();
    },
    onChange(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    lifetime: (resource) => lifetimeOf(resource).signal,
  };
}
