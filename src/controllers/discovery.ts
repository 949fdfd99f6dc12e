import { ApiError, type Client } from '../kube/client.ts';
import type { KubeObject, Resource } from '../kube/types.ts';

interface ApiResourceList {
  readonly resources?: readonly {
    readonly name: string;
    readonly kind: string;
    readonly namespaced: boolean;
    readonly verbs?: readonly string[];
  }[];
}

/** A kind that the server serves, with its verbs. */
export interface ServedKind extends Resource<KubeObject> {
  readonly verbs: readonly string[];
}

/**
 * Returns every kind that the server serves, in its preferred version. `unavailable`: whether a group whose own API
 * server does not answer (503) is skipped or fails the call; any other failure fails it.
 */
export async function servedKinds(
  client: Client,
  signal: AbortSignal,
  unavailable: 'fail' | 'skip',
): Promise<ServedKind[]> {
  const groups = (await client.request('GET', '/apis', undefined, { signal })) as {
    groups?: { name: string; preferredVersion?: { version: string } }[];
  };
  const versions = [
    { group: '', version: 'v1', path: '/api/v1' },
    ...(groups.groups ?? []).map(({ name, preferredVersion }) => {
      const version = preferredVersion?.version ?? 'v1';
      return { group: name, version, path: `/apis/${name}/${version}` };
    }),
  ];
  const lists = await Promise.all(
    versions.map(async ({ group, version, path }) => {
      const list = await client.request('GET', path, undefined, { signal }).then(
        (answer) => answer as ApiResourceList,
        (error: unknown): ApiResourceList => {
          if (unavailable === 'skip' && error instanceof ApiError && error.status === 503) return {};
          throw error;
        },
      );
      return (
        (list.resources ?? [])
          .filter(({ name }) => !name.includes('/'))
          // The same objects as those of the core group.
          .filter(({ name }) => !(group === 'events.k8s.io' && name === 'events'))
          .map(({ name, kind, namespaced, verbs = [] }) => ({
            group,
            version,
            plural: name,
            kind,
            namespaced,
            verbs,
          }))
      );
    }),
  );
  return lists.flat();
}
