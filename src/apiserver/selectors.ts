import { badRequest } from './status-error.ts';

type Labels = Readonly<Record<string, string>>;
export type LabelMatcher = (labels: Labels) => boolean;
export type FieldMatcher = (fields: Labels) => boolean;

const KEY = /^([a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?\/)?[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?$/;
const VALUE = /^([a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?)?$/;

/** Reads a label selector: equality and set forms, as `kubectl -l` takes. Throws StatusError 400. */
export function parseLabelSelector(text: string): LabelMatcher {
  const terms = splitTerms(text).map(parseLabelTerm);
  return (labels) => terms.every((term) => term(labels));
}

function parseLabelTerm(term: string): LabelMatcher {
  const refuse = (detail: string) =>
    badRequest(`unable to parse requirement: ${detail} in selector ${JSON.stringify(term)}`);
  const set = /^(\S+)\s+(in|notin)\s*\(([^)]*)\)$/.exec(term);
  if (set) {
    const [, key = '', operator, list = ''] = set;
    const values = new Set(list.split(',').map((value) => value.trim()));
    checkKey(key, refuse);
    for (const value of values) checkValue(value, refuse);
    return operator === 'in'
      ? (labels) => Object.hasOwn(labels, key) && values.has(labels[key] ?? '')
      : (labels) => !Object.hasOwn(labels, key) || !values.has(labels[key] ?? '');
  }
  const comparison = /^([^=!<>\s]+)\s*(==|=|!=|>|<)\s*([^=!<>\s]*)$/.exec(term);
  if (comparison) {
    const [, key = '', operator, value = ''] = comparison;
    checkKey(key, refuse);
    if (operator === '>' || operator === '<') {
      const bound = Number(value);
      if (!/^-?[0-9]+$/.test(value)) throw refuse(`${JSON.stringify(value)} is no whole number`);
      return (labels) => {
        const number = /^-?[0-9]+$/.test(labels[key] ?? '') ? Number(labels[key]) : Number.NaN;
        return operator === '>' ? number > bound : number < bound;
      };
    }
    checkValue(value, refuse);
    return operator === '!='
      ? (labels) => own(labels, key) !== value
      : (labels) => own(labels, key) === value;
  }
  const absent = term.startsWith('!');
  const key = absent ? term.slice(1).trim() : term;
  checkKey(key, refuse);
  return (labels) => Object.hasOwn(labels, key) !== absent;
}

function own(labels: Labels, key: string): string | undefined {
  return Object.hasOwn(labels, key) ? labels[key] : undefined;
}

function checkKey(key: string, refuse: (detail: string) => Error): void {
  if (!KEY.test(key)) throw refuse(`found ${JSON.stringify(key)}, expected a label's name`);
}

function checkValue(value: string, refuse: (detail: string) => Error): void {
  if (!VALUE.test(value)) throw refuse(`${JSON.stringify(value)} is no label's value`);
}

/** Commas inside parentheses do not separate. */
function splitTerms(text: string): string[] {
  const terms: string[] = [];
  let depth = 0;
  let term = '';
  for (const character of text) {
    if (character === '(') depth++;
    if (character === ')') depth--;
    if (character === ',' && depth === 0) {
      terms.push(term.trim());
      term = '';
    } else term += character;
  }
  terms.push(term.trim());
  return terms.filter((one) => one !== '');
}

/** Reads a field selector ("status.phase!=Failed"); only `known` fields may be asked for. Throws StatusError 400. */
export function parseFieldSelector(text: string, known: readonly string[]): FieldMatcher {
  const terms = text
    .split(',')
    .filter((term) => term !== '')
    .map((term) => {
      const parts = /^([^=!]+)(==|=|!=)(.*)$/.exec(term);
      if (!parts)
        throw badRequest(
          `invalid selector: ${JSON.stringify(text)}; can't understand ${JSON.stringify(term)}`,
        );
      const [, field = '', operator, value = ''] = parts;
      if (!known.includes(field)) throw badRequest(`field label not supported: ${field}`);
      const plain = value.replace(/\\([\\,=])/g, '$1');
      return { field, value: plain, wanted: operator !== '!=' };
    });
  return (fields) => terms.every(({ field, value, wanted }) => ((fields[field] ?? '') === value) === wanted);
}
