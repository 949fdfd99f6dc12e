import { messageOf } from '../../lib/errors.ts';
import type { ApiObject } from '../object.ts';
import { StatusError } from '../status-error.ts';
import type { StoredObject } from '../store.ts';
import type { EventEncoding, WatchEventType } from './event-encoding.ts';

/** Where a watch puts its events, in their order. */
export interface EventSink {
  event(type: WatchEventType, stored: StoredObject): void;
  bookmark(object: ApiObject): void;
  /** Calls back when all that was put in before has gone out. */
  afterwards(task: () => void): void;
}

/** A sink for encodings that are ready at once. */
export function directSink(encoding: EventEncoding, receive: (bytes: Buffer) => void): EventSink {
  return {
    event: (type, stored) => receive(encoding.event(type, stored)),
    bookmark: (object) => receive(encoding.bookmark(object)),
    afterwards: (task) => task(),
  };
}

type Item =
  | { readonly type: WatchEventType; readonly stored: StoredObject }
  | { readonly bookmark: ApiObject }
  | { readonly task: () => void };

/**
 * A sink for objects that a webhook converts: what comes while the webhook is asked is converted in one request
 * afterwards. `fail` is called once with the encoded error, and nothing follows.
 */
export function convertingSink(
  encoding: EventEncoding,
  prepare: (objects: readonly ApiObject[]) => Promise<void>,
  receive: (bytes: Buffer) => void,
  fail: (bytes: Buffer) => void,
): EventSink {
  let queue: Item[] = [];
  let isBusy = false;
  let hasFailed = false;
  const send = (item: Item) => {
    if ('task' in item) item.task();
    else if ('bookmark' in item) receive(encoding.bookmark(item.bookmark));
    else receive(encoding.event(item.type, item.stored));
  };
  const pump = async () => {
    if (isBusy || hasFailed) return;
    isBusy = true;
    try {
      while (queue.length > 0) {
        const batch = queue;
        queue = [];
        await prepare(batch.flatMap((item) => ('stored' in item ? [item.stored.object] : [])));
        for (const item of batch) send(item);
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
  const put = (item: Item) => {
    queue.push(item);
    void pump();
  };
  return {
    event: (type, stored) => put({ type, stored }),
    bookmark: (bookmark) => put({ bookmark }),
    afterwards: (task) => put({ task }),
  };
}
