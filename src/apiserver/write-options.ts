import type { IncomingRequest } from './api-request.ts';
import type { ApiHandlerOptions } from './handler-options.ts';
import { apiVersionOf, type Kind } from './kind.ts';
import { type FieldManager, recordUpdate } from './managed-fields.ts';
import { isObject } from './object.ts';
import type { WriteOptions } from './resource-store.ts';
import { badRequest } from './status-error.ts';

/** Who writes: the named manager, or the client's program, as upstream derives it. */
export function fieldManager(
  options: ApiHandlerOptions,
  kind: Kind,
  request: IncomingRequest,
  query: URLSearchParams,
  subresource: string,
): FieldManager {
  const program = (request.headers['user-agent'] ?? '').split('/')[0]?.slice(0, 128);
  return {
    name: query.get('fieldManager') || program || 'unknown',
    apiVersion: apiVersionOf(kind),
    subresource,
    now: new Date(options.clock.now()),
  };
}

/**
 * The options of a write that is no apply. This process's own controllers do not make objects tracked: that would
 * double the size of every Pod and EndpointSlice for nobody's sake.
 */
export function writeOptions(
  options: ApiHandlerOptions,
  kind: Kind,
  request: IncomingRequest,
  query: URLSearchParams,
  subresource: 'status' | 'finalize' | null = null,
): WriteOptions {
  const manager = fieldManager(options, kind, request, query, subresource ?? '');
  return {
    dryRun: query.has('dryRun'),
    ...(subresource ? { subresource } : {}),
    record(before, after) {
      const tracked = before ? (after.metadata.managedFields ?? []).length > 0 : !request.internal;
      if (tracked) {
        const schema = options.schema.patchSchema(apiVersionOf(kind), kind.kind);
        recordUpdate(before, after, schema, manager);
      }
    },
  };
}

export function contentType(request: IncomingRequest): string {
  return (request.headers['content-type'] ?? '').split(';')[0]?.trim() ?? '';
}

/** Unknown and duplicate fields: refused, warned of or passed over, as `fieldValidation` asks. */
export function checkFields(
  options: ApiHandlerOptions,
  kind: Kind,
  body: { readonly object: unknown; readonly json: string | null },
  query: URLSearchParams,
): string[] {
  if (!isObject(body.object)) return [];
  const wrong = options.schema.typeError(apiVersionOf(kind), kind.kind, body.object);
  if (wrong !== null) {
    throw badRequest(
      `${kind.kind} in version ${JSON.stringify(kind.version)} cannot be handled as a ${kind.kind}: ${wrong}`,
    );
  }
  const problems = options.schema.prune(apiVersionOf(kind), kind.kind, body.object, body.json);
  const mode = query.get('fieldValidation') ?? 'Warn';
  if (problems.length === 0 || mode === 'Ignore') return [];
  if (mode === 'Strict')
    throw badRequest(
      `${kind.kind} in version ${JSON.stringify(kind.version)} cannot be handled as a ${kind.kind}: strict decoding error: ${problems.join(', ')}`,
    );
  return problems;
}
