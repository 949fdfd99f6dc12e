import { apiVersionOf, type Kind } from './kind.ts';
import type { ApiObject } from './object.ts';
import type { StoredObject } from './store.ts';

/** The kind as which a kind's objects are kept: itself, where it is not a second view of another's objects. */
export function storageKind(kind: Kind): Kind {
  return kind.view?.of ?? kind;
}

/**
 * Makes `presented` possible for stored objects, which is to be called for each of them before: some are converted by a
 * webhook. Throws StatusError 500 when that fails.
 */
export async function preparePresented(kind: Kind, objects: readonly ApiObject[]): Promise<void> {
  await kind.converter?.prepare(objects, apiVersionOf(kind));
}

/** An object that a client sent, as it is kept. Throws StatusError 500 when its webhook does not convert it. */
export async function toStorage(kind: Kind, object: ApiObject): Promise<ApiObject> {
  if (!kind.view) return object;
  const { converter } = kind;
  if (!converter) return kind.view.toStorage(object);
  const apiVersion = apiVersionOf(kind.view.of);
  await converter.prepare([object], apiVersion);
  return kind.view.toStorage(converter.converted(object, apiVersion));
}

/** A kept object under the kind by which a client asks for it. */
export function presented(kind: Kind, object: ApiObject): ApiObject {
  const apiVersion = apiVersionOf(kind);
  const { converter } = kind;
  const isOther = object.apiVersion !== apiVersion;
  const source = converter && isOther ? converter.converted(object, apiVersion) : object;
  if (!kind.view) {
    // Kept before the custom resource's storage version became this one.
    const named = isOther ? { ...source, apiVersion } : source;
    return kind.shown ? kind.shown(named) : named;
  }
  return { ...kind.view.fromStorage(source), apiVersion, kind: kind.kind };
}

/** As `presented`, for one object. Throws StatusError 500 when its webhook does not convert it. */
export async function present(kind: Kind, object: ApiObject): Promise<ApiObject> {
  await preparePresented(kind, [object]);
  return presented(kind, object);
}

export function presentedJson(kind: Kind, stored: StoredObject): string {
  const asKept = !kind.view && !kind.shown && stored.object.apiVersion === apiVersionOf(kind);
  return asKept ? stored.json : JSON.stringify(presented(kind, stored.object));
}
