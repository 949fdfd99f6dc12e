import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { ownMember } from '../../lib/own-member.ts';
import { apiVersionOf } from '../kind.ts';
import { isObject } from '../object.ts';
import type { FieldSchema } from '../schema/patch-schema.ts';
import type { OpenapiDocument, SchemaService } from '../schema-service.ts';
import { customFieldSchema } from './custom-field-schema.ts';
import type { CustomKind } from './custom-kind.ts';
import { customOpenapi, metadataSchemas } from './custom-openapi.ts';
import { embeddedResources } from './structural-schema.ts';

/** The schema service of the server: the built-in kinds, and those that definitions add. */
export interface CustomSchemas extends SchemaService {
  /** Replaces the custom kinds. */
  setKinds(kinds: readonly CustomKind[]): void;
}

/** Adds custom kinds to a schema service. Their OpenAPI documents are built at the first request. */
export function createCustomSchemas(base: SchemaService): CustomSchemas {
  let kinds = new Map<string, CustomKind>();
  let documents = new Map<string, OpenapiDocument>();
  let metadata: Promise<Record<string, unknown>> | null = null;
  const patchSchemas = new WeakMap<CustomKind, FieldSchema>();
  const find = (apiVersion: string, kind: string) => kinds.get(`${apiVersion}/${kind}`);
  const metadataSchema = () => base.patchSchema('v1', 'ConfigMap')?.field('metadata') ?? null;

  /** Uses the smallest document of the server that contains them. */
  async function readMetadata(): Promise<Record<string, unknown>> {
    const own = await base.openapiDocument('apis/scheduling.k8s.io/v1');
    return own ? metadataSchemas(JSON.parse(own.json.toString('utf8'))) : {};
  }

  async function document(path: string): Promise<OpenapiDocument | null> {
    const known = documents.get(path);
    if (known) return known;
    const own = [...kinds.values()].filter(({ kind }) => path === `apis/${apiVersionOf(kind)}`);
    const [first] = own;
    if (!first) return null;
    const current = documents;
    metadata ??= readMetadata();
    const made = serialised(customOpenapi(own, apiVersionOf(first.kind), await metadata));
    current.set(path, made);
    return made;
  }

  return {
    setKinds(next) {
      kinds = new Map(next.map((one) => [`${apiVersionOf(one.kind)}/${one.kind.kind}`, one]));
      documents = new Map();
    },
    async openapiIndex() {
      const index = (await base.openapiIndex()) as { paths: Record<string, unknown> };
      const paths = { ...index.paths };
      for (const { kind } of kinds.values()) {
        const path = `apis/${apiVersionOf(kind)}`;
        if (paths[path]) continue;
        paths[path] = { serverRelativeURL: `/openapi/v3/${path}?hash=${(await document(path))?.hash}` };
      }
      return { ...index, paths };
    },
    openapiDocument: async (path) => (await base.openapiDocument(path)) ?? document(path),
    prune(apiVersion, kind, object, json, keepsNulls = false) {
      const custom = find(apiVersion, kind);
      if (!custom) return base.prune(apiVersion, kind, object, json);
      const resources = [{ path: '', object }, ...embeddedResources(custom.schema, object)];
      const problems = resources.flatMap((resource) => {
        const { metadata } = resource.object as { metadata?: unknown };
        if (metadata === null) Object.assign(resource.object, { metadata: {} });
        // Every kind's metadata has the fields of ConfigMap's.
        const found = isObject(metadata) ? base.prune('v1', 'ConfigMap', { metadata }, null) : [];
        const prefix = resource.path === '' ? '' : `${resource.path}.`;
        return found.map((text) => text.replace('unknown field "', `unknown field "${prefix}`));
      });
      const unknown = custom.prune(object).map((path) => `unknown field "${path}"`);
      if (!keepsNulls) custom.dropNulls(object);
      return [...problems, ...unknown];
    },
    complete(object) {
      const { apiVersion = '', kind = '' } = object as { apiVersion?: string; kind?: string };
      const custom = find(apiVersion, kind);
      if (custom) custom.complete(object);
      else base.complete(object);
    },
    empty: (apiVersion, kind) => base.empty(apiVersion, kind),
    typeError(apiVersion, kind, object) {
      const custom = find(apiVersion, kind);
      return custom ? headError(custom, object) : base.typeError(apiVersion, kind, object);
    },
    patchSchema(apiVersion, kind) {
      const custom = find(apiVersion, kind);
      if (!custom) return base.patchSchema(apiVersion, kind);
      let schema = patchSchemas.get(custom);
      if (!schema) {
        schema = customFieldSchema(custom.schema, metadataSchema());
        patchSchemas.set(custom, schema);
      }
      return schema;
    },
    hasProtobuf: (apiVersion, kind) => base.hasProtobuf(apiVersion, kind),
    encodeProtobuf: (object) => base.encodeProtobuf(object),
    encodeProtobufList: (list, items) => base.encodeProtobufList(list, items),
    decodeProtobuf: (bytes) => base.decodeProtobuf(bytes),
    decodeYaml: base.decodeYaml,
  };
}

/** Returns why the head of an embedded resource cannot be decoded; null if it can. */
function headError({ schema }: CustomKind, object: object): string | null {
  for (const { path, object: resource } of embeddedResources(schema, object))
    for (const field of ['apiVersion', 'kind']) {
      const value = ownMember(resource, field);
      if (value !== undefined && typeof value !== 'string')
        return `${path}.${field}: Invalid value: ${JSON.stringify(value)}: must be a string`;
    }
  return null;
}

function serialised(content: object): OpenapiDocument {
  const json = Buffer.from(JSON.stringify(content));
  return {
    json,
    gzip: gzipSync(json),
    hash: createHash('sha256').update(json).digest('hex').slice(0, 32).toUpperCase(),
  };
}
