import { isObject } from '../object.ts';

/** A step of a JSONPath of printer columns. */
type Step =
  | { readonly kind: 'field'; readonly name: string }
  | { readonly kind: 'index'; readonly index: number }
  | { readonly kind: 'all' }
  | {
      readonly kind: 'filter';
      readonly path: readonly Step[];
      readonly operator: string;
      readonly value: unknown;
    };

/** Finds the values at a path in an object; an absent member yields no values. */
export type JsonPath = (object: unknown) => unknown[];

/**
 * Parses a simple JSONPath, such as `.spec.replicas`, `.metadata.annotations['a\.b']`, `.items[0]`, `.items[*].name` or
 * `.conditions[?(@.type=="Ready")].status`. Throws Error with the position of a syntax error. Source:
 * k8s.io/client-go/util/jsonpath.
 */
export function parseJsonPath(text: string): JsonPath {
  const steps = parseSteps(text.replace(/^\{(.*)\}$/s, '$1').replace(/^\$/, ''), text);
  return (object) => walk([object], steps);
}

function parseSteps(text: string, whole: string): Step[] {
  const steps: Step[] = [];
  let rest = text;
  const take = (pattern: RegExp): RegExpExecArray | null => {
    const match = pattern.exec(rest);
    if (match) rest = rest.slice(match[0].length);
    return match;
  };
  while (rest !== '') {
    const filter = take(/^\[\?\(\s*@([^=!<>]*?)\s*(==|!=|<=|>=|<|>)\s*("[^"]*"|'[^']*'|[^)\s]+)\s*\)\]/);
    if (filter) {
      const [, path = '', operator = '', literal = ''] = filter;
      steps.push({ kind: 'filter', path: parseSteps(path, whole), operator, value: readLiteral(literal) });
      continue;
    }
    const index = take(/^\[(-?\d+)\]/);
    if (index) {
      steps.push({ kind: 'index', index: Number(index[1]) });
      continue;
    }
    const quoted = take(/^\[(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\]/);
    if (quoted) {
      steps.push({ kind: 'field', name: (quoted[1] ?? quoted[2] ?? '').replace(/\\(.)/g, '$1') });
      continue;
    }
    if (take(/^(\[\*\]|\.\*)/)) {
      steps.push({ kind: 'all' });
      continue;
    }
    const field = take(/^\.((?:[^.[\]\\]|\\.)+)/);
    if (!field) throw new Error(`unrecognized JSONPath ${JSON.stringify(whole)} at ${JSON.stringify(rest)}`);
    steps.push({ kind: 'field', name: (field[1] ?? '').replace(/\\(.)/g, '$1') });
  }
  return steps;
}

function readLiteral(text: string): unknown {
  if (/^['"]/.test(text)) return text.slice(1, -1);
  if (text === 'true' || text === 'false') return text === 'true';
  return Number(text);
}

function walk(values: readonly unknown[], steps: readonly Step[]): unknown[] {
  let current = [...values];
  for (const step of steps) current = current.flatMap((value) => take(value, step));
  return current;
}

function take(value: unknown, step: Step): unknown[] {
  switch (step.kind) {
    case 'field': {
      const found = isObject(value) && Object.hasOwn(value, step.name) ? value[step.name] : undefined;
      return found === undefined ? [] : [found];
    }
    case 'index': {
      const found = Array.isArray(value) ? value.at(step.index) : undefined;
      return found === undefined ? [] : [found];
    }
    case 'all':
      return Array.isArray(value) ? value : isObject(value) ? Object.values(value) : [];
    case 'filter':
      return (Array.isArray(value) ? value : []).filter((item) =>
        walk([item], step.path).some((found) => compare(found, step.operator, step.value)),
      );
  }
}

function compare(found: unknown, operator: string, value: unknown): boolean {
  switch (operator) {
    case '==':
      return found === value;
    case '!=':
      return found !== value;
    default: {
      if (typeof found !== typeof value || (typeof found !== 'number' && typeof found !== 'string'))
        return false;
      const [a, b] = [found, value as typeof found];
      return operator === '<' ? a < b : operator === '<=' ? a <= b : operator === '>' ? a > b : a >= b;
    }
  }
}
