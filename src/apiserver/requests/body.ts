import { messageOf } from '../../lib/errors.ts';
import type { SchemaService } from '../schema-service.ts';
import { badRequest, StatusError } from '../status-error.ts';
import { MAX_DEPTH } from '../yaml/yaml-text.ts';
import type { RequestContext } from './request-context.ts';

/** A request's body as an object. */
export interface Body {
  readonly object: unknown;
  /** The text of a JSON body: only the text shows duplicate fields. */
  readonly json: string | null;
  /** The first key that occurs twice in one mapping of a YAML text, in upstream's words; its last value counts. */
  readonly duplicateKey?: string;
}

/** Returns the media type of a request's body, without parameters; "" if there is none. */
export function contentType(context: RequestContext): string {
  return (context.request.headers['content-type'] ?? '').split(';')[0]?.trim().toLowerCase() ?? '';
}

/** Reads a JSON, YAML or Protobuf body. Throws StatusError 400, 413 or 415. `optional`: an empty body yields null. */
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
  const refuse = (cause: unknown) =>
    badRequest(`the body of the request cannot be decoded as ${type}: ${messageOf(cause)}`);
  try {
    if (type === 'application/vnd.kubernetes.protobuf')
      return { object: schema.decodeProtobuf(bytes), json: null };
    const isYaml = type.endsWith('yaml');
    if (isYaml || type === '*/*' || type.endsWith('json')) {
      const source = bytes.toString('utf8');
      return isYaml ? await fromYaml(source, schema) : fromJson(source);
    }
  } catch (error) {
    throw refuse(error);
  }
  throw new StatusError(
    415,
    'UnsupportedMediaType',
    `the body of the request was in an unknown format (${type}) - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf`,
    {},
  );
}

/** Most YAML that clients send is JSON, but some is nearly so: a comma after the last member is YAML. */
async function fromYaml(source: string, schema: SchemaService): Promise<Body> {
  if (source.trimStart().startsWith('{')) {
    try {
      return fromJson(source);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
    }
  }
  return { ...(await schema.decodeYaml(source)), json: null };
}

function fromJson(source: string): Body {
  checkJsonDepth(source);
  return { object: JSON.parse(source), json: source };
}

/** Counts brackets outside of strings: cheaper than walking the value, and done before it is built. */
function checkJsonDepth(source: string): void {
  let depth = 0;
  for (let i = 0; i < source.length; i++) {
    switch (source.charCodeAt(i)) {
      case 0x22: // "
        for (i++; i < source.length && source.charCodeAt(i) !== 0x22; i++) {
          if (source.charCodeAt(i) === 0x5c) i++; // backslash and the escaped character
        }
        break;
      case 0x5b: // [
      case 0x7b: // {
        if (++depth > MAX_DEPTH) throw new Error(`nesting exceeds ${MAX_DEPTH} levels`);
        break;
      case 0x5d: // ]
      case 0x7d: // }
        depth--;
    }
  }
}
