import { startInformer } from '../kube/informer.ts';
import type { KubeObject, Resource } from '../kube/types.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { type Cache, createCache } from './cache.ts';
import { type ControllerContext, controllerQueue } from './context.ts';
import { servedKinds } from './discovery.ts';

/** The kinds of all objects, including custom resources: for controllers that apply to every kind. */
export interface FollowedKinds {
  /** Returns the current copies. */
  list(): readonly Cache<KubeObject>[];
  /** Calls back for each kind that is followed, now and later. */
  handle(onFollow: (cache: Cache<KubeObject>) => void): void;
}

const DEFINITIONS: Resource = {
  group: 'apiextensions.k8s.io',
  version: 'v1',
  plural: 'customresourcedefinitions',
  kind: 'CustomResourceDefinition',
  namespaced: false,
};
/** Kinds whose objects own nothing and are too numerous. */
const IGNORED_KINDS = new Set(['events']);
/** Kinds of other API servers appear without an event. */
const REDISCOVER_MS = 30_000;
/** The first discovery, with the watches that it begins, takes some 30 ms, which the start of a cluster does not need. */
const FIRST_MS = 2000;

/**
 * Follows the metadata of every kind that the server can list, watch and delete: `known` are copies that already exist, the
 * others are followed after two seconds. Stops following a kind after the server has stopped serving it.
 */
export function followKinds(
  context: ControllerContext,
  known: readonly Cache<KubeObject>[],
  transform: (object: KubeObject, resource: Resource) => KubeObject,
): FollowedKinds {
  const { client, clock, random, logger, signal } = context;
  const keyOfKind = ({ group, plural }: Resource) => `${plural}.${group}`;
  const caches = new Map(known.map((cache) => [keyOfKind(cache.resource), cache]));
  const stops = new Map<string, AbortController>();
  const handlers: ((cache: Cache<KubeObject>) => void)[] = [];
  const follow = (resource: Resource) => {
    const stop = new AbortController();
    const ended = AbortSignal.any([signal, stop.signal]);
    const informer = startInformer({
      client,
      resource,
      clock,
      random,
      logger,
      signal: ended,
      transform: (object) => transform(object, resource),
    });
    const cache = createCache(client, resource, informer, ended);
    const key = keyOfKind(resource);
    caches.set(key, cache);
    stops.set(key, stop);
    for (const handler of handlers) handler(cache);
    return informer;
  };
  const queue = controllerQueue(context, 'followed-kinds', async () => {
    queue.addAfter('all', REDISCOVER_MS);
    const served = (await servedKinds(client, signal, 'skip')).filter(
      ({ plural, verbs }) =>
        !IGNORED_KINDS.has(plural) && ['list', 'watch', 'delete'].every((verb) => verbs.includes(verb)),
    );
    const present = new Map(served.map((kind) => [keyOfKind(kind), kind]));
    for (const [key, stop] of stops) {
      const kind = present.get(key);
      // A different version of a kind needs a different watch.
      if (kind && kind.version === caches.get(key)?.resource.version) continue;
      stop.abort(new FairleadError(`${key} is no longer served`, { op: 'watch objects', code: 'NotFound' }));
      stops.delete(key);
      caches.delete(key);
    }
    for (const [key, { verbs: _verbs, ...resource }] of present) if (!caches.has(key)) follow(resource);
  });
  const discover = () => queue.add('all');
  const begin = () => {
    const definitions = startInformer({
      client,
      resource: DEFINITIONS,
      clock,
      random,
      logger,
      signal,
      transform: established,
    });
    definitions.synced.catch((error: unknown) => {
      if (!signal.aborted) logger.warn({}, `failed to watch custom resources: ${messageOf(error)}`);
    });
    definitions.handle({ onAdd: discover, onUpdate: discover, onDelete: discover });
    discover();
  };
  const cancel = clock.after(FIRST_MS, begin);
  signal.addEventListener('abort', cancel, { once: true });
  return {
    list: () => [...caches.values()],
    handle(onFollow) {
      handlers.push(onFollow);
      for (const cache of caches.values()) onFollow(cache);
    },
  };
}

/** Reduces a definition to its name and the fact of its change. */
function established(definition: KubeObject): KubeObject {
  const { name = '', uid = '', resourceVersion = '' } = definition.metadata ?? {};
  return { metadata: { name, uid, resourceVersion } };
}
