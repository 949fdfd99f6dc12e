import type { Resource, ResourceRegistry } from '../services.ts';
import { compareVersions } from '../version-order.ts';

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
