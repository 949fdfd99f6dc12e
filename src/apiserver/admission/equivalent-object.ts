import { present, toStorage } from '../conversion.ts';
import { type ApiObject, equal } from '../object.ts';
import type { ResourceRegistry } from '../services.ts';
import type { AdmissionAttributes } from './plugin.ts';
import type { GroupVersionResource } from './rule-match.ts';

/** A write as seen in one of the groups and versions of its resource. */
export interface ReviewedAs {
  readonly resource: GroupVersionResource;
  readonly kind: { readonly group: string; readonly version: string; readonly kind: string };
  readonly object: ApiObject | null;
  readonly oldObject: ApiObject | null;
}

/**
 * Returns the objects of a write in the group and version by which a rule matched it; copies, if that is not the group
 * and version of the request. Throws StatusError 500 if they cannot be converted.
 */
export async function reviewedAs(
  registry: ResourceRegistry,
  attributes: AdmissionAttributes,
  wanted: GroupVersionResource,
): Promise<ReviewedAs> {
  const { resource, kind, object, oldObject } = attributes;
  if (wanted.group === resource.group && wanted.version === resource.version) {
    return { resource, kind, object, oldObject };
  }
  const from = registry.find(resource.group, resource.version, resource.resource)?.kind;
  const to = registry.find(wanted.group, wanted.version, wanted.resource)?.kind;
  if (!from || !to) return { resource, kind, object, oldObject };
  const convert = async (one: ApiObject | null) =>
    one && (await present(to, await toStorage(from, structuredClone(one))));
  return {
    resource: wanted,
    kind: { group: to.group, version: to.version, kind: to.kind },
    object: await convert(object),
    oldObject: await convert(oldObject),
  };
}

/**
 * Replaces the object of a write (not null) by `changed`, which has the group and version `of`; `complete` fills in
 * defaults. Returns true if the object changed. Throws StatusError 500 if it cannot be converted.
 */
export async function replaceObject(
  registry: ResourceRegistry,
  complete: (object: ApiObject) => void,
  object: ApiObject,
  { resource }: AdmissionAttributes,
  of: GroupVersionResource,
  changed: ApiObject,
): Promise<boolean> {
  const from = registry.find(of.group, of.version, of.resource)?.kind;
  const to = registry.find(resource.group, resource.version, resource.resource)?.kind;
  const isOther = of.group !== resource.group || of.version !== resource.version;
  const next = isOther && from && to ? await present(to, await toStorage(from, changed)) : changed;
  complete(next);
  if (equal(next, object)) return false;
  for (const field of Object.keys(object)) delete object[field];
  Object.assign(object, next);
  return true;
}
