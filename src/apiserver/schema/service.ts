import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { DEFAULTS } from '../defaults/defaults.ts';
import type { OpenapiDocument, SchemaService } from '../schema-service.ts';
import { canonicalise } from './canonical-form.ts';
import { duplicateFields } from './duplicate-fields.ts';
import { openapiDocument, type ServedKind } from './openapi.ts';
import { createApiTypes } from './packages.ts';
import { createPatchSchemas, type FieldSchema } from './patch-schema.ts';
import { decodeProtobuf } from './protobuf-decode.ts';
import { encodeProtobuf } from './protobuf-encode.ts';
import { pruneFields } from './strict-fields.ts';
import { findTypeError } from './type-errors.ts';

/** The API server's view of its schema, with what patches and Protobuf answers need besides. */
export interface ApiSchema extends SchemaService {
  openapiIndex(): Promise<object>;
  openapiDocument(path: string): Promise<OpenapiDocument | null>;
  /** How patches treat the fields of a kind; null for kinds without a description. */
  patchSchema(apiVersion: string, kind: string): FieldSchema | null;
  /** Throws Error when the kind has no description. */
  encodeProtobuf(object: object): Buffer;
}

interface Document extends OpenapiDocument {
  readonly path: string;
}

/**
 * Everything that the server needs to know about fields. Nothing is parsed before it is asked for; OpenAPI documents
 * are made once, on the first request for them. Kinds without a description (custom ones) pass unchecked.
 */
export function createSchemaService(options: { readonly kinds: readonly ServedKind[] }): ApiSchema {
  const types = createApiTypes();
  const paths = new Map(
    options.kinds.map(({ group, version }) => [
      group === '' ? `api/${version}` : `apis/${group}/${version}`,
      { group, version },
    ]),
  );
  const documents = new Map<string, Promise<Document>>();

  function document(path: string): Promise<Document> | null {
    const place = paths.get(path);
    if (!place) return null;
    let made = documents.get(path);
    if (!made) {
      made = openapiDocument(types, options.kinds, place.group, place.version).then((content) =>
        serialised(path, content),
      );
      documents.set(path, made);
    }
    return made;
  }

  return {
    async openapiIndex() {
      const all = await Promise.all([...paths.keys()].map((path) => document(path)));
      return {
        paths: Object.fromEntries(
          all.flatMap((one) =>
            one ? [[one.path, { serverRelativeURL: `/openapi/v3/${one.path}?hash=${one.hash}` }]] : [],
          ),
        ),
      };
    },
    async openapiDocument(path) {
      return document(path);
    },
    prune(apiVersion, kind, object, json) {
      const type = types.kind(apiVersion, kind);
      if (!type) return [];
      const unknown = pruneFields(types, type, object);
      return json === null ? unknown : [...unknown, ...duplicateFields(types, type, json)];
    },
    complete(object) {
      const { apiVersion, kind } = object as { apiVersion?: string; kind?: string };
      const type = types.kind(apiVersion ?? '', kind ?? '');
      if (type) canonicalise(types, type, object as Record<string, unknown>, DEFAULTS);
    },
    empty(apiVersion, kind) {
      const object: Record<string, unknown> = { apiVersion, kind };
      const type = types.kind(apiVersion, kind);
      if (type) canonicalise(types, type, object, {});
      return { metadata: {}, ...object };
    },
    typeError(apiVersion, kind, object) {
      const type = types.kind(apiVersion, kind);
      return type ? findTypeError(types, type, object) : null;
    },
    decodeProtobuf: (bytes) => decodeProtobuf(types, bytes),
    hasProtobuf: (apiVersion, kind) => types.kind(apiVersion, kind) !== null,
    patchSchema: createPatchSchemas(types),
    encodeProtobuf: (object) => encodeProtobuf(types, object),
  };
}

/** Compressed only when a client asks for that form, and once. */
function serialised(path: string, content: object): Document {
  const json = Buffer.from(JSON.stringify(content));
  let gzip: Buffer | null = null;
  return {
    path,
    json,
    get gzip() {
      gzip ??= gzipSync(json);
      return gzip;
    },
    hash: createHash('sha256').update(json).digest('hex').slice(0, 32).toUpperCase(),
  };
}
