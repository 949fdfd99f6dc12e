import { presented } from '../conversion.ts';
import type { ResourceHandler } from '../routes/resource.ts';
import { selection } from './list.ts';
import { readVersionOptions } from './list-options.ts';
import { negotiateObject } from './object-response.ts';
import { transformFor } from './transform.ts';
import { watch } from './watch-stream.ts';

const MIN_WATCH_SECONDS = 1800;

/** Streams the changes of a resource. */
export const watchObjects: ResourceHandler = (context, services) => {
  const { kind, query } = context;
  const form = negotiateObject(services, context);
  const transform = transformFor(context, form, services.tables, kind, new Date(services.clock.now()));
  readVersionOptions(query, true);
  const seconds = Number(query.get('timeoutSeconds') ?? 0);
  const body = watch(services.store, services.clock, kind, {
    filter: services.resources.filter(kind, selection(context)),
    resourceVersion: query.get('resourceVersion'),
    sendInitialEvents: query.get('sendInitialEvents') === 'true',
    bookmarks: query.get('allowWatchBookmarks') === 'true',
    timeoutMs: (seconds > 0 ? seconds : MIN_WATCH_SECONDS + services.random() * MIN_WATCH_SECONDS) * 1000,
    encode: transform
      ? (object, first) => JSON.stringify(transform.single(presented(kind, object), first))
      : kind.view
        ? (object) => JSON.stringify(presented(kind, object))
        : null,
    signal: AbortSignal.any([context.signal, services.closing, services.registry.lifetime(context.resource)]),
  });
  body.on('close', services.metrics.watching(kind.plural));
  return { status: 200, headers: { 'content-type': 'application/json' }, body };
};
