import type { Finding } from './model.ts';

/** An API object as received, before validation. */
export type Raw = Readonly<Record<string, unknown>>;

const NOTHING: Raw = {};
const NONE: readonly unknown[] = [];
const NO_FINDINGS: readonly Finding[] = [];

/** Collects problems of one object while it is read. */
export interface FindingList {
  /**
   * Adds a finding. `field` is a path such as "spec.ports[2].port"; `problem` continues it: "0 is not a
   * port number: use 1 to 65535".
   */
  add(reason: string, field: string, problem: string, severity?: Finding['severity']): void;
  /** Returns the field as an object; `{}` if it is absent or not an object (a finding). */
  record(parent: Raw, name: string, path: string): Raw;
  /** Returns the field as a list; empty if it is absent or not a list (a finding). */
  list(parent: Raw, name: string, path: string): readonly unknown[];
  /** Returns the field as text; empty if it is absent or not text (a finding). */
  text(parent: Raw, name: string, path: string): string;
  /** Returns the findings in the order of discovery. */
  result(): readonly Finding[];
}

/**
 * Creates an empty list for one object. Findings with the same reason and field in many list items become
 * one, with a count: 5,000 broken endpoints are one event, not 5,000.
 */
export function createFindingList(
  kind: Finding['object']['kind'],
  namespace: string,
  name: string,
): FindingList {
  const object = { kind, namespace, name };
  let found: Map<string, { finding: Finding; more: number }> | null = null;
  const add: FindingList['add'] = (reason, field, problem, severity = 'warning') => {
    const group = `${reason} ${field.replaceAll(/\[\d+\]/g, '[]')}`;
    found ??= new Map();
    const known = found.get(group);
    if (known) known.more++;
    else {
      found.set(group, { finding: { severity, reason, object, message: `${field}: ${problem}` }, more: 0 });
    }
  };
  return {
    add,
    record(parent, name, path) {
      const value = parent[name];
      if (value === undefined || value === null) return NOTHING;
      if (typeof value === 'object' && !Array.isArray(value)) return value as Raw;
      add('InvalidField', path, `is ${typeName(value)}, must be an object`);
      return NOTHING;
    },
    list(parent, name, path) {
      const value = parent[name];
      if (value === undefined || value === null) return NONE;
      if (Array.isArray(value)) return value;
      add('InvalidField', path, `is ${typeName(value)}, must be a list`);
      return NONE;
    },
    text(parent, name, path) {
      const value = parent[name];
      if (value === undefined || value === null) return '';
      if (typeof value === 'string') return value;
      add('InvalidField', path, `is ${typeName(value)}, must be a string`);
      return '';
    },
    result() {
      if (!found) return NO_FINDINGS;
      return Array.from(found.values(), ({ finding, more }) =>
        more === 0 ? finding : { ...finding, message: `${finding.message} (and ${more} more)` },
      );
    },
  };
}

/** Returns an item of a list as an object, or null. */
export function asRecord(value: unknown): Raw | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Raw) : null;
}

/** Formats a value of unknown type for a message: quoted, and truncated if long. */
export function show(value: unknown): string {
  const text =
    typeof value === 'object' && value !== null ? typeName(value) : (JSON.stringify(value) ?? 'nothing');
  return text.length > 60 ? `${text.slice(0, 57)}…"` : text;
}

function typeName(value: unknown): string {
  return Array.isArray(value) ? 'a list' : typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
