import type { Kind } from './kind.ts';
import type { ApiObject } from './object.ts';
import { parseFieldSelector } from './selectors.ts';
import { badRequest } from './status-error.ts';

type Reader = (object: ApiObject) => string;

const METADATA: Readonly<Record<string, Reader>> = {
  'metadata.name': ({ metadata }) => metadata.name ?? '',
  'metadata.namespace': ({ metadata }) => metadata.namespace ?? '',
};

/**
 * Parses a field selector for stored objects of a kind. Throws StatusError 400, in upstream's words, for a field that
 * the kind does not support.
 */
export function fieldMatcher(kind: Kind, selector: string): (object: ApiObject) => boolean {
  const terms = parseFieldSelector(selector).map(({ field, value, equal }) => {
    const read = readerOf(kind, field);
    if (!read) throw badRequest(refusal(kind, field));
    return (object: ApiObject) => (read(object) === value) === equal;
  });
  return (object) => terms.every((matches) => matches(object));
}

/** Reports whether a field selector is empty or names fields of metadata only. */
export function readsOnlyMetadata(selector: string): boolean {
  return parseFieldSelector(selector).every(({ field }) => Object.hasOwn(METADATA, field));
}

function readerOf(kind: Kind, field: string): Reader | undefined {
  if (field === 'metadata.namespace' && kind.withoutNamespaceField) return undefined;
  if (Object.hasOwn(METADATA, field)) return METADATA[field];
  return Object.hasOwn(kind.fields, field) ? kind.fields[field] : undefined;
}

function refusal(kind: Kind, field: string): string {
  if (kind.fieldRefusal) return kind.fieldRefusal(field);
  return Object.keys(kind.fields).length > 0
    ? `field label not supported: ${field}`
    : `${JSON.stringify(field)} is not a known field selector: only "metadata.name", "metadata.namespace"`;
}
