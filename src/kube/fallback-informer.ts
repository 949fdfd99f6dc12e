import type { Handlers } from './followed-objects.ts';
import type { Informer } from './informer.ts';
import type { KubeObject } from './types.ts';

/**
 * Returns an informer that follows with `first`, and with another one as soon as `refused` resolves: what `first` has
 * reported before is then reported again.
 */
export function informerWithFallback<T extends KubeObject>(
  first: Informer<T>,
  refused: Promise<void>,
  startSecond: () => Informer<T>,
): Informer<T> {
  let current = first;
  const indices = new Map<string, (object: T) => readonly string[]>();
  /** By the handlers: what removes them from the current informer. */
  const removals = new Map<Handlers<T>, () => void>();
  const replaced = refused.then(() => {
    current = startSecond();
    for (const [name, values] of indices) current.addIndex(name, values);
    for (const [handlers, remove] of [...removals]) {
      remove();
      removals.set(handlers, current.handle(handlers));
    }
    return current.synced;
  });
  const synced = Promise.race([first.synced, replaced]);
  synced.catch(() => {});
  replaced.catch(() => {});
  return {
    get: (key) => current.get(key),
    list: () => current.list(),
    byIndex: (index, value) => current.byIndex(index, value),
    addIndex(name, values) {
      indices.set(name, values);
      current.addIndex(name, values);
    },
    handle(handlers) {
      removals.set(handlers, current.handle(handlers));
      return () => {
        removals.get(handlers)?.();
        removals.delete(handlers);
      };
    },
    synced,
    get hasSynced() {
      return current.hasSynced;
    },
    record: (object) => current.record(object),
    get lastContact() {
      return current.lastContact;
    },
    get cachedAt() {
      return current.cachedAt;
    },
  };
}
