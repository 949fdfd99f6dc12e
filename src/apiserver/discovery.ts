import type { Kind } from './kind.ts';

/** Resources that are only created, to ask something: reviews. */
export const REVIEWS = [
  {
    group: 'authentication.k8s.io',
    kind: 'SelfSubjectReview',
    plural: 'selfsubjectreviews',
    namespaced: false,
  },
  { group: 'authentication.k8s.io', kind: 'TokenReview', plural: 'tokenreviews', namespaced: false },
  {
    group: 'authorization.k8s.io',
    kind: 'LocalSubjectAccessReview',
    plural: 'localsubjectaccessreviews',
    namespaced: true,
  },
  {
    group: 'authorization.k8s.io',
    kind: 'SelfSubjectAccessReview',
    plural: 'selfsubjectaccessreviews',
    namespaced: false,
  },
  {
    group: 'authorization.k8s.io',
    kind: 'SelfSubjectRulesReview',
    plural: 'selfsubjectrulesreviews',
    namespaced: false,
  },
  {
    group: 'authorization.k8s.io',
    kind: 'SubjectAccessReview',
    plural: 'subjectaccessreviews',
    namespaced: false,
  },
] as const;

const VERBS = ['create', 'delete', 'deletecollection', 'get', 'list', 'patch', 'update', 'watch'];

interface Subresource {
  readonly name: string;
  readonly verbs: readonly string[];
  readonly group?: string;
  readonly version?: string;
  readonly kind?: string;
}

const STREAM: readonly string[] = ['create', 'get'];
const EXTRA: Readonly<Record<string, readonly Subresource[]>> = {
  pods: [
    { name: 'attach', verbs: STREAM, kind: 'PodAttachOptions' },
    { name: 'binding', verbs: ['create'], kind: 'Binding' },
    { name: 'ephemeralcontainers', verbs: ['get', 'patch', 'update'] },
    { name: 'eviction', verbs: ['create'], group: 'policy', version: 'v1', kind: 'Eviction' },
    { name: 'exec', verbs: STREAM, kind: 'PodExecOptions' },
    { name: 'log', verbs: ['get'] },
    { name: 'portforward', verbs: STREAM, kind: 'PodPortForwardOptions' },
  ],
  namespaces: [{ name: 'finalize', verbs: ['update'] }],
  serviceaccounts: [
    { name: 'token', verbs: ['create'], group: 'authentication.k8s.io', version: 'v1', kind: 'TokenRequest' },
  ],
  nodes: [{ name: 'proxy', verbs: STREAM, kind: 'NodeProxyOptions' }],
};

function subresources(kind: Kind): Subresource[] {
  return [
    ...(EXTRA[kind.collection] ?? []),
    ...(kind.status ? [{ name: 'status', verbs: ['get', 'patch', 'update'] }] : []),
    ...(kind.scale
      ? [
          {
            name: 'scale',
            verbs: ['get', 'patch', 'update'],
            group: 'autoscaling',
            version: 'v1',
            kind: 'Scale',
          },
        ]
      : []),
  ];
}

/** Group-versions in the order in which kubectl should prefer them; the core group is "". */
export function groupVersions(kinds: readonly Kind[]): { group: string; version: string }[] {
  const seen = new Map<string, { group: string; version: string }>();
  for (const { group, version } of [...kinds, ...REVIEWS.map((review) => ({ ...review, version: 'v1' }))]) {
    seen.set(`${group}/${version}`, { group, version });
  }
  return [...seen.values()];
}

/** The answer to GET /api (core) or /apis, as apidiscovery.k8s.io APIGroupDiscoveryList. */
export function aggregatedDiscovery(kinds: readonly Kind[], core: boolean, version: 'v2' | 'v2beta1') {
  const groups = new Map<string, Map<string, unknown[]>>();
  for (const { group, version } of groupVersions(kinds)) {
    if ((group === '') !== core) continue;
    const resources = kinds
      .filter((kind) => kind.group === group && kind.version === version)
      .map((kind) => ({
        resource: kind.plural,
        responseKind: { group, version, kind: kind.kind },
        scope: kind.namespaced ? 'Namespaced' : 'Cluster',
        singularResource: kind.singular,
        verbs: VERBS,
        ...(kind.shortNames.length > 0 ? { shortNames: kind.shortNames } : {}),
        ...(kind.categories.length > 0 ? { categories: kind.categories } : {}),
        subresources: subresources(kind).map((sub) => ({
          subresource: sub.name,
          responseKind: {
            group: sub.group ?? group,
            version: sub.version ?? version,
            kind: sub.kind ?? kind.kind,
          },
          verbs: sub.verbs,
        })),
      }));
    const reviews = REVIEWS.filter((review) => review.group === group).map((review) => ({
      resource: review.plural,
      responseKind: { group, version, kind: review.kind },
      scope: review.namespaced ? 'Namespaced' : 'Cluster',
      singularResource: review.kind.toLowerCase(),
      verbs: ['create'],
    }));
    const versions = groups.get(group) ?? new Map<string, unknown[]>();
    versions.set(version, [...resources, ...reviews]);
    groups.set(group, versions);
  }
  return {
    kind: 'APIGroupDiscoveryList',
    apiVersion: `apidiscovery.k8s.io/${version}`,
    metadata: {},
    items: [...groups].map(([name, versions]) => ({
      metadata: { name, creationTimestamp: null },
      versions: [...versions].map(([version, resources]) => ({ version, resources, freshness: 'Current' })),
    })),
  };
}

/** The answer to GET /api/v1 and /apis/GROUP/VERSION, as meta/v1 APIResourceList; null when there is no such group. */
export function resourceList(kinds: readonly Kind[], group: string, version: string) {
  const own = kinds.filter((kind) => kind.group === group && kind.version === version);
  const reviews = version === 'v1' ? REVIEWS.filter((review) => review.group === group) : [];
  if (own.length + reviews.length === 0) return null;
  const resources = own.flatMap((kind) => [
    {
      name: kind.plural,
      singularName: kind.singular,
      namespaced: kind.namespaced,
      kind: kind.kind,
      verbs: VERBS,
      ...(kind.shortNames.length > 0 ? { shortNames: kind.shortNames } : {}),
      ...(kind.categories.length > 0 ? { categories: kind.categories } : {}),
    },
    ...subresources(kind).map((sub) => ({
      name: `${kind.plural}/${sub.name}`,
      singularName: '',
      namespaced: kind.namespaced,
      kind: sub.kind ?? kind.kind,
      verbs: sub.verbs,
      ...(sub.group ? { group: sub.group, version: sub.version } : {}),
    })),
  ]);
  const asked = reviews.map((review) => ({
    name: review.plural,
    singularName: review.kind.toLowerCase(),
    namespaced: review.namespaced,
    kind: review.kind,
    verbs: ['create'],
  }));
  return {
    kind: 'APIResourceList',
    apiVersion: 'v1',
    groupVersion: group === '' ? version : `${group}/${version}`,
    resources: [...resources, ...asked],
  };
}

/** The answer to GET /apis in its plain form. */
export function groupList(kinds: readonly Kind[]) {
  return { kind: 'APIGroupList', apiVersion: 'v1', groups: groups(kinds) };
}

/** The answer to GET /apis/GROUP; null when there is no such group. */
export function groupDiscovery(kinds: readonly Kind[], name: string) {
  const group = groups(kinds).find((candidate) => candidate.name === name);
  return group ? { kind: 'APIGroup', apiVersion: 'v1', ...group } : null;
}

function groups(kinds: readonly Kind[]) {
  return groupVersions(kinds)
    .filter(({ group }) => group !== '')
    .map(({ group, version }) => {
      const entry = { groupVersion: `${group}/${version}`, version };
      return { name: group, versions: [entry], preferredVersion: entry };
    });
}
