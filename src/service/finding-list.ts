import type { Finding } from './model.ts';

/** An object of the API as it came, before anything in it is believed. */
export type Raw = Readonly<Record<string, unknown>>;

const NOTHING: Raw = {};
const NONE: readonly unknown[] = [];

/**
 * Collects what is wrong with one object while it is read. Findings of one reason about one field of many list
 * items become one, with a count: 5,000 broken endpoints are one event, not 5,000.
 */
export class FindingList {
  readonly #object: Finding['object'];
  readonly #found = new Map<string, { finding: Finding; more: number }>();

  constructor(kind: Finding['object']['kind'], namespace: string, name: string) {
    this.#object = { kind, namespace, name };
  }

  /** `field` is a path such as "spec.ports[2].port"; `problem` continues it: "0 is no port number: use 1 to 65535". */
  add(reason: string, field: string, problem: string, severity: Finding['severity'] = 'warning'): void {
    const group = `${reason} ${field.replaceAll(/\[\d+\]/g, '[]')}`;
    const known = this.#found.get(group);
    if (known) known.more++;
    else {
      const finding = { severity, reason, object: this.#object, message: `${field}: ${problem}` };
      this.#found.set(group, { finding, more: 0 });
    }
  }

  /** The field as an object; `{}` where it is absent, or is none (a finding). */
  record(parent: Raw, name: string, path: string): Raw {
    const value = parent[name];
    if (value === undefined || value === null) return NOTHING;
    if (typeof value === 'object' && !Array.isArray(value)) return value as Raw;
    this.add('InvalidField', path, `is ${typeName(value)}: an object belongs here`);
    return NOTHING;
  }

  /** The field as a list; empty where it is absent, or is none (a finding). */
  list(parent: Raw, name: string, path: string): readonly unknown[] {
    const value = parent[name];
    if (value === undefined || value === null) return NONE;
    if (Array.isArray(value)) return value;
    this.add('InvalidField', path, `is ${typeName(value)}: a list belongs here`);
    return NONE;
  }

  /** The field as text; empty where it is absent, or is none (a finding). */
  text(parent: Raw, name: string, path: string): string {
    const value = parent[name];
    if (value === undefined || value === null) return '';
    if (typeof value === 'string') return value;
    this.add('InvalidField', path, `is ${typeName(value)}: text belongs here`);
    return '';
  }

  /** What was found, in the order of discovery. */
  result(): readonly Finding[] {
    return Array.from(this.#found.values(), ({ finding, more }) =>
      more === 0 ? finding : { ...finding, message: `${finding.message} (and ${more} more like this)` },
    );
  }
}

/** An item of a list as an object, or null. */
export function asRecord(value: unknown): Raw | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Raw) : null;
}

/** A value of unknown type for a message: quoted, and cut when long. */
export function show(value: unknown): string {
  const text =
    typeof value === 'object' && value !== null ? typeName(value) : (JSON.stringify(value) ?? 'nothing');
  return text.length > 60 ? `${text.slice(0, 57)}…"` : text;
}

function typeName(value: unknown): string {
  return Array.isArray(value) ? 'a list' : typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}
