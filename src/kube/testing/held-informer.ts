import { createFollowedObjects } from '../followed-objects.ts';
import type { Informer } from '../informer.ts';
import type { KubeObject } from '../types.ts';

/** An informer whose objects a test holds. */
export interface HeldInformer<T extends KubeObject> extends Informer<T> {
  /** Stores an object, as a watch does that reports it. */
  put(object: T): void;
  /** Removes the object of a key ("NAMESPACE/NAME", or a name). */
  remove(key: string): void;
}

/** Holds these objects; they are known from the start. */
export function heldInformer<T extends KubeObject>(...objects: readonly T[]): HeldInformer<T> {
  const followed = createFollowedObjects<T>((error) => {
    throw error;
  });
  followed.replace(objects, '1');
  return {
    ...{ get: followed.get, list: followed.list, byIndex: followed.byIndex, addIndex: followed.addIndex },
    ...{ handle: followed.handle, record: followed.record, put: followed.put, remove: followed.remove },
    synced: Promise.resolve(),
    hasSynced: true,
    lastContact: 0,
    cachedAt: null,
  };
}
