import type { AdmissionAttributes, AdmissionOperation } from '../admission/plugin.ts';
import { mutate, release, validate } from '../admission/run.ts';
import { present, storageKind, toStorage } from '../conversion.ts';
import type { Kind } from '../kind.ts';
import { type ApiObject, namesVersion } from '../object.ts';
import { warn } from '../requests/request-context.ts';
import type { GroupVersionKind } from '../routes/resource-verb.ts';
import type { ApiServices, ResourceContext } from '../services.ts';
import { StatusError } from '../status-error.ts';
import type { StoredObject } from '../store.ts';
import type { PreparedWrite, WriteOptions } from '../store-requests.ts';
import { finalizerWarnings } from '../validation/metadata.ts';
import { statusWarnings } from '../validation/statuses.ts';
import { objectWarnings } from '../validation/warnings.ts';
import { modified } from '../write-rules.ts';
import { optionsObject, type RequestOptions } from './write-options.ts';

/** Maximum attempts of a write that conflicts with others between reading and storing. */
const MAX_ATTEMPTS = 20;

interface AdmissionInput {
  readonly operation: AdmissionOperation;
  readonly object: ApiObject | null;
  readonly oldObject: ApiObject | null;
  readonly options: object;
  readonly dryRun: boolean;
  /** Kind of the object in the request, if it is not the resource's own. */
  readonly kind?: GroupVersionKind;
  readonly name?: string;
}

/** Builds the attributes of a write for admission. */
export function admissionAttributes(context: ResourceContext, input: AdmissionInput): AdmissionAttributes {
  const { kind, info, namespace } = context;
  const { group, version } = kind;
  return {
    operation: input.operation,
    kind: input.kind ?? { group, version, kind: kind.kind },
    resource: { group, version, resource: kind.plural },
    subresource: info.subresource,
    // Requests for a namespace object are in that namespace, as upstream.
    namespace: namespace || info.namespace,
    name: input.name ?? (context.name || (input.object?.metadata.name ?? '')),
    object: input.object,
    oldObject: input.oldObject,
    options: input.options as AdmissionAttributes['options'],
    dryRun: input.dryRun,
    user: context.user,
    warn: (text) => warn(context, text),
  };
}

/** Runs a request that stores nothing itself (exec, proxy, token) through admission. */
export async function admit(
  services: ApiServices,
  context: ResourceContext,
  input: AdmissionInput,
): Promise<void> {
  const attributes = admissionAttributes(context, input);
  await mutate(services.admission, attributes);
  await validate(services.admission, attributes);
}

/** Stores a new object: mutating admission, the kind's strategy and validation, validating admission. */
export async function createObject(
  services: ApiServices,
  context: ResourceContext,
  object: ApiObject,
  request: RequestOptions,
  options: WriteOptions,
): Promise<StoredObject> {
  const { kind, namespace } = context;
  if (kind.namespaced) object.metadata.namespace = namespace;
  const attributes = (of: ApiObject) =>
    admissionAttributes(context, {
      operation: 'CREATE',
      object: of,
      oldObject: null,
      options: optionsObject(request, 'CREATE'),
      dryRun: request.dryRun,
    });
  // Plugins and webhooks see the defaults, as upstream's do.
  services.schema.complete(object);
  // The client does not own fields that admission adds.
  options.record?.(null, object);
  await mutate(services.admission, attributes(object));
  const prepared = services.resources.prepareCreate(
    storageKind(kind),
    namespace,
    await toStorage(kind, object),
    options,
  );
  const stored = await admitted(services, prepared, kind, attributes, request);
  for (const text of warningsOf(kind, options, stored.object, null)) warn(context, text);
  return stored;
}

/**
 * Stores a changed object. `change` builds it from (a copy of) the current object, in the version of the request; after
 * a conflicting write it is called again, unless it names the version that it is based on.
 */
export async function updateObject(
  services: ApiServices,
  context: ResourceContext,
  change: (current: ApiObject) => ApiObject,
  request: RequestOptions,
  options: WriteOptions,
): Promise<StoredObject> {
  const { kind, namespace, name } = context;
  for (let attempt = 1; ; attempt++) {
    const before = services.resources.get(storageKind(kind), namespace, name);
    const old = await present(kind, before.object);
    const object = change(structuredClone(old));
    const isBased = namesVersion(object);
    const attributes = (of: ApiObject) =>
      admissionAttributes(context, {
        operation: 'UPDATE',
        object: of,
        oldObject: old,
        options: optionsObject(request, 'UPDATE'),
        dryRun: request.dryRun,
      });
    if ((options.part ?? 'main') === 'main') services.schema.complete(object);
    await mutate(services.admission, attributes(object));
    try {
      const prepared = services.resources.prepareUpdate(
        storageKind(kind),
        before,
        await toStorage(kind, object),
        kind.converter ? { ...options, current: await present(storageKind(kind), before.object) } : options,
      );
      const stored = await admitted(services, prepared, kind, attributes, request);
      for (const text of warningsOf(kind, options, stored.object, before.object)) warn(context, text);
      return stored;
    } catch (error) {
      const raced =
        error instanceof StatusError &&
        error.reason === 'Conflict' &&
        services.store.get(before.collection, before.key) !== before;
      // A `change` that starts from the current object contains its version without requiring it.
      const restartable =
        !isBased || object.metadata.resourceVersion === before.object.metadata.resourceVersion;
      if (!raced || !restartable) throw error;
      if (attempt === MAX_ATTEMPTS) throw modified(kind, name);
    }
  }
}

function warningsOf(
  kind: Kind,
  { part = 'main' }: WriteOptions,
  object: ApiObject,
  before: ApiObject | null,
): string[] {
  if (part === 'main')
    return [...objectWarnings(kind.collection, object, before), ...finalizerWarnings(kind, object, before)];
  return part === 'status' ? statusWarnings(kind.collection, object) : [];
}

async function admitted(
  services: ApiServices,
  prepared: PreparedWrite,
  kind: Kind,
  attributesOf: (object: ApiObject) => AdmissionAttributes,
  request: RequestOptions,
): Promise<StoredObject> {
  let attributes: AdmissionAttributes;
  try {
    attributes = attributesOf(await present(kind, prepared.object));
    await validate(services.admission, attributes);
  } catch (error) {
    prepared.release();
    throw error;
  }
  try {
    const stored = prepared.commit();
    if (request.dryRun) release(services.admission, attributes);
    return stored;
  } catch (error) {
    release(services.admission, attributes);
    throw error;
  }
}
