import { apiVersionOf, type Kind } from './kind.ts';
import type { ApiObject } from './object.ts';
import type { StoredObject } from './store.ts';

/** Returns the kind as which a kind's objects are stored: the kind itself, unless it is a view of another kind. */
export function storageKind(kind: Kind): Kind {
  return kind.view?.of ?? kind;
}

/**
 * Prepares stored objects for `presented`, which requires it: some are converted by a webhook. Throws StatusError 500
 * if that fails.
 */
export async function preparePresented(kind: Kind, objects: readonly ApiObject[]): Promise<void> {
  await kind.converter?.prepare(objects, apiVersionOf(kind));
}

/** Converts a client's object to its stored form. Throws StatusError 500 if its webhook fails to convert it. */
export async function toStorage(kind: Kind, object: ApiObject): Promise<ApiObject> {
  if (!kind.view) return object;
  const { converter } = kind;
  if (!converter) return kind.view.toStorage(object);
  const apiVersion = apiVersionOf(kind.view.of);
  await converter.prepare([object], apiVersion);
  return kind.view.toStorage(converter.converted(object, apiVersion));
}

/** Converts a stored object to the kind that a client requests. */
export function presented(kind: Kind, object: ApiObject): ApiObject {
  const apiVersion = apiVersionOf(kind);
  const { converter } = kind;
  const isOther = object.apiVersion !== apiVersion;
  const source = converter && isOther ? converter.converted(object, apiVersion) : object;
  if (!kind.view) {
    // Stored before this became the custom resource's storage version.
    const named = isOther ? { ...source, apiVersion } : source;
    return kind.shown ? kind.shown(named) : named;
  }
  return { ...kind.view.fromStorage(source), apiVersion, kind: kind.kind };
}

/** Like `presented`, for one object. Throws StatusError 500 if its webhook fails to convert it. */
export async function present(kind: Kind, object: ApiObject): Promise<ApiObject> {
  await preparePresented(kind, [object]);
  return presented(kind, object);
}

export function presentedJson(kind: Kind, stored: StoredObject): string {
  const asStored = !kind.view && !kind.shown && stored.object.apiVersion === apiVersionOf(kind);
  return asStored ? stored.json : JSON.stringify(presented(kind, stored.object));
}
