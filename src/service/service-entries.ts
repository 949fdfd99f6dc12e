import { asRecord } from './finding-list.ts';
import type { Finding } from './model.ts';
import type { EndpointSliceObject, ServiceObject } from './objects.ts';
import type { ParsedService } from './parsed-service.ts';
import type { CompiledService } from './service-compiler.ts';
import { readService } from './service-reader.ts';
import { createInterner, type ParsedSlice, readSlice } from './slice-reader.ts';

/** The parts of one Service's objects that forwarding needs. */
export interface Entry {
  service: ParsedService | null;
  serviceFindings: readonly Finding[];
  /** Ordered by name. */
  slices: readonly ParsedSlice[];
  sliceFindings: ReadonlyMap<string, readonly Finding[]> | null;
  /** As of the latest commit. */
  compiled: CompiledService | null;
}

/** The Services and EndpointSlices as they were read, by "namespace/service"; setters mark what they change. */
export interface ServiceEntries {
  readonly all: ReadonlyMap<string, Entry>;
  /** The keys of entries that have changed. */
  readonly dirty: Set<string>;
  setService(object: ServiceObject): void;
  deleteService(namespace: string, name: string): void;
  setSlice(object: EndpointSliceObject): void;
  deleteSlice(namespace: string, name: string): void;
  /** Forgets an entry without objects and findings. */
  forgetEmpty(key: string): void;
}

const NO_FINDINGS: readonly Finding[] = [];

export function createServiceEntries(): ServiceEntries {
  const interner = createInterner();
  const all = new Map<string, Entry>();
  /** "namespace/slice" → "namespace/service". */
  const owners = new Map<string, string>();
  const dirty = new Set<string>();

  const entryOf = (key: string): Entry => {
    const known = all.get(key);
    if (known) return known;
    const entry = {
      service: null,
      serviceFindings: NO_FINDINGS,
      slices: [],
      sliceFindings: null,
      compiled: null,
    };
    all.set(key, entry);
    return entry;
  };

  const dropSlice = (sliceKey: string, name: string) => {
    const owner = owners.get(sliceKey);
    const entry = owner === undefined ? undefined : all.get(owner);
    if (owner === undefined || !entry) return;
    owners.delete(sliceKey);
    entry.slices = entry.slices.filter((slice) => slice.name !== name);
    entry.sliceFindings = withFindings(entry.sliceFindings, name, NO_FINDINGS);
    dirty.add(owner);
  };

  return {
    all,
    dirty,
    setService(object) {
      const { service, findings: found } = readService(object);
      const key = keyOf(object);
      const entry = entryOf(key);
      entry.service = service;
      entry.serviceFindings = found;
      dirty.add(key);
    },
    deleteService(namespace, name) {
      const entry = all.get(`${namespace}/${name}`);
      if (!entry) return;
      entry.service = null;
      entry.serviceFindings = NO_FINDINGS;
      dirty.add(`${namespace}/${name}`);
    },
    setSlice(object) {
      const { namespace, name } = nameOf(object);
      const sliceKey = `${namespace}/${name}`;
      const { service, slice, findings: found } = readSlice(object, interner);
      const owner = service === null ? null : `${namespace}/${service}`;
      if (owners.get(sliceKey) !== owner) dropSlice(sliceKey, name);
      if (owner === null) return;
      owners.set(sliceKey, owner);
      const entry = entryOf(owner);
      const others = entry.slices.filter((other) => other.name !== name);
      entry.slices = slice ? [...others, slice].sort((a, b) => (a.name < b.name ? -1 : 1)) : others;
      entry.sliceFindings = withFindings(entry.sliceFindings, name, found);
      dirty.add(owner);
    },
    deleteSlice: (namespace, name) => dropSlice(`${namespace}/${name}`, name),
    forgetEmpty(key) {
      const entry = all.get(key);
      const isEmpty = entry?.service === null && entry.slices.length === 0;
      if (isEmpty && findingsOf(entry).length === 0) all.delete(key);
    },
  };
}

/** Returns the findings of a Service and its slices. */
export const findingsOf = ({ serviceFindings, sliceFindings }: Entry): readonly Finding[] =>
  [serviceFindings, ...(sliceFindings?.values() ?? [])].flat();

function withFindings(
  all: ReadonlyMap<string, readonly Finding[]> | null,
  name: string,
  found: readonly Finding[],
): ReadonlyMap<string, readonly Finding[]> | null {
  if (all === null && found.length === 0) return null;
  const next = new Map(all);
  if (found.length > 0) next.set(name, found);
  else next.delete(name);
  return next.size > 0 ? next : null;
}

function nameOf(object: ServiceObject | EndpointSliceObject): { namespace: string; name: string } {
  const meta = asRecord(asRecord(object)?.['metadata']);
  const text = (value: unknown) => (typeof value === 'string' ? value : '');
  return { namespace: text(meta?.['namespace']), name: text(meta?.['name']) };
}

function keyOf(object: ServiceObject): string {
  const { namespace, name } = nameOf(object);
  return [namespace, name].join('/');
}
