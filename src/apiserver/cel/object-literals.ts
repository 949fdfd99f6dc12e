import { type Environment, Optional } from '@marcbachmann/cel-js';
import { setOwnMember } from '../../lib/own-member.ts';
import { CelError } from './cel-error.ts';
import { unescapedName } from './values.ts';

/** A value that an expression constructed: `Object{…}`, `Object.spec{…}`. */
export class ObjectValue {
  readonly typeName: string;
  readonly fields: Readonly<Record<string, unknown>>;
  constructor(typeName: string, fields: Readonly<Record<string, unknown>>) {
    this.typeName = typeName;
    this.fields = fields;
  }
  /** Returns the form that is serialized as JSON. */
  valueOf(): Readonly<Record<string, unknown>> {
    return this.fields;
  }
}

/** A value of `Object.…`: a part of an object; a policy must not return it as the whole object. */
export class PartValue extends ObjectValue {}

/** One operation of a JSON patch: `JSONPatch{op: …, path: …}`. */
export class PatchValue {
  readonly op: string;
  readonly path: string;
  readonly from: string;
  /** Undefined if the expression does not set it; null is a value. */
  readonly value: unknown;
  constructor({ op, path, from, value }: Readonly<Record<string, unknown>>) {
    [this.op, this.path, this.from] = [op, path, from].map((text) => {
      if (text === undefined) return '';
      if (typeof text !== 'string') throw new Error('the fields op, path and from of JSONPatch are strings');
      return text;
    }) as [string, string, string];
    this.value = value;
  }
}

class PatchFunctions {}

const PATCH_FIELDS = ['op', 'path', 'from', 'value'];

/**
 * Registers the types Object, Object.… and JSONPatch, and jsonpatch.escapeKey() (k8s.io/apiserver/pkg/cel/mutation).
 * Expressions that construct them go through `expandObjectLiterals` first.
 */
export function registerObjectLiterals(environment: Environment): void {
  environment
    .registerType('Object', { ctor: ObjectValue, fields: {} })
    .registerType('ObjectPart', { ctor: PartValue, fields: {} })
    .registerType('JSONPatch', {
      ctor: PatchValue,
      fields: { op: 'string', path: 'string', from: 'string', value: 'dyn' },
    })
    .registerType('JSONPatchFunctions', { ctor: PatchFunctions })
    .registerConstant('jsonpatch', 'JSONPatchFunctions', new PatchFunctions());
  const members = (given: unknown) => present(given as Readonly<Record<string, unknown>>);
  environment.registerFunction(
    `${WHOLE}(map): Object`,
    (given: unknown) => new ObjectValue('Object', members(given)),
  );
  environment.registerFunction(
    `${PART}(string, map): ObjectPart`,
    (name: string, given: unknown) => new PartValue(name, members(given)),
  );
  environment.registerFunction(
    `${PATCH}(map): JSONPatch`,
    (given: unknown) => new PatchValue(members(given)),
  );
  environment.registerFunction(
    'JSONPatchFunctions.escapeKey(string): string',
    (_functions: PatchFunctions, key: string) => key.replaceAll('~', '~0').replaceAll('/', '~1'),
  );
}

const WHOLE = '__Object';
const PART = '__ObjectPart';
const PATCH = '__JSONPatch';

/** Returns the fields of a literal; optional fields ("?name") only if they have a value. */
function present(given: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const entries = given instanceof Map ? [...given] : Object.entries(given);
  const fields: Record<string, unknown> = {};
  for (const [key, value] of entries) {
    if (!key.startsWith('?')) setOwnMember(fields, key, value);
    else if (!(value instanceof Optional)) throw new Error(`the value of ${key} must be optional`);
    else if (value.hasValue()) setOwnMember(fields, key.slice(1), value.value());
  }
  return fields;
}

/**
 * Returns the problem with the type names of a value: each name must be the path of fields to that value. Null if there
 * is none.
 */
export function typeMismatch(value: unknown, path: string | null = null): string | null {
  if (Array.isArray(value)) return firstOf(value.map((item) => typeMismatch(item, path)));
  if (!(value instanceof ObjectValue)) {
    if (typeof value !== 'object' || value === null) return null;
    const members = value instanceof Map ? [...value.values()] : Object.values(value);
    return firstOf(members.map((member) => typeMismatch(member, path)));
  }
  const { typeName, fields } = value;
  if (path !== null && typeName !== path) {
    return `unexpected type name ${JSON.stringify(typeName)}, expected ${JSON.stringify(path)}, which matches field name path from root Object type`;
  }
  return firstOf(Object.entries(fields).map(([name, member]) => typeMismatch(member, `${typeName}.${name}`)));
}

const firstOf = (problems: readonly (string | null)[]) =>
  problems.find((problem) => problem !== null) ?? null;

/**
 * Rewrites literals of typed values, which the CEL library does not support, as function calls, which it does:
 * `Object{a: 1}` becomes `__Object({"a": 1})`. Throws CelError for a type or field that does not exist.
 */
export function expandObjectLiterals(expression: string): string {
  const scanner = new Scanner(expression);
  return scanner.until('');
}

/** Copies an expression up to a closing character and rewrites its literals. */
class Scanner {
  readonly #text: string;
  #at = 0;
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** Copies up to (not including) one of `ends` outside of brackets; "" means up to the end of the expression. */
  until(ends: string): string {
    let copy = '';
    while (this.#at < this.#text.length) {
      const char = this.#text.charAt(this.#at);
      if (ends.includes(char)) return copy;
      const closing = BRACKETS[char];
      if (closing !== undefined) copy += this.#bracket(closing);
      else
        copy +=
          this.#match(RAW_STRING) ??
          this.#match(STRING) ??
          this.#match(COMMENT) ??
          this.#name() ??
          this.#take(1);
    }
    return copy;
  }

  #bracket(closing: string): string {
    return this.#take(1) + this.#inside(closing) + this.#take(1);
  }

  #inside(ends: string): string {
    if (++this.#depth > MAX_DEPTH) throw new CelError(`the expression nests more than ${MAX_DEPTH} brackets`);
    const copy = this.until(ends);
    this.#depth--;
    return copy;
  }

  /** Parses a name and the literal after it. */
  #name(): string | null {
    const name = this.#match(NAME);
    if (name === null) return null;
    const rest = this.#text.slice(this.#at);
    const type = name.replace(/\s/g, '');
    if (type === 'in' || !/^\s*\{/.test(rest)) return name;
    this.#at += rest.indexOf('{') + 1;
    const fields = this.#fields(type);
    if (type === 'Object') return `${WHOLE}({${fields}})`;
    if (type.startsWith('Object.')) return `${PART}(${JSON.stringify(type)}, {${fields}})`;
    if (type === 'JSONPatch') return `${PATCH}({${fields}})`;
    throw new CelError(`undeclared reference to '${type}'`);
  }

  #fields(type: string): string {
    const fields: string[] = [];
    for (;;) {
      this.#match(SPACE);
      if (this.#text.charAt(this.#at) === '}') break;
      const [, optional = '', plain, quoted] = this.#groups(FIELD) ?? [];
      const name = plain === undefined ? quoted : unescapedName(plain);
      if (name === undefined) throw new CelError(`Syntax error: the fields of ${type} have names`);
      if (type === 'JSONPatch' && !PATCH_FIELDS.includes(name)) {
        throw new CelError(`undefined field '${name}'`);
      }
      fields.push(`${JSON.stringify(optional + name)}: ${this.#inside(',}')}`);
      if (this.#text.charAt(this.#at) === ',') this.#at++;
    }
    this.#at++;
    return fields.join(', ');
  }

  #take(length: number): string {
    const taken = this.#text.slice(this.#at, this.#at + length);
    this.#at += length;
    return taken;
  }

  #match(pattern: RegExp): string | null {
    return this.#groups(pattern)?.[0] ?? null;
  }

  #groups(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text);
    if (found) this.#at += found[0].length;
    return found;
  }
}

/** The nesting limit of the CEL library. */
const MAX_DEPTH = 100;
const BRACKETS: Readonly<Record<string, string>> = { '(': ')', '[': ']', '{': '}' };
const RAW_STRING = /(?:[rR][bB]?|[bB][rR])(?:"""[\s\S]*?"""|'''[\s\S]*?'''|"[^"\n]*"|'[^'\n]*')/y;
const STRING =
  /[bB]?(?:"""(?:[^\\]|\\[\s\S])*?"""|'''(?:[^\\]|\\[\s\S])*?'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')/y;
const COMMENT = /\/\/[^\n]*/y;
const SPACE = /(?:\s|\/\/[^\n]*)*/y;
const NAME = /[A-Za-z_]\w*(?:\s*\.\s*[A-Za-z_]\w*)*/y;
const FIELD = /(\?)?\s*(?:([A-Za-z_]\w*)|`([^`\n]+)`)\s*:/y;
