import { createHash } from 'node:crypto';
import type { RemoteVersion } from '../aggregation/aggregator.ts';
import { groupPriority } from '../aggregation/group-priorities.ts';
import type { JsonObject } from '../object.ts';
import type { Resource, ResourceRegistry, Subresource } from '../services.ts';
import type { GroupVersionKind, ResourceVerb } from './resource-verb.ts';

function verbsOf(resource: Resource): ResourceVerb[] {
  return (Object.keys(resource.handlers) as ResourceVerb[]).sort();
}

function subresourceVerbs({ handlers, connectVerbs = [] }: Subresource): ResourceVerb[] {
  return [...(Object.keys(handlers) as ResourceVerb[]), ...connectVerbs].sort();
}

/** Returns the hash of a kind's storage version, as upstream's discovery.StorageVersionHash. */
export function storageVersionHash(group: string, version: string, kind: string): string {
  const digest = createHash('sha256').update(`${group}/${version}/${kind}`).digest();
  return digest.subarray(0, 8).toString('base64');
}

/** Returns the kind of a resource's responses; group and version are empty if they equal the resource's own. */
function discoveredKind({ kind }: Resource, answer: GroupVersionKind): GroupVersionKind {
  const isOwn = answer.group === kind.group && answer.version === kind.version;
  const { group, version } = isOwn ? { group: '', version: '' } : answer;
  return { group, version, kind: answer.kind };
}

function responseKind(resource: Resource, subresource: Subresource) {
  const { group, version, kind } = resource.kind;
  return subresource.kind ?? { group, version, kind };
}

/** Builds the response to GET /api (core) or /apis, as apidiscovery.k8s.io APIGroupDiscoveryList. */
export function aggregatedDiscovery(
  registry: ResourceRegistry,
  core: boolean,
  remote: readonly RemoteVersion[],
) {
  const groups = new Map<string, Map<string, object>>();
  const add = (group: string, version: string, described: object) => {
    const versions = groups.get(group) ?? new Map<string, object>();
    versions.set(version, described);
    groups.set(group, versions);
  };
  for (const { group, version, resources } of registry.groupVersions()) {
    if ((group === '') !== core) continue;
    add(group, version, { version, resources: resources.map(discoveredResource), freshness: 'Current' });
  }
  for (const { group, version, resources, isAvailable } of core ? [] : remote) {
    const freshness = isAvailable ? 'Current' : 'Stale';
    add(group, version, { version, resources: discoveredRemotely(resources), freshness });
  }
  return {
    kind: 'APIGroupDiscoveryList',
    apiVersion: 'apidiscovery.k8s.io/v2',
    metadata: {},
    items: byPriority([...groups], remote).map(([name, versions]) => ({
      metadata: name === '' ? {} : { name },
      versions: [...versions.values()],
    })),
  };
}

/** Sorts groups by client preference. */
function byPriority<T>(groups: [string, T][], remote: readonly RemoteVersion[]): [string, T][] {
  const priority = (group: string) =>
    Math.max(
      groupPriority(group),
      ...remote.filter((one) => one.group === group).map((one) => one.groupPriority),
    );
  return groups.sort(([a], [b]) => priority(b) - priority(a));
}

/** Converts the resources of another server from its meta/v1 APIResourceList. */
function discoveredRemotely(resources: readonly JsonObject[]): object[] {
  const kindOf = ({ group, version, kind }: JsonObject) => ({
    group: group ?? '',
    version: version ?? '',
    kind,
  });
  return resources
    .filter(({ name }) => !String(name).includes('/'))
    .map((resource) => {
      const { name, namespaced, singularName, verbs, shortNames, categories } = resource;
      const below = resources.filter((one) => String(one['name']).startsWith(`${String(name)}/`));
      return {
        resource: name,
        responseKind: kindOf(resource),
        scope: namespaced ? 'Namespaced' : 'Cluster',
        singularResource: singularName,
        verbs,
        ...(shortNames ? { shortNames } : {}),
        ...(categories ? { categories } : {}),
        ...(below.length > 0
          ? {
              subresources: below.map((one) => ({
                subresource: String(one['name']).slice(String(name).length + 1),
                responseKind: kindOf(one),
                verbs: one['verbs'],
              })),
            }
          : {}),
      };
    });
}

function discoveredResource(resource: Resource): object {
  const { kind } = resource;
  return {
    resource: kind.plural,
    responseKind: discoveredKind(resource, kind),
    scope: kind.namespaced ? 'Namespaced' : 'Cluster',
    singularResource: kind.singular,
    verbs: verbsOf(resource),
    ...(kind.shortNames.length > 0 ? { shortNames: kind.shortNames } : {}),
    ...(kind.categories.length > 0 ? { categories: kind.categories } : {}),
    ...(resource.subresources.size > 0
      ? {
          subresources: [...resource.subresources.values()].map((subresource) => ({
            subresource: subresource.name,
            responseKind: discoveredKind(resource, responseKind(resource, subresource)),
            verbs: subresourceVerbs(subresource),
          })),
        }
      : {}),
  };
}

/**
 * Builds the response to GET /api/v1 and /apis/GROUP/VERSION, as meta/v1 APIResourceList; null for an unknown group.
 */
export function resourceList(registry: ResourceRegistry, group: string, version: string) {
  const found = registry.groupVersions().find((one) => one.group === group && one.version === version);
  if (!found) return null;
  const groupVersion = group === '' ? version : `${group}/${version}`;
  const resources = found.resources.flatMap((resource) => {
    const { kind } = resource;
    const stored = kind.view?.of ?? kind;
    const subresources = [...resource.subresources.values()].map((subresource) => {
      const answer = responseKind(resource, subresource);
      const isOwn = answer.group === group && answer.version === version;
      return {
        name: `${kind.plural}/${subresource.name}`,
        singularName: '',
        namespaced: kind.namespaced,
        ...(isOwn ? {} : { group: answer.group, version: answer.version }),
        kind: answer.kind,
        verbs: subresourceVerbs(subresource),
      };
    });
    return [
      {
        name: kind.plural,
        singularName: kind.singular,
        namespaced: kind.namespaced,
        kind: kind.kind,
        verbs: verbsOf(resource),
        ...(kind.shortNames.length > 0 ? { shortNames: kind.shortNames } : {}),
        ...(kind.categories.length > 0 ? { categories: kind.categories } : {}),
        ...(resource.stored
          ? { storageVersionHash: storageVersionHash(stored.group, stored.version, stored.kind) }
          : {}),
      },
      ...subresources,
    ];
  });
  // Upstream serializes the core group's list without a version.
  return {
    kind: 'APIResourceList',
    ...(group === '' ? {} : { apiVersion: 'v1' }),
    groupVersion,
    resources,
  };
}

/** Builds the response to GET /apis in its plain form. */
export function groupList(registry: ResourceRegistry, remote: readonly RemoteVersion[]) {
  return { kind: 'APIGroupList', apiVersion: 'v1', groups: groups(registry, remote) };
}

/** Builds the response to GET /apis/GROUP; null for an unknown group. */
export function groupDiscovery(registry: ResourceRegistry, name: string, remote: readonly RemoteVersion[]) {
  const group = groups(registry, remote).find((candidate) => candidate.name === name);
  return group ? { kind: 'APIGroup', apiVersion: 'v1', ...group } : null;
}

function groups(registry: ResourceRegistry, remote: readonly RemoteVersion[]) {
  const found = new Map<string, { groupVersion: string; version: string }[]>();
  const add = (group: string, version: string) => {
    const versions = found.get(group) ?? [];
    if (versions.some((one) => one.version === version)) return;
    found.set(group, [...versions, { groupVersion: `${group}/${version}`, version }]);
  };
  for (const { group, version } of registry.groupVersions()) if (group !== '') add(group, version);
  for (const { group, version } of [...remote].sort((a, b) => b.versionPriority - a.versionPriority)) {
    add(group, version);
  }
  return byPriority([...found], remote).map(([name, versions]) => ({
    name,
    versions,
    preferredVersion: versions[0],
  }));
}
