import type { SchemaService } from '../schema-service.ts';
import type { StatusError } from '../status-error.ts';
import { contentTypeOf, encode } from './encode.ts';
import { ANY_OBJECT, negotiate, type Representation } from './negotiation.ts';
import type { PlainResponse } from './request.ts';
import type { RequestContext } from './request-context.ts';

const PLAIN_JSON = { format: 'json', as: null, aggregated: false, pretty: false } as const;

/** Builds the response of a refusal: its Status object in the format that the client accepts, with its headers. */
export function statusResponse(
  schema: SchemaService,
  context: RequestContext | null,
  error: StatusError,
): PlainResponse {
  const retry = error.details?.['retryAfterSeconds'];
  const headers = typeof retry === 'number' ? { 'retry-after': String(retry) } : {};
  return respond(schema, statusForm(context), error.code, error.toJSON(), headers);
}

/** Returns the format of a Status; JSON if the client accepts none. */
function statusForm(context: RequestContext | null): Representation {
  if (!context) return PLAIN_JSON;
  try {
    return negotiate(context, ANY_OBJECT);
  } catch {
    return PLAIN_JSON;
  }
}

/** Builds the response for an object in the given format. */
export function respond(
  schema: SchemaService,
  form: Pick<Representation, 'format' | 'pretty'>,
  status: number,
  object: object,
  headers: PlainResponse['headers'] = {},
): PlainResponse {
  return {
    status,
    headers: { 'content-type': contentTypeOf(form.format), ...headers },
    body: encode(schema, form, object),
  };
}

/**
 * Builds the response for an object that is not stored (discovery, reviews, Status), in the format that the client
 * accepts; an object with metadata supports PartialObjectMetadata.
 */
export function respondNegotiated(
  schema: SchemaService,
  context: RequestContext,
  status: number,
  object: object,
): PlainResponse {
  const hasMetadata = 'metadata' in object && !('status' in object && object.status === 'Success');
  const form = negotiate(
    context,
    hasMetadata ? { ...ANY_OBJECT, transforms: ['PartialObjectMetadata'] } : ANY_OBJECT,
  );
  if (!form.as || !hasMetadata) return respond(schema, form, status, object);
  const { metadata } = object;
  const apiVersion = `meta.k8s.io/${form.as.version}`;
  return respond(schema, form, status, { kind: 'PartialObjectMetadata', apiVersion, metadata });
}

export function jsonResponse(status: number, value: unknown): PlainResponse {
  return { status, headers: { 'content-type': 'application/json' }, body: `${JSON.stringify(value)}\n` };
}

/** Builds the meta/v1 Status of a success without an object. */
export function success(details?: object): object {
  return {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: 'Success',
    ...(details ? { details } : {}),
  };
}

/** Adds a header to the response for each warning of the context. */
export function withWarnings(context: RequestContext, response: PlainResponse): PlainResponse {
  if (context.warnings.length === 0) return response;
  return { ...response, headers: { ...response.headers, warning: context.warnings.map(warningValue) } };
}

/** Formats one value of a Warning header (RFC 9111, section 5.5): headers contain printable ASCII only. */
function warningValue(text: string): string {
  const ascii = text.replace(
    /[^\x20-\x7e]/g,
    (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`,
  );
  return `299 - ${JSON.stringify(ascii)}`;
}
