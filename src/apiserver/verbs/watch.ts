import type { Representation } from '../requests/negotiation.ts';
import type { ApiServices, ResourceContext, ResourceHandler } from '../services.ts';
import { StatusError } from '../status-error.ts';
import { eventEncoding } from '../watch/event-encoding.ts';
import { watch } from '../watch/watch-stream.ts';
import { selection } from './list.ts';
import { readInteger, readVersionOptions } from './list-options.ts';
import { negotiateObject } from './object-response.ts';
import { transformFor } from './transform.ts';

const MIN_WATCH_SECONDS = 1800;

/** Streams the changes of a resource. */
export const watchObjects: ResourceHandler = (context, services) => {
  const { kind, query } = context;
  const form = negotiateStream(services, context);
  const transform = transformFor(context, form, services.tables, kind, new Date(services.clock.now()));
  readVersionOptions(query, true);
  const seconds = readInteger(query, 'timeoutSeconds');
  const selected = selection(context);
  const initial = query.get('sendInitialEvents');
  const encoding = eventEncoding(services.schema, kind, form, transform);
  const body = watch(services, kind, {
    filter: services.resources.filter(kind, selected),
    selector: `${selected.labelSelector ?? ''} ${selected.fieldSelector ?? ''}`,
    resourceVersion: query.get('resourceVersion'),
    sendInitialEvents: initial === null ? null : initial === 'true',
    bookmarks: query.get('allowWatchBookmarks') === 'true',
    timeoutMs: (seconds > 0 ? seconds : MIN_WATCH_SECONDS + services.random() * MIN_WATCH_SECONDS) * 1000,
    encoding,
    signal: AbortSignal.any([context.signal, services.closing, services.registry.lifetime(context.resource)]),
  });
  body.on('close', services.metrics.watching(kind.plural));
  return { status: 200, headers: { 'content-type': encoding.contentType }, body };
};

/** Chooses the format of a stream: YAML is not supported. Throws StatusError 406. */
function negotiateStream(services: ApiServices, context: ResourceContext): Representation {
  const form = negotiateObject(services, context);
  if (form.format !== 'yaml') return form;
  throw new StatusError(
    406,
    'NotAcceptable',
    'only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch',
    {},
  );
}
