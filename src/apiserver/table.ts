import type { IncomingRequest } from './api-request.ts';
import type { Kind } from './kind.ts';
import type { ApiObject } from './object.ts';
import type { TableService } from './schema-service.ts';

/** Renders objects as meta/v1 Table, as one request asked for. */
export interface TableRendering {
  list(objects: readonly ApiObject[], metadata: object): object;
  /** A table of one row; `columns`: with the columns' definitions, which a watch sends once. */
  single(object: ApiObject, columns: boolean): object;
}

/** How to render for a client that accepts tables; null for one that wants plain objects. */
export function tableRequest(
  request: IncomingRequest,
  tables: TableService,
  kind: Kind,
  query: URLSearchParams,
  now: Date,
): TableRendering | null {
  const wanted = /application\/json;as=Table;v=(v1|v1beta1);g=meta\.k8s\.io/.exec(
    request.headers['accept'] ?? '',
  );
  if (!wanted) return metadataRequest(request);
  const include = query.get('includeObject') ?? 'Metadata';
  const row = (object: ApiObject) => ({
    cells: tables.cells(kind.group, kind.kind, object, now),
    object:
      include === 'Object'
        ? object
        : include === 'None'
          ? null
          : { kind: 'PartialObjectMetadata', apiVersion: 'meta.k8s.io/v1', metadata: object.metadata },
  });
  const table = (objects: readonly ApiObject[], metadata: object, columns: boolean) => ({
    kind: 'Table',
    apiVersion: `meta.k8s.io/${wanted[1]}`,
    metadata,
    columnDefinitions: columns ? tables.columns(kind.group, kind.kind) : null,
    rows: objects.map(row),
  });
  return {
    list: (objects, metadata) => table(objects, metadata, true),
    single: (object, columns) =>
      table([object], { resourceVersion: object.metadata.resourceVersion }, columns),
  };
}

/** Metadata alone, for clients that accept PartialObjectMetadata (garbage collectors, for example). */
function metadataRequest(request: IncomingRequest): TableRendering | null {
  const wanted =
    /application\/json;as=PartialObjectMetadata(List)?;v=v1;g=meta\.k8s\.io|as=PartialObjectMetadata(List)?;g=meta\.k8s\.io;v=v1/.test(
      request.headers['accept'] ?? '',
    );
  if (!wanted) return null;
  const partial = (object: ApiObject) => ({
    kind: 'PartialObjectMetadata',
    apiVersion: 'meta.k8s.io/v1',
    metadata: object.metadata,
  });
  return {
    list: (objects, metadata) => ({
      kind: 'PartialObjectMetadataList',
      apiVersion: 'meta.k8s.io/v1',
      metadata,
      items: objects.map(partial),
    }),
    single: partial,
  };
}
