import { parse as parseYaml } from 'yaml';
import { messageOf } from '../../lib/errors.ts';
import type { SchemaService } from '../schema-service.ts';
import { badRequest, StatusError } from '../status-error.ts';
import type { RequestContext } from './request-context.ts';

/** A request's body as an object; `json` is its text, where it came as JSON (duplicate fields show there alone). */
export interface Body {
  readonly object: unknown;
  readonly json: string | null;
}

/** The media type of a request's body, without parameters; "" when there is none. */
export function contentType(context: RequestContext): string {
  return (context.request.headers['content-type'] ?? '').split(';')[0]?.trim().toLowerCase() ?? '';
}

/** Reads a JSON, YAML or Protobuf body. Throws StatusError 400, 413 or 415. `optional`: an empty body is null. */
export async function readBody(
  context: RequestContext,
  schema: SchemaService,
  optional = false,
): Promise<Body> {
  const bytes = await context.request.body();
  if (bytes.length === 0) {
    if (optional) return { object: null, json: null };
    throw badRequest('the request has no body');
  }
  const type = contentType(context) || 'application/json';
  try {
    if (type === 'application/vnd.kubernetes.protobuf')
      return { object: schema.decodeProtobuf(bytes), json: null };
    if (type.endsWith('yaml')) {
      const source = bytes.toString('utf8');
      return source.trimStart().startsWith('{')
        ? { object: JSON.parse(source), json: source }
        : { object: parseYaml(source), json: null };
    }
    if (type === '*/*' || type.endsWith('json')) {
      const source = bytes.toString('utf8');
      return { object: JSON.parse(source), json: source };
    }
  } catch (error) {
    throw badRequest(`the body of the request cannot be decoded as ${type}: ${messageOf(error)}`);
  }
  throw new StatusError(
    415,
    'UnsupportedMediaType',
    `the body of the request was in an unknown format (${type}) - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf`,
    {},
  );
}
