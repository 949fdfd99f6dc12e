import { type Client, type DeleteOptions, hasReason, type PatchType } from '../kube/client.ts';
import { follow, type Informer } from '../kube/informer.ts';
import type { KubeObject, Resource } from '../kube/types.ts';

/**
 * A kind as used by controllers: reads come from the informer's copy, writes go to the server and into the copy, so
 * that the next reconcile sees them. This replaces upstream's expectations.
 */
export interface Cache<T extends KubeObject> {
  readonly resource: Resource<T>;
  readonly informer: Informer<T>;
  get(namespace: string | undefined, name: string): T | undefined;
  /** Returns the objects of a namespace. */
  inNamespace(namespace: string): T[];
  /** Returns the objects that the object with this uid controls. */
  controlledBy(uid: string): T[];
  create(object: T): Promise<T>;
  update(object: T): Promise<T>;
  updateStatus(object: T): Promise<T>;
  patch(object: T, type: PatchType, patch: unknown, subresource?: string): Promise<T>;
  /** Deletes this object, not a successor of the same name; resolves also if it is already gone. */
  delete(object: T, options?: DeleteOptions): Promise<void>;
  /** Reports whether the server has accepted our deletion, before the watch reports it. */
  isDeleting(object: T): boolean;
}

const BY_NAMESPACE = 'namespace';
const BY_CONTROLLER = 'controller';

/** Starts an informer with the options of a controller's context, and returns its cache. */
export function followCache<T extends KubeObject>(
  context: Parameters<typeof follow<T>>[0],
  resource: Resource<T>,
  settings: Parameters<typeof follow<T>>[2] = {},
): Cache<T> {
  return createCache(context.client, resource, follow(context, resource, settings), context.signal);
}

export function createCache<T extends KubeObject>(
  client: Client,
  resource: Resource<T>,
  informer: Informer<T>,
  signal: AbortSignal,
): Cache<T> {
  const deleting = new Set<string>();
  informer.addIndex(BY_NAMESPACE, (object) => [object.metadata?.namespace ?? '']);
  informer.addIndex(BY_CONTROLLER, (object) =>
    (object.metadata?.ownerReferences ?? []).flatMap((owner) => (owner.controller ? [owner.uid] : [])),
  );
  informer.handle({
    onDelete: (object) => {
      deleting.delete(object.metadata?.uid ?? '');
    },
  });
  const taken = (object: T): T => {
    informer.record(object);
    return object;
  };
  const scope = (object: T) => {
    const namespace = object.metadata?.namespace;
    return { ...(namespace ? { namespace } : {}), signal };
  };
  return {
    resource,
    informer,
    get: (namespace, name) => informer.get(namespace ? `${namespace}/${name}` : name),
    inNamespace: (namespace) => informer.byIndex(BY_NAMESPACE, namespace),
    controlledBy: (uid) => informer.byIndex(BY_CONTROLLER, uid),
    create: async (object) => taken(await client.create(resource, object, scope(object))),
    update: async (object) => taken(await client.update(resource, object, scope(object))),
    updateStatus: async (object) => taken(await client.updateStatus(resource, object, scope(object))),
    patch: async (object, type, patch, subresource) =>
      taken(
        await client.patch(resource, object.metadata?.name ?? '', type, patch, {
          ...scope(object),
          ...(subresource ? { subresource } : {}),
        }),
      ),
    async delete(object, options = {}) {
      const { name = '', uid = '' } = object.metadata ?? {};
      try {
        await client.delete(resource, name, { ...scope(object), ...(uid ? { uid } : {}), ...options });
      } catch (error) {
        if (hasReason(error, 'Conflict')) {
          // A conflict on the uid means that this object is gone and another has its name; other conflicts are retried.
          const live = await client.get(resource, name, object.metadata?.namespace, { signal });
          if (live.metadata?.uid === uid) throw error;
        } else if (!hasReason(error, 'NotFound')) throw error;
      }
      const current = informer.get(
        object.metadata?.namespace ? `${object.metadata.namespace}/${name}` : name,
      );
      if (current && current.metadata?.uid === uid) deleting.add(uid);
    },
    isDeleting: (object) =>
      object.metadata?.deletionTimestamp !== undefined || deleting.has(object.metadata?.uid ?? ''),
  };
}
