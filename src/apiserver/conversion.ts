import { apiVersionOf, type Kind } from './kind.ts';
import type { ApiObject } from './object.ts';
import type { StoredObject } from './store.ts';

/** The kind as which a kind's objects are kept: itself, where it is not a second view of another's objects. */
export function storageKind(kind: Kind): Kind {
  return kind.view?.of ?? kind;
}

/** An object that a client sent, as it is kept. */
export function toStorage(kind: Kind, object: ApiObject): ApiObject {
  return kind.view ? kind.view.toStorage(object) : object;
}

/** A kept object under the kind by which a client asks for it. */
export function presented(kind: Kind, object: ApiObject): ApiObject {
  if (!kind.view) return object;
  return { ...kind.view.fromStorage(object), apiVersion: apiVersionOf(kind), kind: kind.kind };
}

export function presentedJson(kind: Kind, stored: StoredObject): string {
  return kind.view ? JSON.stringify(presented(kind, stored.object)) : stored.json;
}
