import { preparePresented, presented, presentedJson } from '../conversion.ts';
import { apiVersionOf, type Kind } from '../kind.ts';
import type { ApiObject } from '../object.ts';
import type { Representation } from '../requests/negotiation.ts';
import { WireWriter } from '../schema/protobuf-wire.ts';
import type { SchemaService } from '../schema-service.ts';
import type { StatusError } from '../status-error.ts';
import type { StoredObject } from '../store.ts';
import type { Transform } from '../verbs/transform.ts';

export type WatchEventType = 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';

/** The encoding of events in the response to one watch. */
export interface EventEncoding {
  readonly contentType: string;
  /** Watches with the same text share encoded events; null: this watch does not share its events (tables). */
  readonly shared: string | null;
  event(type: WatchEventType, stored: StoredObject): Buffer;
  /** Encodes an object that is not stored: a bookmark. */
  bookmark(object: ApiObject): Buffer;
  /** Encodes the reason why the watch ends. */
  failure(status: StatusError): Buffer;
  /** Must be called before `event` for these objects: a webhook converts them. Throws StatusError 500 if it fails. */
  readonly prepare?: (objects: readonly ApiObject[]) => Promise<void>;
}

/** Chooses the encoding of a watch's events. `form` is JSON or Protobuf. */
export function eventEncoding(
  schema: SchemaService,
  kind: Kind,
  form: Representation,
  transform: Transform | null,
): EventEncoding {
  // A watch sends the columns of its table once.
  let first = true;
  const transformed = (object: ApiObject): object | null => {
    const rendered = transform?.single(object, first) ?? null;
    first = false;
    return rendered;
  };
  const isTable = form.as?.kind === 'Table';
  const id = `${form.format} ${form.pretty} ${apiVersionOf(kind)}/${kind.kind} ${form.as?.kind ?? ''} ${form.as?.version ?? ''}`;
  const prepare = kind.converter ? (objects: readonly ApiObject[]) => preparePresented(kind, objects) : null;
  const shared = isTable || prepare ? null : id;
  const preparing = prepare ? { prepare } : {};
  if (form.format === 'protobuf') {
    const encode = (type: WatchEventType, object: object) =>
      protobufFrame(type, schema.encodeProtobuf(object));
    return {
      contentType: 'application/vnd.kubernetes.protobuf;stream=watch',
      shared,
      event: (type, { object }) => encode(type, transformed(object) ?? presented(kind, object)),
      bookmark: (object) => encode('BOOKMARK', transformed(object) ?? object),
      failure: (status) => encode('ERROR', status.toJSON()),
      ...preparing,
    };
  }
  const line = (type: WatchEventType, json: string) => Buffer.from(`{"type":"${type}","object":${json}}\n`);
  return {
    contentType: 'application/json',
    shared,
    event(type, stored) {
      const shown = transformed(stored.object);
      return line(type, shown ? JSON.stringify(shown) : presentedJson(kind, stored));
    },
    bookmark: (object) => line('BOOKMARK', JSON.stringify(transformed(object) ?? object)),
    failure: (status) => line('ERROR', JSON.stringify(status)),
    ...preparing,
  };
}

/** Frames a meta/v1 WatchEvent with its length: four bytes, big-endian (apimachinery framer LengthDelimited). */
function protobufFrame(type: WatchEventType, object: Buffer): Buffer {
  const raw = new WireWriter();
  raw.delimited(1, object);
  const event = new WireWriter();
  event.delimited(1, Buffer.from(type));
  event.delimited(2, raw.finish());
  const message = event.finish();
  const frame = Buffer.allocUnsafe(4 + message.length);
  frame.writeUInt32BE(message.length);
  message.copy(frame, 4);
  return frame;
}
