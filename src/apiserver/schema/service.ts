import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { DEFAULTS } from '../defaults/defaults.ts';
import type { OpenapiDocument, SchemaService } from '../schema-service.ts';
import { createYamlReader } from '../yaml/yaml-reader.ts';
import { canonicalise } from './canonical-form.ts';
import { duplicateFields } from './duplicate-fields.ts';
import { openapiDocument, type ServedKind } from './openapi.ts';
import { createApiTypes } from './packages.ts';
import { createPatchSchemas, type FieldSchema } from './patch-schema.ts';
import { decodeProtobuf } from './protobuf-decode.ts';
import { createProtobufEncoder } from './protobuf-encode.ts';
import { pruneFields } from './strict-fields.ts';
import { findTypeError } from './type-errors.ts';

/** The API server's schema, with the parts that patches and Protobuf responses need. */
export interface ApiSchema extends SchemaService {
  openapiIndex(): Promise<object>;
  openapiDocument(path: string): Promise<OpenapiDocument | null>;
  /** Returns how patches merge the fields of a kind; null for kinds without a description. */
  patchSchema(apiVersion: string, kind: string): FieldSchema | null;
  /** Throws Error if the kind has no description. */
  encodeProtobuf(object: object): Buffer;
  /**
   * Encodes a list with its envelope, in pieces. `list`: without items. The bytes of an item are kept as long as the item: it
   * must not change.
   */
  encodeProtobufList(list: object, items: readonly object[]): Iterable<Buffer>;
}

interface Document extends OpenapiDocument {
  readonly path: string;
}

/**
 * Creates the schema service. Types are parsed on first use; OpenAPI documents are built once, on the first request.
 * Kinds without a description (custom ones) are not checked.
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
    decodeYaml: createYamlReader(),
    hasProtobuf: (apiVersion, kind) => types.kind(apiVersion, kind) !== null,
    patchSchema: createPatchSchemas(types),
    ...createProtobufEncoder(types),
  };
}

/** Compressed on the first request for that form, once. */
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
