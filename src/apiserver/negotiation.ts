import { parse as parseYaml } from 'yaml';
import { messageOf } from '../lib/errors.ts';
import type { IncomingRequest, OutgoingResponse } from './api-request.ts';
import type { SchemaService } from './schema-service.ts';
import { badRequest, StatusError } from './status-error.ts';

/** A request's body as an object; `json` is its text, where it came as JSON (duplicate fields show there alone). */
export interface Body {
  readonly object: unknown;
  readonly json: string | null;
}

/** Decodes JSON, YAML and Protobuf bodies. Throws StatusError 400 or 415. `optional`: an empty body is null. */
export function decodeBody(request: IncomingRequest, schema: SchemaService, optional = false): Body {
  if (request.body.length === 0) {
    if (optional) return { object: null, json: null };
    throw badRequest('the request has no body');
  }
  const type = (request.headers['content-type'] ?? 'application/json').split(';')[0]?.trim() ?? '';
  const text = () => Buffer.from(request.body).toString('utf8');
  try {
    if (type === 'application/vnd.kubernetes.protobuf')
      return { object: schema.decodeProtobuf(request.body), json: null };
    if (type.endsWith('yaml')) {
      const source = text();
      return source.trimStart().startsWith('{')
        ? { object: JSON.parse(source), json: source }
        : { object: parseYaml(source), json: null };
    }
    if (type === '' || type === '*/*' || type.endsWith('json')) {
      const source = text();
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

export function jsonResponse(status: number, value: unknown): OutgoingResponse {
  return { status, headers: { 'content-type': 'application/json' }, body: `${JSON.stringify(value)}\n` };
}
