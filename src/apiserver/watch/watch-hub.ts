import type { Clock } from '../../lib/clock.ts';
import type { Store, StoredObject, StoreEvent } from '../store.ts';
import type { Filter } from '../store-requests.ts';
import type { EventEncoding, WatchEventType } from './event-encoding.ts';

/** A watch as a member of a group. */
export interface Watcher {
  /** Receives complete encoded events; every watcher of the group receives the same bytes. */
  receive(bytes: Buffer): void;
}

/** Watchers of the same objects in the same format: each change is filtered and encoded once for all of them. */
export interface WatchGroup {
  add(watcher: Watcher): void;
  remove(watcher: Watcher): void;
  /** Sends buffered events, so that later output follows them. */
  flush(): void;
}

export interface WatchSubject {
  readonly collection: string;
  readonly filter: Filter;
  /** The selectors as text, by which two filters are equal. */
  readonly selector: string;
  readonly encoding: EventEncoding;
}

export interface WatchHub {
  join(subject: WatchSubject, watcher: Watcher): WatchGroup;
}

/**
 * A group writes at most once in this time multiplied by its number of watchers: a write costs some 20 to 40 µs, so
 * that a burst of events to many watchers uses a bounded share of the CPU. The first event after a pause is sent
 * immediately.
 */
const MS_PER_WATCHER = 0.2;
const MAX_DELAY_MS = 50;
/** Buffered events are sent when they reach this size. */
const MAX_HELD_BYTES = 256 * 1024;

export function createWatchHub(store: Store, clock: Clock): WatchHub {
  const groups = new Map<string, WatchGroup>();
  const memo = createEncodingMemo();
  return {
    join(subject, watcher) {
      const { collection, filter, selector, encoding } = subject;
      const key =
        encoding.shared === null
          ? null
          : JSON.stringify([collection, filter.namespace ?? null, selector, encoding.shared]);
      let group = key === null ? undefined : groups.get(key);
      if (!group) {
        group = createGroup(store, clock, subject, memo, () => {
          if (key !== null) groups.delete(key);
        });
        if (key !== null) groups.set(key, group);
      }
      group.add(watcher);
      return group;
    },
  };
}

function createGroup(
  store: Store,
  clock: Clock,
  subject: WatchSubject,
  memo: EncodingMemo,
  emptied: () => void,
): WatchGroup {
  const { encoding } = subject;
  const watchers = new Set<Watcher>();
  let held: Buffer[] = [];
  let heldBytes = 0;
  let lastWrite = Number.NEGATIVE_INFINITY;
  let cancel: (() => void) | null = null;

  const flush = () => {
    cancel?.();
    cancel = null;
    if (held.length === 0) return;
    const [only] = held;
    const bytes = held.length === 1 && only ? only : Buffer.concat(held, heldBytes);
    held = [];
    heldBytes = 0;
    lastWrite = clock.now();
    for (const watcher of [...watchers]) watcher.receive(bytes);
  };
  const endListening = store.listen(subject.collection, (event) => {
    const seen = observed(subject.filter, event);
    if (!seen) return;
    const bytes =
      encoding.shared === null
        ? encoding.event(seen.type, seen.stored)
        : memo(encoding, seen.type, seen.stored);
    held.push(bytes);
    heldBytes += bytes.length;
    const pause = Math.min(MAX_DELAY_MS, watchers.size * MS_PER_WATCHER);
    const wait = lastWrite + pause - clock.now();
    if (wait < 1 || heldBytes > MAX_HELD_BYTES) flush();
    else cancel ??= clock.after(wait, flush);
  });
  return {
    add(watcher) {
      flush();
      watchers.add(watcher);
    },
    remove(watcher) {
      watchers.delete(watcher);
      if (watchers.size > 0) return;
      cancel?.();
      endListening();
      emptied();
    },
    flush,
  };
}

/** An event of one watch. */
export interface SeenEvent {
  readonly type: WatchEventType;
  readonly stored: StoredObject;
}

/** Converts a change to the event that a watch with a filter sees; null if it sees none. */
export function observed(filter: Filter, { before, after, last }: StoreEvent): SeenEvent | null {
  if (filter.namespace !== undefined && !last.key.startsWith(`${filter.namespace}/`)) return null;
  const was = before !== null && filter.matches(before.object);
  if (after !== null && filter.matches(after.object)) {
    return { type: was ? 'MODIFIED' : 'ADDED', stored: after };
  }
  if (!was) return null;
  if (after === null) return { type: 'DELETED', stored: last };
  // An object that no longer matches a selector is deleted for this watch: as it last matched, with the new version.
  const metadata = { ...before.object.metadata, resourceVersion: String(last.version) };
  const object = { ...before.object, metadata };
  return {
    type: 'DELETED',
    stored: { ...before, version: last.version, object, json: JSON.stringify(object) },
  };
}

type EncodingMemo = (encoding: EventEncoding, type: WatchEventType, stored: StoredObject) => Buffer;

/** Caches the encodings of the latest change, which all groups of its collection request in turn. */
function createEncodingMemo(): EncodingMemo {
  let latest: StoredObject | null = null;
  const encoded = new Map<string, Buffer>();
  return (encoding, type, stored) => {
    if (stored !== latest) {
      latest = stored;
      encoded.clear();
    }
    const key = `${type} ${encoding.shared}`;
    const known = encoded.get(key);
    if (known) return known;
    const bytes = encoding.event(type, stored);
    encoded.set(key, bytes);
    return bytes;
  };
}
