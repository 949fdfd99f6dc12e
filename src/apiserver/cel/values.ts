import { Duration } from '@marcbachmann/cel-js/evaluator';
import { setOwnMember } from '../../lib/own-member.ts';

/** The parts of a schema that determine the CEL type of a JSON value. */
export interface ValueSchema {
  readonly type?: string;
  readonly format?: string;
  readonly properties?: Readonly<Record<string, ValueSchema>>;
  readonly additionalProperties?: boolean | ValueSchema;
  readonly items?: ValueSchema;
}

/** Reserved words of CEL that may be member names of objects (k8s.io/apiserver/pkg/cel/escaping.go). */
const RESERVED = new Set([
  'true',
  'false',
  'null',
  'in',
  'as',
  'break',
  'const',
  'continue',
  'else',
  'for',
  'function',
  'if',
  'import',
  'let',
  'loop',
  'package',
  'namespace',
  'return',
  'var',
  'void',
  'while',
]);

/**
 * Returns the name under which rules access a member: `__dash__` for "-", `__dot__`, `__slash__`, `__namespace__` for a
 * reserved word.
 */
export function escapedName(name: string): string {
  if (RESERVED.has(name)) return `__${name}__`;
  return name.replace(/__|[-./]/g, (found) => {
    switch (found) {
      case '-':
        return '__dash__';
      case '.':
        return '__dot__';
      case '/':
        return '__slash__';
      default:
        return '__underscores__';
    }
  });
}

/** Returns the member that rules access as `name`: the inverse of `escapedName`. */
export function unescapedName(name: string): string {
  return name
    .replace(/^__([a-z]+)__$/, (escaped, word: string) => (RESERVED.has(word) ? word : escaped))
    .replace(/__(underscores|dash|dot|slash)__/g, (_escaped, what: string) => {
      switch (what) {
        case 'dash':
          return '-';
        case 'dot':
          return '.';
        case 'slash':
          return '/';
        default:
          return '__';
      }
    });
}

/**
 * Returns an object as the library reads maps. It recognises an object by its constructor, and refuses one with a member of
 * that name: this becomes a Map.
 */
export const celMap = (members: Record<string, unknown>): unknown =>
  Object.hasOwn(members, 'constructor') ? new Map(Object.entries(members)) : members;

/**
 * Converts decoded JSON to CEL values: integers to bigint and, according to the schema, dates, durations and bytes.
 * Members of objects are renamed as rules access them; keys of maps are not changed.
 */
export function toCelValue(value: unknown, schema: ValueSchema | null): unknown {
  if (value === null || value === undefined) return null;
  if (typeof value === 'number') {
    return Number.isInteger(value) && schema?.type !== 'number' ? BigInt(value) : value;
  }
  if (typeof value === 'string') return typed(value, schema?.format);
  if (Array.isArray(value)) return value.map((item) => toCelValue(item, schema?.items ?? null));
  if (typeof value !== 'object') return value;
  const { properties, additionalProperties } = schema ?? {};
  const isMap = properties === undefined && typeof additionalProperties === 'object';
  const converted: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(value)) {
    if (member === undefined) continue;
    const own = properties && Object.hasOwn(properties, name) ? properties[name] : undefined;
    // A rule sees a property that is null as absent; a map has its key.
    if (member === null && own) continue;
    const of = own ?? (typeof additionalProperties === 'object' ? additionalProperties : null);
    setOwnMember(converted, isMap ? name : escapedName(name), toCelValue(member, of));
  }
  return celMap(converted);
}

function typed(text: string, format: string | undefined): unknown {
  switch (format) {
    case 'date-time':
    case 'date': {
      const date = new Date(text);
      return Number.isNaN(date.getTime()) ? text : date;
    }
    case 'byte':
      return new Uint8Array(Buffer.from(text, 'base64'));
    case 'duration': {
      const milliseconds = durationMs(text);
      return milliseconds === null ? text : Duration.fromMilliseconds(milliseconds);
    }
    default:
      return text;
  }
}

const UNITS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};

/** Parses a duration in Go's notation into milliseconds; null if it is invalid. */
function durationMs(text: string): number | null {
  const match = /^(-?)((?:\d+(?:\.\d*)?(?:ns|us|µs|ms|s|m|h))+)$/.exec(text);
  if (!match) return null;
  let total = 0;
  for (const [, amount = '', unit = ''] of (match[2] ?? '').matchAll(/(\d+(?:\.\d*)?)(ns|us|µs|ms|s|m|h)/g)) {
    total += Number(amount) * (UNITS[unit] ?? 0);
  }
  return match[1] === '-' ? -total : total;
}
