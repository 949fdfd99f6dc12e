import { messageOf } from '../../lib/errors.ts';
import type { ApiObject } from '../object.ts';
import type { Filter } from '../resource-store.ts';
import { StatusError } from '../status-error.ts';
import type { StoredObject, StoreEvent } from '../store.ts';
import type { EventEncoding } from './event-encoding.ts';
import { observed, type SeenEvent } from './watch-hub.ts';

/** Where a watch puts what happens, in its order; what its filter leaves out is dropped. */
export interface EventSink {
  /** What is there when the watch begins. */
  initial(objects: readonly StoredObject[]): void;
  change(event: StoreEvent): void;
  bookmark(object: ApiObject): void;
  /** Calls back when all that was put in before has gone out. */
  afterwards(task: () => void): void;
}

/** A sink for encodings that are ready at once. */
export function directSink(
  filter: Filter,
  encoding: EventEncoding,
  receive: (bytes: Buffer) => void,
): EventSink {
  return {
    initial(objects) {
      const seen = objects.filter(({ object }) => filter.matches(object));
      if (seen.length > 0) receive(Buffer.concat(seen.map((stored) => encoding.event('ADDED', stored))));
    },
    change(event) {
      const seen = observed(filter, event);
      if (seen) receive(encoding.event(seen.type, seen.stored));
    },
    bookmark: (object) => receive(encoding.bookmark(object)),
    afterwards: (task) => task(),
  };
}

type Item =
  | { readonly initial: StoredObject }
  | { readonly change: StoreEvent }
  | { readonly bookmark: ApiObject }
  | { readonly task: () => void };

/**
 * A sink for objects that a webhook converts: what comes while the webhook is asked is converted in one request
 * afterwards. A filter of converted fields is asked after that. `fail` is called once with the encoded error, and
 * nothing follows.
 */
export function convertingSink(
  filter: Filter,
  encoding: EventEncoding,
  prepare: (objects: readonly ApiObject[]) => Promise<void>,
  receive: (bytes: Buffer) => void,
  fail: (bytes: Buffer) => void,
): EventSink {
  let queue: Item[] = [];
  let isBusy = false;
  let hasFailed = false;
  const seenIn = (item: Item): SeenEvent | null => {
    if ('initial' in item) {
      return filter.matches(item.initial.object) ? { type: 'ADDED', stored: item.initial } : null;
    }
    return 'change' in item ? observed(filter, item.change) : null;
  };
  const send = (item: Item, seen: SeenEvent | null) => {
    if ('task' in item) item.task();
    else if ('bookmark' in item) receive(encoding.bookmark(item.bookmark));
    else if (seen) receive(encoding.event(seen.type, seen.stored));
  };
  const pump = async () => {
    if (isBusy || hasFailed) return;
    isBusy = true;
    try {
      while (queue.length > 0) {
        const batch = queue;
        queue = [];
        if (filter.converted) await prepare(batch.flatMap(objectsOf));
        const events = batch.map(seenIn);
        await prepare(events.flatMap((event) => (event ? [event.stored.object] : [])));
        for (const [i, item] of batch.entries()) send(item, events[i] ?? null);
      }
    } catch (error) {
      hasFailed = true;
      const status =
        error instanceof StatusError ? error : new StatusError(500, 'InternalError', messageOf(error));
      fail(encoding.failure(status));
    } finally {
      isBusy = false;
    }
  };
  const put = (...items: Item[]) => {
    queue.push(...items);
    void pump();
  };
  return {
    initial: (objects) => put(...objects.map((initial) => ({ initial }))),
    change: (change) => put({ change }),
    bookmark: (bookmark) => put({ bookmark }),
    afterwards: (task) => put({ task }),
  };
}

/** The objects that the filter looks at. */
function objectsOf(item: Item): ApiObject[] {
  if ('initial' in item) return [item.initial.object];
  if (!('change' in item)) return [];
  return [item.change.before, item.change.after].flatMap((stored) => (stored ? [stored.object] : []));
}
