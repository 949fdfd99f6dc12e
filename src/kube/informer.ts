import type { Clock } from '../lib/clock.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { type ApiError, type Client, hasReason } from './client.ts';
import { followServer, watchRights } from './follow-loop.ts';
import { createFollowedObjects, type Handlers, versionOf } from './followed-objects.ts';
import type { MissingRule } from './missing-rule.ts';
import { isLater } from './resource-version.ts';
import { contactOf, type ServerContact } from './server-contact.ts';
import { type KubeObject, keyOf, type Resource } from './types.ts';

export interface InformerOptions<T extends KubeObject> {
  readonly client: Client;
  readonly resource: Resource<T>;
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  /** Drops unused fields before an object is stored, which saves memory at scale. */
  readonly transform?: (object: T) => T;
  /**
   * The resource may be missing or forbidden, as in an older or stricter cluster: that is logged once, and retried
   * every ten minutes, once the server can no longer be starting.
   */
  readonly optional?: boolean;
  /** Called when an optional resource is found to be missing or forbidden; not called for its later attempts. */
  readonly onRefused?: (error: ApiError) => void;
  /**
   * Called when the API server forbids to list or watch the resource, and with null when it allows it again. Not
   * called for an optional resource.
   */
  readonly onMissingRule?: (rule: MissingRule | null) => void;
  /**
   * Returns the objects of an earlier run, or null. Called if the API server cannot be reached at the start: these
   * objects are used until it can.
   */
  readonly cached?: () => CachedObjects<T> | null;
  /** The log about the API server that informers share; absent: that of `client`. */
  readonly contact?: ServerContact;
  readonly clock: Clock;
  /** 0 ≤ n < 1; spreads reconnections. */
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

export interface CachedObjects<T> {
  readonly objects: readonly T[];
  /** When they were current, in the clock's milliseconds. */
  readonly at: number;
}

/** A local copy of a kind's objects that follows the API server across disconnects. */
export interface Informer<T> {
  get(key: string): T | undefined;
  list(): T[];
  /** Returns objects by an index created with `addIndex`. */
  byIndex(index: string, value: string): T[];
  /** Adds an index; call it before the first objects arrive. */
  addIndex(name: string, values: (object: T) => readonly string[]): void;
  /** Calls handlers for existing objects, then for every change. Returns a function that removes them. */
  handle(handlers: Handlers<T>): () => void;
  /** Resolves after the first full list has been handled; rejects if the signal aborts before. */
  readonly synced: Promise<void>;
  readonly hasSynced: boolean;
  /**
   * Stores the response of the caller's own write without waiting for the watch, so that the next read sees it. An
   * object that the watch has already reported, in this or a later version, is not changed.
   */
  record(object: T): void;
  /** Time of the last message from the server, in the clock's milliseconds: the staleness of this copy. */
  readonly lastContact: number;
  /** When the objects were current, if they are those of an earlier run; null: they are the server's. */
  readonly cachedAt: number | null;
}

/** A watch without any event, even a bookmark (sent every minute), for this long is treated as dead. */
const SILENCE_MS = 150_000;
/**
 * Page size of lists. Pages of 500 EndpointSlices exceed a megabyte of text, which Node.js stores outside of its heap
 * until a later collection; a start would use tens of megabytes that the process never returns.
 */
const PAGE = 200;
/** A server that has not answered the first list after this time may be out of reach: cached objects are used. */
const CACHE_MS = 5000;
/** Timeout of a list request. */
const LIST_MS = 60_000;
/** The options that the informers of a process share. */
type SharedOptions = 'client' | 'clock' | 'random' | 'logger' | 'signal';

/** Starts an informer with the shared options of a context, which may have others. */
export function follow<T extends KubeObject>(
  { client, clock, random, logger, signal }: Pick<InformerOptions<T>, SharedOptions>,
  resource: Resource<T>,
  settings: Omit<InformerOptions<T>, SharedOptions | 'resource'> = {},
): Informer<T> {
  return startInformer({ ...{ client, clock, random, logger, signal, resource }, ...settings });
}

/** Starts to follow the resource; ends with the signal. */
export function startInformer<T extends KubeObject>(options: InformerOptions<T>): Informer<T> {
  const { client, resource, clock, signal, logger } = options;
  const follower = (options.contact ?? contactOf(client, { clock, logger })).follower(resource.plural);
  const objects = createFollowedObjects<T>((error) =>
    logger.error({ resource: resource.plural, err: error }, `handler failed: ${messageOf(error)}`),
  );
  const synced = Promise.withResolvers<void>();
  synced.promise.catch(() => {});
  let hasSynced = false;
  let lastContact = clock.now();
  let cachedAt: number | null = null;
  /** The version up to which the server has reported its changes. */
  let seen = '';
  const transform = options.transform ?? ((object: T) => object);
  const useCache = () => {
    if (hasSynced || signal.aborted) return;
    const found = options.cached?.() ?? null;
    if (found === null) return;
    cachedAt = found.at;
    const context = { resource: resource.plural, objects: found.objects.length };
    logger.debug(context, `using the ${resource.plural} of ${new Date(found.at).toISOString()}`);
    for (const object of found.objects) objects.put(transform(object));
    hasSynced = true;
    synced.resolve();
  };
  const cancelCache = options.cached
    ? clock.after(CACHE_MS, () => {
        useCache();
        if (cachedAt !== null) follower.lost(`no answer for ${CACHE_MS / 1000} s`, cachedAt);
      })
    : () => {};

  const rights = watchRights(options);
  /** Whether the latest request was a watch that the server accepted. */
  let isOpen = false;
  const listAll = async (): Promise<string> => {
    isOpen = false;
    const list = await requestList(options, transform);
    lastContact = clock.now();
    seen = list.resourceVersion;
    objects.replace(list.items, seen);
    cancelCache();
    cachedAt = null;
    follower.answered();
    if (!hasSynced) {
      hasSynced = true;
      synced.resolve();
    }
    return list.resourceVersion;
  };
  const watchFrom = async (start: string): Promise<string> => {
    let version = start;
    isOpen = false;
    // A request alone proves no contact.
    const silence = limitSilence(clock);
    const heard = () => {
      lastContact = clock.now();
      silence.heard();
    };
    try {
      const events = requestWatch(options, version, silence.signal, () => {
        isOpen = true;
        heard();
        rights.allowed();
        follower.answered();
      });
      for await (const event of events) {
        heard();
        version = event.object.metadata?.resourceVersion ?? version;
        seen = version;
        if (event.type === 'BOOKMARK') continue;
        // Recorded ahead of the watch, or a duplicate event.
        if (objects.isLaterThan(event.object)) continue;
        objects.confirm(keyOf(event.object));
        const object = transform(event.object);
        if (event.type === 'DELETED') objects.remove(keyOf(object), object);
        else objects.put(object);
      }
      return version;
    } catch (error) {
      // Continues after the last event before the connection failed.
      if (!hasReason(error, 'Expired', 'Gone') && version !== start) return version;
      throw error;
    } finally {
      silence.end();
    }
  };
  void followServer(options, {
    list: listAll,
    watch: watchFrom,
    useCache,
    isOpen: () => isOpen,
    cachedAt: () => cachedAt,
    follower,
    rights,
  }).then(() => {
    follower.end();
    cancelCache();
    synced.reject(signal.reason);
  });

  const { get, list, byIndex, addIndex, handle } = objects;
  return {
    ...{ get, list, byIndex, addIndex, handle },
    record(raw) {
      // Nothing was listed yet, so the object's version cannot be compared.
      if (seen === '' || !isLater(versionOf(raw), seen)) return;
      if (objects.isAtLeast(raw)) return;
      objects.record(transform(raw));
    },
    synced: synced.promise,
    get hasSynced() {
      return hasSynced;
    },
    get lastContact() {
      return lastContact;
    },
    get cachedAt() {
      return cachedAt;
    },
  };
}

function scope(options: { namespace?: string; labelSelector?: string; fieldSelector?: string }) {
  const { namespace, labelSelector, fieldSelector } = options;
  return {
    ...(namespace === undefined ? {} : { namespace }),
    ...(labelSelector === undefined ? {} : { labelSelector }),
    ...(fieldSelector === undefined ? {} : { fieldSelector }),
  };
}

function tooSlow(op: string, message: string): FairleadError {
  return new FairleadError(message, { op, code: 'ETIMEDOUT' });
}

/** Ends a watch in which no message arrives for too long. */
function limitSilence(clock: Clock): { readonly signal: AbortSignal; heard(): void; end(): void } {
  const silent = new AbortController();
  let cancel = () => {};
  const heard = () => {
    cancel();
    cancel = clock.after(SILENCE_MS, () => silent.abort(tooSlow('watch objects', 'the watch timed out')));
  };
  heard();
  return { signal: silent.signal, heard, end: () => cancel() };
}

/** Lists all objects, page by page. Throws if that takes too long. */
async function requestList<T extends KubeObject>(options: InformerOptions<T>, transform: (object: T) => T) {
  const { client, resource, clock, signal } = options;
  const late = new AbortController();
  const cancel = clock.after(LIST_MS, () => late.abort(tooSlow('list objects', 'the list timed out')));
  const settings = { ...scope(options), limit: PAGE, transform };
  return await client
    .list(resource, { ...settings, signal: AbortSignal.any([signal, late.signal]) })
    .finally(cancel);
}

function requestWatch<T extends KubeObject>(
  options: InformerOptions<T>,
  resourceVersion: string,
  silent: AbortSignal,
  onOpen: () => void,
) {
  return options.client.watch(options.resource, {
    ...scope(options),
    resourceVersion,
    // Between 5 and 10 minutes, to spread reconnections.
    timeoutSeconds: 300 + Math.floor(options.random() * 300),
    signal: AbortSignal.any([options.signal, silent]),
    onOpen,
  });
}
