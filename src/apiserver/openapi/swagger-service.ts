import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { Aggregator } from '../aggregation/aggregator.ts';
import { isObject, type JsonObject } from '../object.ts';
import { parseAccept } from '../requests/negotiation.ts';
import type { PlainResponse } from '../requests/request.ts';
import type { RequestContext } from '../requests/request-context.ts';
import type { SchemaService } from '../schema-service.ts';
import { StatusError } from '../status-error.ts';
import { swaggerDocument } from './swagger.ts';
import { encodeSwagger } from './swagger-protobuf.ts';

interface Rendered {
  readonly json: Buffer;
  protobuf(): Buffer;
  readonly hash: string;
  /** The document of an aggregated server is missing. */
  readonly isPartial: boolean;
}

const PROTOBUF = 'com.github.proto-openapi.spec.v2.v1.0+protobuf';
/** Media type used by clients before 1.28. */
const OLD_PROTOBUF = 'com.github.proto-openapi.spec.v2@v1.0+protobuf';

/** Where the documents of this server and of others come from. */
export interface SwaggerSources {
  readonly schema: SchemaService;
  readonly aggregator: Aggregator;
  readonly version: { readonly gitVersion: string };
  readonly logger: Logger;
}

export type SwaggerService = (services: SwaggerSources, context: RequestContext) => Promise<PlainResponse>;

/** Serves /openapi/v2, as JSON and Protobuf; rendered on the first request after the API has changed. */
export function createSwaggerService(): SwaggerService {
  let rendered: { readonly index: string; readonly document: Promise<Rendered> } | null = null;
  return async (services, context) => {
    const isProtobuf = wantsProtobuf(context.request.headers['accept'] ?? '');
    const { paths } = (await services.schema.openapiIndex()) as { paths: Record<string, unknown> };
    const remote = await services.aggregator.openapiPaths();
    // The index names each group-version's document with its hash.
    const index = JSON.stringify([paths, remote]);
    if (rendered?.index !== index) {
      rendered = { index, document: render(services, Object.keys(paths), Object.keys(remote)) };
    }
    const document = await rendered.document;
    // A server that did not answer is called again.
    if (document.isPartial) rendered = null;
    const etag = `"${document.hash}${isProtobuf ? '-protobuf' : ''}"`;
    const headers: Record<string, string> = {
      'content-type': isProtobuf ? `application/${PROTOBUF}` : 'application/json',
      etag,
      vary: 'Accept-Encoding, Accept',
    };
    if (context.request.headers['if-none-match'] === etag) return { status: 304, headers, body: '' };
    const plain = isProtobuf ? document.protobuf() : document.json;
    const gzip = /\bgzip\b/.test(context.request.headers['accept-encoding'] ?? '');
    if (gzip) headers['content-encoding'] = 'gzip';
    return { status: 200, headers, body: gzip ? gzipSync(plain, { level: 1 }) : plain };
  };
}

async function render(
  services: SwaggerSources,
  paths: readonly string[],
  remote: readonly string[],
): Promise<Rendered> {
  const { schema, aggregator, version } = services;
  const found = await Promise.all(paths.map((path) => schema.openapiDocument(path)));
  const documents = found.flatMap((one) => (one ? [JSON.parse(one.json.toString())] : []));
  const others = await Promise.all(
    remote
      .filter((path) => !paths.includes(path))
      .map(async (path) => {
        const own = await aggregator.openapiDocument(path);
        return own && limitedTo(services, path, own);
      }),
  );
  // This server's documents come first: their definitions take precedence.
  const all = [...documents, ...others.filter((one) => one !== null)];
  const document = swaggerDocument(all, version.gitVersion);
  const json = Buffer.from(JSON.stringify(document));
  let protobuf: Buffer | null = null;
  return {
    json,
    protobuf() {
      protobuf ??= encodeSwagger(document);
      return protobuf;
    },
    isPartial: others.includes(null),
    hash: createHash('sha256').update(json).digest('hex').slice(0, 32).toUpperCase(),
  };
}

/** Returns the document of another server, restricted to its own paths; empty if it cannot be converted. */
function limitedTo(services: SwaggerSources, path: string, document: JsonObject): JsonObject {
  const root = `/${path}`;
  const paths = isObject(document['paths']) ? document['paths'] : {};
  const own = Object.entries(paths).filter(([path]) => path === `${root}/` || path.startsWith(`${root}/`));
  const limited = { ...document, paths: Object.fromEntries(own) };
  try {
    swaggerDocument([limited], '');
    return limited;
  } catch (error) {
    services.logger.warn({ path, error: messageOf(error) }, 'failed to convert an OpenAPI document');
    return {};
  }
}

/** Throws StatusError 406 for a client that accepts neither form. */
function wantsProtobuf(accept: string): boolean {
  if (accept === '') return false;
  for (const { type, subtype } of parseAccept(accept)) {
    if (type !== 'application' && type !== '*') continue;
    if (subtype === 'json' || subtype === '*') return false;
    if (subtype === PROTOBUF || subtype === OLD_PROTOBUF) return true;
  }
  throw new StatusError(
    406,
    'NotAcceptable',
    `only the following media types are accepted: application/json, application/${PROTOBUF}`,
    {},
  );
}
