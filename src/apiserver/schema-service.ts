import type { FieldSchema } from './schema/patch-schema.ts';

export interface OpenapiDocument {
  readonly json: Buffer;
  readonly gzip: Buffer;
  readonly hash: string;
}

/** What the server needs to know about the fields of its kinds; made from the generated schema. */
export interface SchemaService {
  /** GET /openapi/v3: group-versions with the address of their document. */
  openapiIndex(): Promise<object> | object;
  /** One group-version's document as serialised JSON, or null. `path`: "api/v1", "apis/apps/v1". */
  openapiDocument(path: string): Promise<OpenapiDocument | null> | OpenapiDocument | null;
  /**
   * What a strict decoder complains of: `unknown field "spec.foo"`, `duplicate field "spec.bar"`; fields that the
   * kind does not have are taken out of the object.
   */
  prune(apiVersion: string, kind: string, object: object, json: string | null): string[];
  /** Brings an object into the form in which its Go type is written, with its defaults (SetDefaults of 1.36). */
  complete(object: object): void;
  /** An object of a kind without any value, as its Go type writes it: the structs that are always there. */
  empty(apiVersion: string, kind: string): object;
  /** What a decoder that knows the fields' types refuses: `json: cannot unmarshal string into …`; null when all fit. */
  typeError(apiVersion: string, kind: string, object: object): string | null;
  /** How patches treat a kind's fields; null for a kind without a schema. */
  patchSchema(apiVersion: string, kind: string): FieldSchema | null;
  /** True when objects of the kind have a Protobuf form. */
  hasProtobuf(apiVersion: string, kind: string): boolean;
  /** Encodes an object with its envelope. Throws Error for a kind without a Protobuf form. */
  encodeProtobuf(object: object): Buffer;
  /** Decodes a Protobuf body (runtime.Unknown envelope) into the object's JSON form. Throws Error when malformed. */
  decodeProtobuf(bytes: Uint8Array): object;
}

/** Renders objects as the Table that `kubectl get` prints. */
export interface TableService {
  /** Column definitions of a kind. */
  columns(group: string, kind: string): readonly object[];
  /** Cells of one object. */
  cells(group: string, kind: string, object: object, now: Date): readonly unknown[];
}
