import { type Client, hasReason } from '../kube/client.ts';
import { apiVersionOf, type KubeObject, keyOf, type OwnerReference, type Resource } from '../kube/types.ts';
import type { Cache } from './cache.ts';
import { type ControllerContext, controllerQueue } from './context.ts';
import type { FollowedKinds } from './followed-kinds.ts';

const FOREGROUND = 'foregroundDeletion';
const ORPHAN = 'orphan';

/** State of an owner, as seen by its dependents. */
export type OwnerState = 'solid' | 'absent' | 'waiting' | 'unknown';

export type Verdict =
  | { readonly action: 'keep' }
  | { readonly action: 'delete'; readonly policy: 'Background' | 'Foreground' }
  /** Removes references to owners that are gone. */
  | { readonly action: 'unlink'; readonly references: OwnerReference[] };

/**
 * Decides about an object by the state of its owners (upstream's attemptToDeleteItem): it is kept while one is solid,
 * deleted in the background if all are absent, in the foreground if one waits for its dependents. Pure.
 */
export function verdictOf(
  object: KubeObject,
  stateOf: (owner: OwnerReference) => OwnerState,
  hasDependents: boolean,
): Verdict {
  const references = object.metadata?.ownerReferences ?? [];
  if (references.length === 0 || object.metadata?.deletionTimestamp !== undefined) return { action: 'keep' };
  const states = references.map(stateOf);
  if (states.includes('unknown')) return { action: 'keep' };
  if (states.includes('solid')) {
    const left = references.filter((_, i) => states[i] === 'solid');
    return left.length === references.length ? { action: 'keep' } : { action: 'unlink', references: left };
  }
  if (states.includes('waiting') && hasDependents) return { action: 'delete', policy: 'Foreground' };
  return { action: 'delete', policy: 'Background' };
}

interface Tracked {
  readonly cache: Cache<KubeObject>;
  readonly resource: Resource;
}

/** The state that the steps of a collection share. */
interface Collection {
  readonly client: Client;
  readonly signal: AbortSignal;
  /** By group and kind: an owner may be named in any version of its group. */
  readonly kinds: Map<string, Tracked>;
  readonly followed: FollowedKinds;
  /** Adds an object, by its kind and key. */
  readonly add: (id: string) => void;
}

const BY_OWNER = 'owner';
const BY_OWNER_KIND = 'owner kind';

const kindKey = (apiVersion: string, kind: string) =>
  `${apiVersion.includes('/') ? apiVersion.split('/')[0] : ''}/${kind}`;

const isWaiting = (object: KubeObject) =>
  object.metadata?.deletionTimestamp !== undefined && (object.metadata.finalizers ?? []).includes(FOREGROUND);

/** Deletes objects whose owners are gone, and implements foreground and orphan deletions. */
export function startGarbageCollector(context: ControllerContext, followed: FollowedKinds): void {
  const kinds = new Map<string, Tracked>();
  const work: Collection = {
    client: context.client,
    signal: context.signal,
    kinds,
    followed,
    add: (id) => queue.add(id),
  };
  const queue = controllerQueue(context, 'garbage-collector', async (id) => {
    const [kind = '', key = ''] = id.split(' ');
    const cache = kinds.get(kind)?.cache;
    const object = cache?.informer.get(key);
    if (!cache || !object) return;
    if (object.metadata?.deletionTimestamp !== undefined) {
      await finish(work, cache, object);
      return;
    }
    const references = object.metadata?.ownerReferences ?? [];
    if (references.length === 0 || cache.isDeleting(object)) return;
    const states = new Map<OwnerReference, OwnerState>();
    for (const owner of references) states.set(owner, await stateOf(work, owner, object.metadata?.namespace));
    const uid = object.metadata?.uid ?? '';
    const verdict = verdictOf(
      object,
      (owner) => states.get(owner) ?? 'unknown',
      dependentsOf(work, uid).length > 0,
    );
    switch (verdict.action) {
      case 'keep':
        return;
      case 'delete':
        if (verdict.policy === 'Foreground') await unblock(work, cache, object);
        await cache.delete(object, { propagationPolicy: verdict.policy });
        return;
      case 'unlink': {
        const { resourceVersion } = object.metadata ?? {};
        const metadata = { uid, resourceVersion, ownerReferences: verdict.references };
        await cache.patch(object, 'merge', { metadata });
      }
    }
  });
  followed.handle((cache) => {
    const { resource, informer } = cache;
    const name = kindKey(apiVersionOf(resource), resource.kind);
    kinds.set(name, { cache, resource });
    const owners = (object: KubeObject) => object.metadata?.ownerReferences ?? [];
    informer.addIndex(BY_OWNER, (object) => owners(object).map(({ uid }) => uid));
    informer.addIndex(BY_OWNER_KIND, (object) =>
      owners(object).map(({ apiVersion, kind }) => kindKey(apiVersion, kind)),
    );
    informer.handle({
      onAdd: (object) => look(work, cache, object),
      onUpdate: (object) => look(work, cache, object),
      onDelete(object) {
        for (const { cache: theirs, object: dependent } of dependentsOf(work, object.metadata?.uid ?? '')) {
          add(work, theirs, dependent);
        }
        // An owner that waits for its dependents may now be complete.
        for (const owner of object.metadata?.ownerReferences ?? []) {
          const { kind, object: waiting } = find(work, owner, object.metadata?.namespace);
          if (kind && waiting?.metadata?.uid === owner.uid && isWaiting(waiting))
            add(work, kind.cache, waiting);
        }
      },
    });
    // Dependents that appeared before the kind of their owners was followed. It rejects when the kind is no longer served.
    informer.synced.then(
      () => {
        for (const theirs of followed.list())
          for (const dependent of theirs.informer.byIndex(BY_OWNER_KIND, name)) look(work, theirs, dependent);
      },
      () => {},
    );
  });
}

const dependentsOf = (work: Collection, uid: string) =>
  work.followed
    .list()
    .flatMap((cache) => cache.informer.byIndex(BY_OWNER, uid).map((object) => ({ cache, object })));

const find = (work: Collection, owner: OwnerReference, namespace: string | undefined) => {
  const kind = work.kinds.get(kindKey(owner.apiVersion, owner.kind));
  if (!kind) return { kind, object: undefined };
  return { kind, object: kind.cache.get(kind.resource.namespaced ? namespace : undefined, owner.name) };
};

/** Absence must be confirmed by the server: copies of different kinds lag differently. */
const stateOf = async (
  work: Collection,
  owner: OwnerReference,
  namespace: string | undefined,
): Promise<OwnerState> => {
  const { kind, object } = find(work, owner, namespace);
  // A cluster-wide object cannot depend on a namespaced one: such a reference is ignored.
  if (!kind || (kind.resource.namespaced && !namespace)) return 'unknown';
  const current =
    object?.metadata?.uid === owner.uid ? object : await live(work, kind.resource, owner, namespace);
  if (!current) return 'absent';
  const { deletionTimestamp, finalizers = [] } = current.metadata ?? {};
  return deletionTimestamp !== undefined && finalizers.includes(FOREGROUND) ? 'waiting' : 'solid';
};

const live = async (
  work: Collection,
  resource: Resource,
  owner: OwnerReference,
  namespace: string | undefined,
) => {
  try {
    const scope = resource.namespaced ? namespace : undefined;
    const found = await work.client.get(resource, owner.name, scope, { signal: work.signal });
    return found.metadata?.uid === owner.uid ? found : null;
  } catch (error) {
    if (hasReason(error, 'NotFound')) return null;
    throw error;
  }
};

/** Owners in a cycle would wait for each other: if the dependents of an object wait, no owner waits for it. */
const unblock = async (work: Collection, cache: Cache<KubeObject>, object: KubeObject) => {
  const { uid = '', resourceVersion, ownerReferences = [] } = object.metadata ?? {};
  if (!dependentsOf(work, uid).some(({ object: dependent }) => isWaiting(dependent))) return;
  const references = ownerReferences.map((owner) => ({ ...owner, blockOwnerDeletion: false }));
  const changed = { metadata: { uid, resourceVersion, ownerReferences: references } };
  if (ownerReferences.some((owner) => owner.blockOwnerDeletion)) await cache.patch(object, 'merge', changed);
};

/** Removes the finalizer of an owner that waits for its dependents to be deleted or orphaned. */
const finish = async (work: Collection, cache: Cache<KubeObject>, owner: KubeObject) => {
  const { uid = '', finalizers = [] } = owner.metadata ?? {};
  const dependents = dependentsOf(work, uid);
  if (finalizers.includes(ORPHAN)) {
    await Promise.all(
      dependents.map(({ cache: theirs, object }) => {
        const { resourceVersion, uid: own, ownerReferences = [] } = object.metadata ?? {};
        const left = ownerReferences.filter((reference) => reference.uid !== uid);
        return theirs.patch(object, 'merge', {
          metadata: { uid: own, resourceVersion, ownerReferences: left },
        });
      }),
    );
    await withoutFinalizer(work, cache, owner, ORPHAN);
  } else if (finalizers.includes(FOREGROUND)) {
    const blocking = dependents.filter(({ object }) =>
      object.metadata?.ownerReferences?.some(
        (reference) => reference.uid === uid && reference.blockOwnerDeletion,
      ),
    );
    if (blocking.length === 0) await withoutFinalizer(work, cache, owner, FOREGROUND);
    for (const { cache: theirs, object } of dependents) add(work, theirs, object);
  }
};

const withoutFinalizer = (
  work: Collection,
  cache: Cache<KubeObject>,
  object: KubeObject,
  finalizer: string,
) => {
  const { uid, resourceVersion, finalizers = [] } = object.metadata ?? {};
  const left = finalizers.filter((other) => other !== finalizer);
  return work.client.patch(
    cache.resource,
    object.metadata?.name ?? '',
    'merge',
    { metadata: { uid, resourceVersion, finalizers: left } },
    { ...(object.metadata?.namespace ? { namespace: object.metadata.namespace } : {}), signal: work.signal },
  );
};

const add = (work: Collection, cache: Cache<KubeObject>, object: KubeObject) => {
  work.add(`${kindKey(apiVersionOf(cache.resource), cache.resource.kind)} ${keyOf(object)}`);
};

const needsLook = (work: Collection, object: KubeObject) => {
  const { deletionTimestamp, finalizers = [], ownerReferences = [] } = object.metadata ?? {};
  if (deletionTimestamp !== undefined) return finalizers.includes(FOREGROUND) || finalizers.includes(ORPHAN);
  return ownerReferences.some((owner) => {
    const { kind, object: found } = find(work, owner, object.metadata?.namespace);
    return kind !== undefined && (found?.metadata?.uid !== owner.uid || isWaiting(found));
  });
};

const look = (work: Collection, cache: Cache<KubeObject>, object: KubeObject) => {
  if (needsLook(work, object)) add(work, cache, object);
};
