import type { FieldSchema } from './schema/patch-schema.ts';
import type { YamlReader } from './yaml/yaml-reader.ts';

export interface OpenapiDocument {
  readonly json: Buffer;
  readonly gzip: Buffer;
  readonly hash: string;
}

/** The server's access to the fields of its kinds; built from the generated schema. */
export interface SchemaService {
  /** Returns the response to GET /openapi/v3: group-versions with the address of their document. */
  openapiIndex(): Promise<object> | object;
  /** Returns a group-version's document as serialised JSON, or null. `path`: "api/v1", "apis/apps/v1". */
  openapiDocument(path: string): Promise<OpenapiDocument | null> | OpenapiDocument | null;
  /**
   * Returns the errors of a strict decoder: `unknown field "spec.foo"`, `duplicate field "spec.bar"`; removes unknown
   * fields from the object, and nulls: of custom objects those that their schema does not admit, unless `keepsNulls`.
   */
  prune(
    apiVersion: string,
    kind: string,
    object: object,
    json: string | null,
    keepsNulls?: boolean,
  ): string[];
  /** Converts an object to the form in which its Go type is serialized, with its defaults (SetDefaults of 1.36). */
  complete(object: object): void;
  /**
   * Returns an object of a kind without any value, as its Go type serializes it: with the structs that are always
   * present.
   */
  empty(apiVersion: string, kind: string): object;
  /** Returns the error of a typed decoder: `json: cannot unmarshal string into …`; null if all values fit. */
  typeError(apiVersion: string, kind: string, object: object): string | null;
  /** Returns how patches merge a kind's fields; null for a kind without a schema. */
  patchSchema(apiVersion: string, kind: string): FieldSchema | null;
  /** Reports whether objects of the kind have a Protobuf form. */
  hasProtobuf(apiVersion: string, kind: string): boolean;
  /** Encodes an object with its envelope. Throws Error for a kind without a Protobuf form. */
  encodeProtobuf(object: object): Buffer;
  /**
   * Encodes a list with its envelope, in pieces. `list`: without items. The bytes of an item are kept as long as the item: it
   * must not change.
   */
  encodeProtobufList(list: object, items: readonly object[]): Iterable<Buffer>;
  /**
   * Decodes a Protobuf body (runtime.Unknown envelope) into the object's JSON form. Throws Error if it is malformed.
   */
  decodeProtobuf(bytes: Uint8Array): object;
  /** Decodes a YAML body, a long one in another thread. */
  readonly decodeYaml: YamlReader;
}

/** Renders objects as the Table that `kubectl get` prints. */
export interface TableService {
  /** Returns the column definitions of a kind. */
  columns(group: string, kind: string): readonly object[];
  /** Returns the cells of one object. */
  cells(group: string, kind: string, object: object, now: Date): readonly unknown[];
}
