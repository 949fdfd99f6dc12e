import { Readable } from 'node:stream';
import type { Clock } from '../../lib/clock.ts';
import { apiVersionOf, type Kind } from '../kind.ts';
import type { ApiObject } from '../object.ts';
import type { Filter } from '../resource-store.ts';
import { badRequest, expired, StatusError } from '../status-error.ts';
import type { EventType, Store, StoredObject, StoreEvent } from '../store.ts';

export interface WatchRequest {
  readonly filter: Filter;
  /** "" or absent: what is there now, then changes; "0": the same; else changes after it. */
  readonly resourceVersion: string | null;
  readonly sendInitialEvents: boolean;
  readonly bookmarks: boolean;
  readonly timeoutMs: number;
  /** How an object stands in an event, where not as it is: as a row of a table, for example. */
  readonly encode: ((object: ApiObject, first: boolean) => string) | null;
  readonly signal: AbortSignal;
}

const BOOKMARK_MS = 60_000;
/** A reader that lags behind by this much has stopped reading. */
const MOST_UNREAD_BYTES = 128 * 1024 * 1024;

/** Streams the changes of a kind as lines of JSON. Throws StatusError before the first byte when it cannot begin. */
export function watch(store: Store, clock: Clock, kind: Kind, request: WatchRequest): Readable {
  const { filter } = request;
  const start = startVersion(store, request.resourceVersion);
  const initial = start === null || request.sendInitialEvents;
  const missed = initial ? [] : store.since(kind.collection, start);
  if (missed === null) throw expired(`too old resource version: ${start} (${store.oldestWatchable})`);

  const stream = new Readable({ read() {} });
  let first = true;
  const send = (type: EventType, stored: StoredObject) => {
    stream.push(
      request.encode
        ? `{"type":"${type}","object":${request.encode(stored.object, first)}}\n`
        : store.eventLine(type, stored),
    );
    first = false;
    if (stream.readableLength > MOST_UNREAD_BYTES) stream.destroy();
  };
  const bookmark = (annotations?: Record<string, string>) => {
    const metadata = {
      resourceVersion: String(store.version),
      creationTimestamp: null,
      ...(annotations ? { annotations } : {}),
    };
    stream.push(
      `${JSON.stringify({ type: 'BOOKMARK', object: { kind: kind.kind, apiVersion: apiVersionOf(kind), metadata } })}\n`,
    );
  };
  const inScope = (key: string) => filter.namespace === undefined || key.startsWith(`${filter.namespace}/`);
  const deliver = ({ before, after, last }: StoreEvent) => {
    if (!inScope(last.key)) return;
    const was = before !== null && filter.matches(before.object);
    const is = after !== null && filter.matches(after.object);
    if (is && after) send(was ? 'MODIFIED' : 'ADDED', after);
    else if (was && before) {
      // An object that leaves a selector is deleted for this watcher, as it last matched, with the new version.
      if (after === null) send('DELETED', last);
      else {
        const metadata = { ...before.object.metadata, resourceVersion: String(last.version) };
        const object = { ...before.object, metadata };
        send('DELETED', { ...before, version: last.version, object, json: JSON.stringify(object) });
      }
    }
  };

  if (initial) {
    for (const stored of store.list(kind.collection, filter.namespace)) {
      if (filter.matches(stored.object)) send('ADDED', stored);
    }
    if (request.sendInitialEvents) bookmark({ 'k8s.io/initial-events-end': 'true' });
  }
  for (const event of missed) deliver(event);

  const endListening = store.listen(kind.collection, deliver);
  let cancelBookmark = () => {};
  const later = () => {
    cancelBookmark = clock.after(BOOKMARK_MS, () => {
      bookmark();
      later();
    });
  };
  if (request.bookmarks) later();
  const cancelTimeout = clock.after(request.timeoutMs, () => {
    if (request.bookmarks) bookmark();
    stop();
    stream.push(null);
  });
  const stop = () => {
    endListening();
    cancelBookmark();
    cancelTimeout();
    request.signal.removeEventListener('abort', abort);
  };
  const abort = () => stream.destroy();
  if (request.signal.aborted) stream.destroy();
  request.signal.addEventListener('abort', abort);
  stream.on('close', stop);
  return stream;
}

/** Null: begin with what is there. */
function startVersion(store: Store, text: string | null): number | null {
  if (text === null || text === '' || text === '0') return null;
  if (!/^[0-9]+$/.test(text)) throw badRequest(`invalid resource version: ${JSON.stringify(text)}`);
  const version = Number(text);
  if (version > store.version) {
    throw new StatusError(
      504,
      'Timeout',
      `Too large resource version: ${version}, current: ${store.version}`,
      {
        causes: [{ reason: 'ResourceVersionTooLarge', message: 'Too large resource version' }],
        retryAfterSeconds: 1,
      },
    );
  }
  return version;
}
