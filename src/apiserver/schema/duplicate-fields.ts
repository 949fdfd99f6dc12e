import { pathText } from './strict-fields.ts';
import type { FieldType, ObjectType, TypeRegistry } from './type-schema.ts';

/**
 * Returns fields that occur twice in one object of a JSON text, as a strict decoder reports them: `duplicate field
 * "spec.foo"`. The text is valid JSON (JSON.parse accepted it). Unknown fields and free-form values are not searched.
 */
export function duplicateFields(types: TypeRegistry, type: ObjectType, json: string): string[] {
  const problems: string[] = [];
  const path: (string | number)[] = [];
  let at = 0;

  function space(): void {
    while (/\s/.test(json.charAt(at))) at++;
  }

  /** Reads and decodes a string. */
  function text(): string {
    const start = at++;
    while (json.charCodeAt(at) !== QUOTE) at += json.charCodeAt(at) === BACKSLASH ? 2 : 1;
    at++;
    return JSON.parse(json.slice(start, at)) as string;
  }

  function value(expected: FieldType | null): void {
    space();
    switch (json[at]) {
      case '{':
        object(expected);
        break;
      case '[': {
        const items = expected?.kind === 'list' ? expected.items : null;
        at++;
        for (let index = 0; ; index++) {
          space();
          if (json[at] === ']') break;
          path.push(index);
          value(items);
          path.pop();
          space();
          if (json[at] !== ',') break;
          at++;
        }
        at++;
        break;
      }
      case '"':
        text();
        break;
      default:
        while (at < json.length && !/[,\]}\s]/.test(json.charAt(at))) at++;
    }
  }

  function object(expected: FieldType | null): void {
    const fields = expected?.kind === 'object' ? types.type(expected.name).fields : null;
    const seen = new Set<string>();
    at++;
    while (true) {
      space();
      if (json[at] === '}') break;
      const key = text();
      path.push(key);
      if (expected?.kind === 'map' || fields?.has(key)) {
        if (seen.has(key)) problems.push(`duplicate field "${pathText(path)}"`);
        seen.add(key);
      }
      space();
      at++;
      value(expected?.kind === 'map' ? expected.values : (fields?.get(key)?.type ?? null));
      path.pop();
      space();
      if (json[at] !== ',') break;
      at++;
    }
    at++;
  }

  value({ kind: 'object', name: type.name });
  return problems;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
