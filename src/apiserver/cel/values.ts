import { Duration } from '@marcbachmann/cel-js/evaluator';

/** The parts of a schema that say which CEL value a JSON value is. */
export interface ValueSchema {
  readonly type?: string;
  readonly format?: string;
  readonly properties?: Readonly<Record<string, ValueSchema>>;
  readonly additionalProperties?: boolean | ValueSchema;
  readonly items?: ValueSchema;
}

/** Words that CEL reserves, which members of objects may be called (k8s.io/apiserver/pkg/cel/escaping.go). */
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

/** The name by which rules see a member: `__dash__` for "-", `__dot__`, `__slash__`, `__namespace__` for a reserved word. */
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

/** The name of a member that rules see under `name`: the inverse of `escapedName`. */
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
 * Turns decoded JSON into CEL values: integers into bigint, and by the schema dates, durations and bytes. Members of
 * objects get the names by which rules see them; keys of maps stay as they are.
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
    const of = own ?? (typeof additionalProperties === 'object' ? additionalProperties : null);
    converted[isMap ? name : escapedName(name)] = toCelValue(member, of);
  }
  return converted;
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

/** Milliseconds of a duration in Go's notation, or null. */
function durationMs(text: string): number | null {
  const match = /^(-?)((?:\d+(?:\.\d*)?(?:ns|us|µs|ms|s|m|h))+)$/.exec(text);
  if (!match) return null;
  let total = 0;
  for (const [, amount = '', unit = ''] of (match[2] ?? '').matchAll(/(\d+(?:\.\d*)?)(ns|us|µs|ms|s|m|h)/g)) {
    total += Number(amount) * (UNITS[unit] ?? 0);
  }
  return match[1] === '-' ? -total : total;
}
