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
  const apiVersion = apiVersionOf(kind);
  if (!kind.view) {
    // Kept before the custom resource's storage version became this one.
    return object.apiVersion === apiVersion ? object : { ...object, apiVersion };
  }
  return { ...kind.view.fromStorage(object), apiVersion, kind: kind.kind };
}

export function presentedJson(kind: Kind, stored: StoredObject): string {
  const asKept = !kind.view && stored.object.apiVersion === apiVersionOf(kind);
  return asKept ? stored.json : JSON.stringify(presented(kind, stored.object));
}
