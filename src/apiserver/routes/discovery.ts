import { createHash } from 'node:crypto';
import { apiVersionOf } from '../kind.ts';
import type { GroupVersionKind, Resource, ResourceVerb, Subresource } from './resource.ts';
import type { ResourceRegistry } from './resource-registry.ts';

function verbsOf(resource: Resource): ResourceVerb[] {
  return (Object.keys(resource.handlers) as ResourceVerb[]).sort();
}

function subresourceVerbs({ handlers, connectVerbs = [] }: Subresource): ResourceVerb[] {
  return [...(Object.keys(handlers) as ResourceVerb[]), ...connectVerbs].sort();
}

/** The hash of the version in which a kind is stored, as upstream's discovery.StorageVersionHash. */
export function storageVersionHash(group: string, version: string, kind: string): string {
  const digest = createHash('sha256').update(`${group}/${version}/${kind}`).digest();
  return digest.subarray(0, 8).toString('base64');
}

/** The kind of a resource's answers; a group and version that are the resource's own are left empty. */
function discoveredKind({ kind }: Resource, answer: GroupVersionKind): GroupVersionKind {
  const isOwn = answer.group === kind.group && answer.version === kind.version;
  const { group, version } = isOwn ? { group: '', version: '' } : answer;
  return { group, version, kind: answer.kind };
}

function responseKind(resource: Resource, subresource: Subresource) {
  const { group, version, kind } = resource.kind;
  return subresource.kind ?? { group, version, kind };
}

/** The answer to GET /api (core) or /apis, as apidiscovery.k8s.io APIGroupDiscoveryList. */
export function aggregatedDiscovery(registry: ResourceRegistry, core: boolean) {
  const groups = new Map<string, object[]>();
  for (const found of registry.groupVersions()) {
    if ((found.group === '') !== core) continue;
    const versions = groups.get(found.group) ?? [];
    versions.push({
      version: found.version,
      resources: found.resources.map(discoveredResource),
      freshness: 'Current',
    });
    groups.set(found.group, versions);
  }
  return {
    kind: 'APIGroupDiscoveryList',
    apiVersion: 'apidiscovery.k8s.io/v2',
    metadata: {},
    items: [...groups].map(([name, versions]) => ({
      metadata: name === '' ? {} : { name },
      versions,
    })),
  };
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

/** The answer to GET /api/v1 and /apis/GROUP/VERSION, as meta/v1 APIResourceList; null when there is no such group. */
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
  // Upstream writes the core group's list without a version.
  return {
    kind: 'APIResourceList',
    ...(group === '' ? {} : { apiVersion: 'v1' }),
    groupVersion,
    resources,
  };
}

/** The answer to GET /apis in its plain form. */
export function groupList(registry: ResourceRegistry) {
  return { kind: 'APIGroupList', apiVersion: 'v1', groups: groups(registry) };
}

/** The answer to GET /apis/GROUP; null when there is no such group. */
export function groupDiscovery(registry: ResourceRegistry, name: string) {
  const group = groups(registry).find((candidate) => candidate.name === name);
  return group ? { kind: 'APIGroup', apiVersion: 'v1', ...group } : null;
}

function groups(registry: ResourceRegistry) {
  const found = new Map<string, { groupVersion: string; version: string }[]>();
  for (const { group, version, resources } of registry.groupVersions()) {
    const [first] = resources;
    if (group === '' || !first) continue;
    const entry = { groupVersion: apiVersionOf(first.kind), version };
    found.set(group, [...(found.get(group) ?? []), entry]);
  }
  return [...found].map(([name, versions]) => ({ name, versions, preferredVersion: versions[0] }));
}
