import { messageOf } from '../../lib/errors.ts';
import type { ApiObject } from '../object.ts';
import { StatusError } from '../status-error.ts';
import type { StoredObject, StoreEvent } from '../store.ts';
import type { Filter } from '../store-requests.ts';
import type { EventEncoding } from './event-encoding.ts';
import { observed, type SeenEvent } from './watch-hub.ts';

/** Receives the events of a watch in order; those that its filter excludes are dropped. */
export interface EventSink {
  /** Adds the existing objects at the start of the watch. */
  initial(objects: readonly StoredObject[]): void;
  change(event: StoreEvent): void;
  bookmark(object: ApiObject): void;
  /** Calls back when everything added earlier has been sent. */
  afterwards(task: () => void): void;
}

/** Creates a sink for encodings that are ready immediately. */
export function directSink(
  filter: Filter,
  encoding: EventEncoding,
  receive: (bytes: Buffer) => void,
): EventSink {
  return {
    initial(objects) {
      for (const stored of objects)
        if (filter.matches(stored.object)) receive(encoding.event('ADDED', stored));
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
 * Creates a sink for objects that a webhook converts: events that arrive during a webhook call are converted together
 * in the next call. A filter of converted fields applies after that. `fail` is called once with the encoded error;
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
  const put = (...items: Item[]) => putAll(items);
  const putAll = (items: readonly Item[]) => {
    for (const item of items) queue.push(item);
    void pump();
  };
  return {
    initial: (objects) => putAll(objects.map((initial) => ({ initial }))),
    change: (change) => put({ change }),
    bookmark: (bookmark) => put({ bookmark }),
    afterwards: (task) => put({ task }),
  };
}

/** Returns the objects that the filter reads. */
function objectsOf(item: Item): ApiObject[] {
  if ('initial' in item) return [item.initial.object];
  if (!('change' in item)) return [];
  return [item.change.before, item.change.after].flatMap((stored) => (stored ? [stored.object] : []));
}
