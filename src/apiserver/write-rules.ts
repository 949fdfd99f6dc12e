import { namespaceFinalizers } from './deletion.ts';
import { apiVersionOf, type Kind } from './kind.ts';
import { type ApiObject, isObject, type JsonObject, namesVersion, valueText } from './object.ts';
import { badRequest, conflict, type StatusError, versionMissing } from './status-error.ts';

// Rules of writes that follow from the request and the two states of the object alone.

/** Returns why an object with this apiVersion and kind is not one of a kind; null: it is, or has neither. */
export function headProblem(kind: Kind, object: JsonObject): string | null {
  const { apiVersion, kind: name } = object;
  const expected = apiVersionOf(kind);
  if (apiVersion !== undefined && apiVersion !== expected)
    return `${kind.kind} in version ${JSON.stringify(apiVersion)} cannot be handled as a ${kind.kind}: the expected version is ${JSON.stringify(expected)}`;
  if (name !== undefined && name !== kind.kind)
    return `${String(name)} in version ${JSON.stringify(kind.version)} cannot be handled as a ${kind.kind}`;
  return null;
}

/** Checks that a request's body is an object of the kind and namespace in the path. */
export function checkBody(kind: Kind, namespace: string, body: unknown): ApiObject {
  if (!isObject(body)) throw badRequest('the body of the request must be an object');
  const problem = headProblem(kind, body);
  if (problem !== null) throw badRequest(problem);
  const metadata = isObject(body['metadata']) ? body['metadata'] : {};
  if (kind.namespaced && metadata['namespace'] && metadata['namespace'] !== namespace) {
    throw badRequest(`the namespace of the provided object does not match the namespace sent on the request`);
  }
  const { apiVersion: _version, kind: _kind, metadata: _metadata, ...rest } = body as JsonObject;
  return {
    apiVersion: apiVersionOf(kind),
    kind: kind.kind,
    metadata: metadata as ApiObject['metadata'],
    ...rest,
  };
}

/** Throws StatusError if an update names another object, or another version of it. */
export function checkPreconditions(kind: Kind, current: ApiObject, object: ApiObject): void {
  const { metadata } = object;
  const name = current.metadata.name ?? '';
  if (!namesVersion(object)) {
    if (kind.needsVersion) throw versionMissing(kind, name);
  } else if (metadata.resourceVersion !== current.metadata.resourceVersion) throw modified(kind, name);
  if (metadata.uid && metadata.uid !== current.metadata.uid) {
    throw conflict(
      kind,
      name,
      `Precondition failed: UID in precondition: ${metadata.uid}, UID in object meta: ${current.metadata.uid}`,
    );
  }
  checkName(object, name);
}

/** Removes owners that an object names twice, and returns upstream's warning about them; null if there are none. */
export function removeRepeatedOwners({ metadata }: ApiObject): string | null {
  const owners = metadata.ownerReferences;
  if (!Array.isArray(owners)) return null;
  const known = new Set<string>();
  const kept: typeof owners = [];
  const again: typeof owners = [];
  for (const owner of owners) {
    const text = valueText(owner);
    (known.has(text) ? again : kept).push(owner);
    known.add(text);
  }
  const [repeated] = again;
  if (repeated === undefined) return null;
  metadata.ownerReferences = kept;
  const uid = isObject(repeated) ? String(repeated['uid'] ?? '') : '';
  return `.metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: ${uid}`;
}

/** Throws StatusError 400 if an object does not have the name in the path. */
export function checkName({ metadata }: ApiObject, name: string): void {
  if (!metadata.name) {
    throw badRequest(
      `the name of the object (${name} based on URL) was undeterminable: name must be provided`,
    );
  }
  if (metadata.name !== name) {
    throw badRequest(
      `the name of the object (${metadata.name}) does not match the name on the URL (${name})`,
    );
  }
}

/** Preserves the fields that only the server sets, whatever the client sent. */
export function keepSystemMetadata(object: ApiObject, current: ApiObject): void {
  const { metadata } = object;
  const kept = current.metadata;
  for (const field of [
    'name',
    'namespace',
    'uid',
    'creationTimestamp',
    'generation',
    'generateName',
  ] as const) {
    delete metadata[field];
    if (kept[field] !== undefined) Object.assign(metadata, { [field]: kept[field] });
  }
  for (const field of ['deletionTimestamp', 'deletionGracePeriodSeconds'] as const) {
    delete metadata[field];
    if (kept[field] !== undefined) Object.assign(metadata, { [field]: kept[field] });
  }
  if (kept.resourceVersion !== undefined) metadata.resourceVersion = kept.resourceVersion;
  delete metadata.selfLink;
  if (metadata.managedFields === undefined && kept.managedFields !== undefined)
    metadata.managedFields = kept.managedFields;
}

/** Returns true if a write completes the deletion of the object. */
export function isGone(object: ApiObject): boolean {
  const { deletionTimestamp, deletionGracePeriodSeconds, finalizers } = object.metadata;
  if (deletionTimestamp === undefined || (finalizers ?? []).length > 0) return false;
  if (object.kind === 'Namespace') return namespaceFinalizers(object).length === 0;
  return (deletionGracePeriodSeconds ?? 0) === 0;
}

/** Builds the refusal of a write that is based on an older version. */
export function modified(kind: Kind, name: string): StatusError {
  return conflict(
    kind,
    name,
    'the object has been modified; please apply your changes to the latest version and try again',
  );
}
