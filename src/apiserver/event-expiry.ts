import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { Store } from './store.ts';

/** How long an Event is stored after its last write: kube-apiserver's --event-ttl. */
export const EVENT_TTL_MS = 3_600_000;
const CHECK_MS = 60_000;
const EVENTS = 'events';

/**
 * Deletes Events an hour after their last write. Events of a previous run of the server are deleted an hour after its
 * start, since the store does not record times of writes. Returns a function that ends it.
 */
export function expireEvents(options: {
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
}): () => void {
  const { store, clock, logger } = options;
  // In the order of writes, oldest first.
  const written = new Map<string, number>();
  for (const { key } of store.list(EVENTS)) written.set(key, clock.now());
  const endListening = store.listen(EVENTS, ({ last, after }) => {
    written.delete(last.key);
    if (after) written.set(last.key, clock.now());
  });
  const check = () => {
    cancel = clock.after(CHECK_MS, check);
    for (const [key, time] of written) {
      if (time + EVENT_TTL_MS > clock.now()) return;
      try {
        store.remove(EVENTS, key);
      } catch (error) {
        logger.warn({ event: key }, `failed to delete an expired Event: ${messageOf(error)}`);
        return;
      }
    }
  };
  let cancel = clock.after(CHECK_MS, check);
  return () => {
    cancel();
    endListening();
  };
}
