import { badRequest } from './status-error.ts';

type Labels = Readonly<Record<string, string>>;
export type LabelMatcher = (labels: Labels) => boolean;

const NAME = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const PREFIX = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const VALUE = /^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$/;
const NAME_RULE =
  "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE =
  "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const SYMBOLS = ['==', '!=', '=', '!', '(', ')', ',', '<', '>'] as const;

/** Splits a selector into words and symbols; a word ends at a space or symbol (k8s.io/apimachinery labels.Lexer). */
function tokens(text: string): string[] {
  const found: string[] = [];
  let at = 0;
  while (at < text.length) {
    if (/\s/.test(text[at] ?? '')) {
      at++;
      continue;
    }
    const symbol = SYMBOLS.find((one) => text.startsWith(one, at));
    if (symbol) {
      found.push(symbol);
      at += symbol.length;
      continue;
    }
    const [word = ''] = /^[^\s=!(),<>]+/.exec(text.slice(at)) ?? [];
    found.push(word);
    at += word.length;
  }
  return found;
}

const isSymbol = (token: string) => (SYMBOLS as readonly string[]).includes(token);

/** Parses a label selector in equality and set form, as in `kubectl -l`. Throws StatusError 400 in upstream's words. */
export function parseLabelSelector(text: string): LabelMatcher {
  const list = tokens(text);
  const requirements: LabelMatcher[] = [];
  let at = 0;
  const peek = () => list[at] ?? '';
  const unexpected = (expected: string) =>
    badRequest(`unable to parse requirement: found '${peek()}', expected: ${expected}`);

  function values(): string[] {
    if (peek() !== '(') throw unexpected("'('");
    at++;
    const found: string[] = [];
    for (;;) {
      // Two adjacent commas contain an empty value.
      if (peek() === ',' || peek() === ')') found.push('');
      else if (peek() === '' || isSymbol(peek())) throw unexpected("',', ')' or identifier");
      else found.push(list[at++] ?? '');
      if (peek() === ')') break;
      if (peek() !== ',') throw unexpected("',' or ')'");
      at++;
    }
    at++;
    return found;
  }

  function requirement(): LabelMatcher {
    const absent = peek() === '!';
    if (absent) at++;
    const key = peek();
    if (absent && (key === '' || isSymbol(key))) throw unexpected('identifier');
    if (key === '' || isSymbol(key)) throw unexpected("!, identifier, or 'end of string'");
    at++;
    checkKey(key);
    if (absent) return (labels) => !Object.hasOwn(labels, key);
    const operator = peek();
    if (operator === '' || operator === ',') return (labels) => Object.hasOwn(labels, key);
    at++;
    switch (operator) {
      case 'in':
      case 'notin': {
        const set = new Set(values());
        for (const value of set) checkValue(key, value);
        return operator === 'in'
          ? (labels) => Object.hasOwn(labels, key) && set.has(labels[key] ?? '')
          : (labels) => !Object.hasOwn(labels, key) || !set.has(labels[key] ?? '');
      }
      case '=':
      case '==':
      case '!=':
      case '<':
      case '>': {
        const value = peek() === '' || peek() === ',' ? '' : peek();
        if (isSymbol(value)) throw unexpected('identifier');
        if (value !== '') at++;
        return comparison(key, operator, value);
      }
      default:
        at--;
        throw unexpected('in, notin, =, ==, !=, gt, lt');
    }
  }

  while (at < list.length) {
    requirements.push(requirement());
    if (at === list.length) break;
    if (peek() !== ',') throw badRequest(`found '${peek()}', expected: ',' or 'end of string'`);
    at++;
    if (at === list.length) throw badRequest("found '', expected: identifier after ','");
  }
  return (labels) => requirements.every((matches) => matches(labels));
}

function comparison(key: string, operator: '=' | '==' | '!=' | '<' | '>', value: string): LabelMatcher {
  if (operator === '<' || operator === '>') {
    if (!/^[-+]?[0-9]+$/.test(value)) {
      throw badRequest(
        `unable to parse requirement: values[0]: Invalid value: ${JSON.stringify(value)}: for 'Gt', 'Lt' operators, the value must be an integer`,
      );
    }
    const bound = BigInt(value);
    return (labels) => {
      const own = labels[key] ?? '';
      if (!Object.hasOwn(labels, key) || !/^[-+]?[0-9]+$/.test(own)) return false;
      return operator === '>' ? BigInt(own) > bound : BigInt(own) < bound;
    };
  }
  checkValue(key, value);
  const isEqual: LabelMatcher = (labels) => Object.hasOwn(labels, key) && labels[key] === value;
  return operator === '!=' ? (labels) => !isEqual(labels) : isEqual;
}

function checkKey(key: string): void {
  const slash = key.indexOf('/');
  const prefix = slash < 0 ? null : key.slice(0, slash);
  const name = key.slice(slash + 1);
  if (NAME.test(name) && (prefix === null || (prefix.length <= 253 && PREFIX.test(prefix)))) return;
  throw badRequest(`unable to parse requirement: <nil>: Invalid value: ${JSON.stringify(key)}: ${NAME_RULE}`);
}

function checkValue(key: string, value: string): void {
  if (VALUE.test(value)) return;
  throw badRequest(
    `unable to parse requirement: values[0][${key}]: Invalid value: ${JSON.stringify(value)}: ${VALUE_RULE}`,
  );
}

/** One term of a field selector. */
export interface FieldTerm {
  readonly field: string;
  readonly value: string;
  /** False for "!=". */
  readonly equal: boolean;
}

/** Parses a field selector ("status.phase!=Failed,spec.nodeName=n1"). Throws StatusError 400. */
export function parseFieldSelector(text: string): FieldTerm[] {
  return splitTerms(text).map((term) => {
    // The first operator separates; an operator in the value is escaped.
    const parts = /^([^=!]*)(!=|==|=)(.*)$/s.exec(term);
    if (!parts) throw badRequest(`invalid selector: '${text}'; can't understand '${term}'`);
    const [, field = '', operator, value = ''] = parts;
    return { field, value: unescaped(value), equal: operator !== '!=' };
  });
}

/** Splits at commas that are not escaped with a backslash. */
function splitTerms(text: string): string[] {
  return (text.match(/(?:\\.|[^,\\])+/gs) ?? []).filter((term) => term !== '');
}

function unescaped(value: string): string {
  let plain = '';
  for (let i = 0; i < value.length; i++) {
    const character = value[i] ?? '';
    if (character === '\\') {
      const next = value[++i] ?? '';
      if (next === '' || !'\\,='.includes(next)) {
        throw badRequest(`invalid field selector: invalid escape sequence: \\${next}`);
      }
      plain += next;
    } else if (character === '=' || character === ',') {
      throw badRequest(`invalid field selector: unescaped character in value: ${character.charCodeAt(0)}`);
    } else plain += character;
  }
  return plain;
}
