import type { Clock } from '../lib/clock.ts';
import type { Store } from './store.ts';

/** kube-apiserver's --etcd-compaction-interval. */
export const COMPACTION_MS = 300_000;

/**
 * Makes the pages of a list expire 5 to 10 minutes after its first one, as etcd's compaction does: a client that
 * continues later has to decide between a new list and an inconsistent one. Watches continue from any version in the
 * history. Returns a function that ends it.
 */
export function expireLists({ store, clock }: { readonly store: Store; readonly clock: Clock }): () => void {
  let previous = 0;
  const compact = () => {
    cancel = clock.after(COMPACTION_MS, compact);
    store.expireLists(previous);
    previous = store.version;
  };
  let cancel = clock.after(COMPACTION_MS, compact);
  return () => cancel();
}
