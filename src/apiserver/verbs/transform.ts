import { presented, storageKind } from '../conversion.ts';
import type { Kind } from '../kind.ts';
import type { ApiObject } from '../object.ts';
import type { Representation } from '../requests/negotiation.ts';
import type { RequestContext } from '../requests/request-context.ts';
import type { TableService } from '../schema-service.ts';
import { badRequest } from '../status-error.ts';

/** Renders stored objects as meta/v1 Table or PartialObjectMetadata for one request. */
export interface Transform {
  list(objects: readonly ApiObject[], metadata: object): object;
  /** `first`: the first object of the response; a watch sends a table's columns once. */
  single(object: ApiObject, first: boolean): object;
}

/**
 * Returns the transform of a representation; null for plain objects. Throws StatusError 400 for an invalid
 * includeObject.
 */
export function transformFor(
  context: RequestContext,
  form: Representation,
  tables: TableService,
  kind: Kind,
  now: Date,
): Transform | null {
  if (!form.as) return null;
  const apiVersion = `meta.k8s.io/${form.as.version}`;
  const partial = (object: ApiObject) => ({
    kind: 'PartialObjectMetadata',
    apiVersion,
    metadata: presented(kind, object).metadata,
  });
  if (form.as.kind !== 'Table') {
    return {
      list: (objects, metadata) => ({
        kind: 'PartialObjectMetadataList',
        apiVersion,
        metadata,
        items: objects.map(partial),
      }),
      single: partial,
    };
  }
  // Printers read the stored form.
  const shown = storageKind(kind);
  const include = context.query.get('includeObject') || 'Metadata';
  const choices = ['', 'Metadata', 'None', 'Object'];
  if (!choices.includes(include)) {
    throw badRequest(
      `Unable to convert to Table as requested: includeObject: Invalid value: ${JSON.stringify(include)}: must be 'Metadata', 'Object', 'None', or empty`,
    );
  }
  const row = (object: ApiObject) => ({
    cells:
      kind.printer?.cells(presented(kind, object), now) ?? tables.cells(shown.group, shown.kind, object, now),
    object: include === 'Object' ? presented(kind, object) : include === 'None' ? null : partial(object),
  });
  const table = (objects: readonly ApiObject[], metadata: object, columns: boolean) => ({
    kind: 'Table',
    apiVersion,
    metadata,
    columnDefinitions: columns ? (kind.printer?.columns ?? tables.columns(shown.group, shown.kind)) : null,
    rows: objects.map(row),
  });
  return {
    list: (objects, metadata) => table(objects, metadata, true),
    single: (object, first) => table([object], { resourceVersion: object.metadata.resourceVersion }, first),
  };
}
