import type { Readable } from 'node:stream';
import type { Clock } from '../../lib/clock.ts';
import { apiVersionOf, type Kind } from '../kind.ts';
import type { ApiObject } from '../object.ts';
import { badRequest, expired } from '../status-error.ts';
import type { Store, StoredObject } from '../store.ts';
import type { Filter } from '../store-requests.ts';
import type { EventEncoding } from './event-encoding.ts';
import { convertingSink, directSink, type EventSink } from './event-sink.ts';
import { createPacedStream, joined } from './paced-stream.ts';
import type { UnreadBudget } from './unread-budget.ts';
import type { WatchGroup, WatchHub } from './watch-hub.ts';

export interface WatchRequest {
  readonly filter: Filter;
  /** The selectors as text. */
  readonly selector: string;
  /** "" or null: the current objects, then changes; "0": the same; else changes after that version. */
  readonly resourceVersion: string | null;
  /** Null: determined by the version (KEP-3157). */
  readonly sendInitialEvents: boolean | null;
  readonly bookmarks: boolean;
  readonly timeoutMs: number;
  readonly encoding: EventEncoding;
  readonly signal: AbortSignal;
}

export interface WatchParts {
  readonly store: Store;
  readonly clock: Clock;
  readonly hub: WatchHub;
  readonly unread: UnreadBudget;
}

const BOOKMARK_MS = 60_000;
/** A client that lags by this much is treated as dead. */
const MAX_UNREAD_BYTES = 64 * 1024 * 1024;
/** Size of a piece of initial events: with each stream of a connection, one may wait in the connection's memory. */
const PIECE_BYTES = 64 * 1024;
const INITIAL_EVENTS_END = 'k8s.io/initial-events-end';

/** Streams the changes of a kind. Throws StatusError before the first byte if it cannot start. */
export function watch(
  { store, clock, hub, unread }: WatchParts,
  kind: Kind,
  request: WatchRequest,
): Readable {
  const { encoding } = request;
  const start = startVersion(request.resourceVersion);
  const filter = start !== null && start > store.version ? after(request.filter, start) : request.filter;
  const initial = request.sendInitialEvents ?? start === null;
  const missed = initial || start === null ? [] : store.since(kind.collection, start);
  if (missed === null) throw expired(`too old resource version: ${start} (${store.oldestWatchable})`);

  const paced = createPacedStream(MAX_UNREAD_BYTES);
  const { stream } = paced;
  const receive = (bytes: Buffer) => {
    paced.push(bytes);
    unread.received(bytes.length);
  };
  const bookmark = (annotations?: Record<string, string>) => {
    const metadata = {
      resourceVersion: String(store.version),
      creationTimestamp: null,
      ...(annotations ? { annotations } : {}),
    };
    // creationTimestamp is null as in Go's zero value: a bookmark has no other metadata.
    const object = { kind: kind.kind, apiVersion: apiVersionOf(kind), metadata } as unknown as ApiObject;
    sink.bookmark(object);
  };
  const end = () => {
    stop();
    paced.end();
  };
  const { prepare } = encoding;
  const sink = prepare
    ? convertingSink(filter, encoding, prepare, receive, (bytes) => {
        receive(bytes);
        end();
      })
    : directSink(filter, encoding, receive);

  if (initial) {
    const objects = store.list(kind.collection, filter.namespace);
    if (prepare) sink.initial(objects);
    else paced.start(joined(addedEvents(objects, filter, encoding), PIECE_BYTES));
    if (request.sendInitialEvents && request.bookmarks) bookmark({ [INITIAL_EVENTS_END]: 'true' });
  }
  for (const event of missed) sink.change(event);

  const watcher = { receive };
  const group = prepare
    ? listenAlone(store, kind, sink)
    : hub.join(
        {
          collection: kind.collection,
          filter,
          selector: filter === request.filter ? request.selector : `${request.selector} after ${start}`,
          encoding,
        },
        watcher,
      );
  const leave = unread.join({
    unread: paced.unread,
    group: () => group,
    disconnect: () => stream.destroy(),
  });
  let cancelBookmark = () => {};
  const scheduleBookmark = () => {
    cancelBookmark = clock.after(BOOKMARK_MS, () => {
      group.flush();
      bookmark();
      scheduleBookmark();
    });
  };
  if (request.bookmarks) scheduleBookmark();
  const cancelTimeout = clock.after(request.timeoutMs, () => {
    group.flush();
    if (request.bookmarks) bookmark();
    sink.afterwards(end);
  });
  const stop = () => {
    group.remove(watcher);
    leave();
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

/** Encodes the existing objects one after the other, so that they are never in memory as a whole. */
function* addedEvents(
  objects: readonly StoredObject[],
  filter: Filter,
  encoding: EventEncoding,
): Generator<Buffer> {
  for (const stored of objects) if (filter.matches(stored.object)) yield encoding.event('ADDED', stored);
}

/** Watches changes that are converted for this watch only. */
function listenAlone(store: Store, kind: Kind, sink: EventSink): Omit<WatchGroup, 'add'> {
  const stop = store.listen(kind.collection, (event) => sink.change(event));
  return { remove: stop, flush() {} };
}

/** Restricts the filter to versions that the client has not seen, if the client is ahead of this server. */
function after(filter: Filter, version: number): Filter {
  return {
    ...filter,
    matches: (object) => Number(object.metadata.resourceVersion) > version && filter.matches(object),
  };
}

/** Returns null to start with the current objects. */
function startVersion(text: string | null): number | null {
  if (text === null || text === '' || text === '0') return null;
  if (!/^[0-9]+$/.test(text)) throw badRequest(`invalid resource version: ${JSON.stringify(text)}`);
  const version = Number(text);
  return version;
}
