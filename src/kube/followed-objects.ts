import { isLater } from './resource-version.ts';
import { type KubeObject, keyOf } from './types.ts';

export interface Handlers<T> {
  onAdd?(object: T): void;
  onUpdate?(object: T, before: T): void;
  onDelete?(object: T): void;
}

/** The objects of a resource, with their indices and handlers. */
export interface FollowedObjects<T> {
  get(key: string): T | undefined;
  list(): T[];
  byIndex(index: string, value: string): T[];
  addIndex(name: string, values: (object: T) => readonly string[]): void;
  handle(handlers: Handlers<T>): () => void;
  /** Stores an object that the server has reported. */
  put(object: T): void;
  /** Stores an object ahead of the watch. */
  record(object: T): void;
  /** Stores the objects of a list of this version, instead of all that were stored before it. */
  replace(list: readonly T[], version: string): void;
  /** Returns true if a later version of an object is stored. */
  isLaterThan(object: T): boolean;
  /** Returns true if this or a later version of an object is stored. */
  isAtLeast(object: T): boolean;
  /** Notes that the watch has reached an object, which `record` may have stored. */
  confirm(key: string): void;
  /** Removes an object; `last`: its last state. */
  remove(key: string, last?: T): void;
}

/** `onError`: called with what a handler has thrown, which must stop neither the others nor the informer. */
export function createFollowedObjects<T extends KubeObject>(
  onError: (error: unknown) => void,
): FollowedObjects<T> {
  const objects = new Map<string, T>();
  const indices = new Map<
    string,
    { values: (object: T) => readonly string[]; keys: Map<string, Set<string>> }
  >();
  const handlers = new Set<Handlers<T>>();
  /** Keys whose object was stored by `record`, ahead of the watch. */
  const recorded = new Set<string>();

  const index = (key: string, object: T | undefined, change: 'add' | 'delete') => {
    if (!object) return;
    for (const { values, keys } of indices.values()) {
      for (const value of values(object)) {
        if (change === 'add') {
          const set = keys.get(value);
          if (set) set.add(key);
          else keys.set(value, new Set([key]));
        } else {
          const set = keys.get(value);
          set?.delete(key);
          if (set?.size === 0) keys.delete(value);
        }
      }
    }
  };
  const notify = (call: (handler: Handlers<T>) => void) => {
    for (const handler of [...handlers]) {
      try {
        call(handler);
      } catch (error) {
        onError(error);
      }
    }
  };
  const put = (object: T) => {
    const key = keyOf(object);
    const before = objects.get(key);
    if (before && before.metadata?.resourceVersion === object.metadata?.resourceVersion) return;
    index(key, before, 'delete');
    objects.set(key, object);
    index(key, object, 'add');
    if (!before) notify((handler) => handler.onAdd?.(object));
    else if (before.metadata?.uid !== object.metadata?.uid) {
      // Deleted and recreated while disconnected: two objects, so two events.
      notify((handler) => handler.onDelete?.(before));
      notify((handler) => handler.onAdd?.(object));
    } else notify((handler) => handler.onUpdate?.(object, before));
  };
  const remove = (key: string, last?: T) => {
    const before = objects.get(key);
    if (!before) return;
    objects.delete(key);
    recorded.delete(key);
    index(key, before, 'delete');
    notify((handler) => handler.onDelete?.(last ?? before));
  };

  function isLaterThan(object: T): boolean {
    const known = objects.get(keyOf(object));
    return known !== undefined && isLater(versionOf(known), versionOf(object));
  }

  return {
    get: (key) => objects.get(key),
    list: () => [...objects.values()],
    byIndex(name, value) {
      const found = indices.get(name)?.keys.get(value);
      return found ? [...found].flatMap((key) => objects.get(key) ?? []) : [];
    },
    addIndex(name, values) {
      indices.set(name, { values, keys: new Map() });
      for (const [key, object] of objects) index(key, object, 'add');
    },
    handle(handler) {
      handlers.add(handler);
      for (const object of objects.values()) handler.onAdd?.(object);
      return () => handlers.delete(handler);
    },
    put,
    record(object) {
      recorded.add(keyOf(object));
      put(object);
    },
    replace(list, version) {
      const present = new Set(list.map(keyOf));
      for (const [key, object] of [...objects]) {
        // An object recorded after the list was read will be in the next watch.
        if (!present.has(key) && !(recorded.has(key) && isLater(versionOf(object), version))) remove(key);
      }
      for (const object of list) {
        if (!(recorded.has(keyOf(object)) && isLaterThan(object))) put(object);
      }
    },
    isLaterThan,
    isAtLeast(object) {
      const known = objects.get(keyOf(object));
      return known !== undefined && !isLater(versionOf(object), versionOf(known));
    },
    confirm: (key) => void recorded.delete(key),
    remove,
  };
}

export function versionOf(object: KubeObject): string {
  return object.metadata?.resourceVersion ?? '';
}
