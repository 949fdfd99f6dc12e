import { type ApiError, type Client, hasReason } from '../kube/client.ts';
import { startInformer } from '../kube/informer.ts';
import { type KubeObject, keyOf, type Resource } from '../kube/types.ts';
import type { Clock } from '../lib/clock.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import {
  CLUSTER_POLICY_KINDS,
  type ClusterPolicyKind,
  type ClusterPolicyObject,
  clusterPolicyKey,
  readClusterPolicy,
} from './cluster-policy-reader.ts';
import type { Policy } from './model.ts';

const GROUP = 'policy.networking.k8s.io';

interface Definition extends KubeObject {
  spec?: { versions?: readonly { name?: string; served?: boolean }[] };
  status?: { conditions?: readonly { type?: string; status?: string }[] };
}

const DEFINITIONS: Resource<Definition> = {
  group: 'apiextensions.k8s.io',
  version: 'v1',
  plural: 'customresourcedefinitions',
  kind: 'CustomResourceDefinition',
  namespaced: false,
};

const KINDS = Object.keys(CLUSTER_POLICY_KINDS) as ClusterPolicyKind[];

/** Returns the resource of a kind of policies of the whole cluster. */
export function clusterPolicyResource(
  kind: ClusterPolicyKind,
  version: string = CLUSTER_POLICY_KINDS[kind].versions[0],
): Resource<ClusterPolicyObject> {
  return { group: GROUP, kind, version, namespaced: false, plural: CLUSTER_POLICY_KINDS[kind].plural };
}

/**
 * Calls `use` with the resource of the first version that the cluster serves, or in which it has the object. Rejects with
 * reason NotFound if there is none.
 */
export async function inServedVersion<T>(
  kind: ClusterPolicyKind,
  use: (resource: Resource<ClusterPolicyObject>) => Promise<T>,
): Promise<T> {
  const [first, ...others] = CLUSTER_POLICY_KINDS[kind].versions;
  const last = others.pop();
  for (const version of last === undefined ? [] : [first, ...others]) {
    try {
      return await use(clusterPolicyResource(kind, version));
    } catch (error) {
      if (!hasReason(error, 'NotFound')) throw error;
    }
  }
  return use(clusterPolicyResource(kind, last ?? first));
}

export interface FollowOptions {
  readonly client: Client;
  readonly clock: Clock;
  /** 0 ≤ n < 1 */
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

export interface ClusterPolicyHandlers {
  onSet(kind: ClusterPolicyKind, object: ClusterPolicyObject): void;
  /** `key`: see `clusterPolicyKey`. */
  onDelete(key: string): void;
}

/**
 * Follows the policies of the whole cluster while their CustomResourceDefinitions are installed. Resolves when those that
 * exist now are known; rejects when the signal aborts before. If the definitions may not be read, that is logged, and
 * there are no such policies until they may.
 */
export async function followClusterPolicies(
  options: FollowOptions,
  handlers: ClusterPolicyHandlers,
): Promise<void> {
  const { logger, signal } = options;
  const refusal = Promise.withResolvers<void>();
  let isRefused = false;
  const refused = (error: ApiError) => {
    if (isRefused) return;
    isRefused = true;
    logger.warn(
      {},
      `policies of ${GROUP} are not enforced: ${messageOf(error)}; allow the agent to list and watch customresourcedefinitions and this group`,
    );
    refusal.resolve();
  };
  const followed = Promise.all(KINDS.map((kind) => followKind(options, kind, handlers, refused)));
  await Promise.race([followed, refusal.promise]);
  followed.catch((error: unknown) => {
    if (!signal.aborted)
      logger.error({ err: error }, `policies of ${GROUP} are not enforced: ${messageOf(error)}`);
  });
}

/** Returns the kinds of which the cluster serves a version that is read, and has no policies. */
export async function unusedClusterPolicyKinds(client: Client): Promise<ClusterPolicyKind[]> {
  const found = await Promise.all(
    KINDS.map(async (kind) => {
      try {
        const { items } = await inServedVersion(kind, (resource) => client.list(resource, { limit: 1 }));
        return items.length === 0 ? [kind] : [];
      } catch (error) {
        if (hasReason(error, 'NotFound')) return [];
        throw error;
      }
    }),
  );
  return found.flat();
}

/** Returns the policies of the whole cluster; none if their definitions are not installed. */
export async function listClusterPolicies(client: Client): Promise<Policy[]> {
  const lists = await Promise.all(
    KINDS.map(async (kind) => {
      try {
        const { items } = await inServedVersion(kind, (resource) => client.list(resource));
        return items.map((one) => readClusterPolicy(kind, one).policy);
      } catch (error) {
        if (hasReason(error, 'NotFound')) return [];
        throw error;
      }
    }),
  );
  return lists.flat();
}

/** An informer rejects only when its signal aborts. */
const ignoreAborted = () => {};

const definitionOf = (kind: ClusterPolicyKind): string => `${CLUSTER_POLICY_KINDS[kind].plural}.${GROUP}`;

async function followKind(
  options: FollowOptions,
  kind: ClusterPolicyKind,
  { onSet, onDelete }: ClusterPolicyHandlers,
  onRefused: (error: ApiError) => void,
): Promise<void> {
  const { logger, signal } = options;
  const { versions } = CLUSTER_POLICY_KINDS[kind];
  let current: { readonly stop: AbortController; readonly version: string } | null = null;
  let synced: Promise<unknown> = Promise.resolve();
  let isUnknownVersionLogged = false;
  const known = new Set<string>();
  const end = () => {
    current?.stop.abort(
      new FairleadError(`${kind} is no longer served`, { op: 'watch policies', code: 'NotFound' }),
    );
    current = null;
    for (const key of known) onDelete(key);
    known.clear();
  };
  const update = (definition: Definition) => {
    const served = versions.find((version) =>
      definition.spec?.versions?.some(({ name, served }) => name === version && served),
    );
    const isEstablished =
      definition.status?.conditions?.some((one) => one.type === 'Established' && one.status === 'True') ??
      false;
    if (isEstablished && served === undefined && !isUnknownVersionLogged) {
      isUnknownVersionLogged = true;
      logger.warn(
        {},
        `policies of kind ${kind} are not enforced: the cluster does not serve their version ${versions.join(' or ')}`,
      );
    }
    if (served === undefined || !isEstablished) {
      if (current) end();
      return;
    }
    if (current?.version === served) return;
    // The policies are the same in the other version: they stay enforced until they are listed in it.
    current?.stop.abort(
      new FairleadError(`${kind} is served in ${served}`, { op: 'watch policies', code: 'NotFound' }),
    );
    const stop = new AbortController();
    const informer = startInformer({
      ...options,
      resource: clusterPolicyResource(kind, served),
      signal: AbortSignal.any([signal, stop.signal]),
      transform: ({ metadata, spec }) => ({
        metadata: {
          name: metadata?.name ?? '',
          uid: metadata?.uid ?? '',
          resourceVersion: metadata?.resourceVersion ?? '',
        },
        ...(spec ? { spec } : {}),
      }),
    });
    const set = (object: ClusterPolicyObject) => {
      known.add(clusterPolicyKey(kind, keyOf(object)));
      onSet(kind, object);
    };
    informer.handle({
      onAdd: set,
      onUpdate: set,
      onDelete(object) {
        const key = clusterPolicyKey(kind, keyOf(object));
        if (known.delete(key)) onDelete(key);
      },
    });
    // The definition may be removed before its objects are known.
    synced = Promise.race([
      informer.synced,
      new Promise<void>((resolve) => stop.signal.addEventListener('abort', () => resolve(), { once: true })),
    ]);
    // Those that were deleted while the version changed.
    informer.synced.then(() => {
      const listed = new Set(informer.list().map((one) => clusterPolicyKey(kind, keyOf(one))));
      for (const key of known) if (!listed.has(key) && known.delete(key)) onDelete(key);
    }, ignoreAborted);
    synced.catch(() => {});
    current = { stop, version: served };
  };
  const definitions = startInformer({
    ...options,
    resource: DEFINITIONS,
    optional: true,
    onRefused,
    fieldSelector: `metadata.name=${definitionOf(kind)}`,
    transform: ({ metadata, spec, status }) => ({
      metadata: { name: metadata?.name ?? '', resourceVersion: metadata?.resourceVersion ?? '' },
      spec: { versions: (spec?.versions ?? []).map(({ name = '', served = false }) => ({ name, served })) },
      status: { conditions: status?.conditions ?? [] },
    }),
  });
  definitions.handle({ onAdd: update, onUpdate: update, onDelete: end });
  await definitions.synced;
  await synced;
}
