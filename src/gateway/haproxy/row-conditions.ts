import type { RouteRow } from '../route-map.ts';
import { argumentName, hex, methodName, pattern, regexText, wholeRegex } from './quote.ts';

/**
 * Returns what a request must fulfil beyond the literal path that led to a row, as conditions of HAProxy. Throws FairleadError
 * "bad-argument".
 */
export function rowConditions({ path, method, headers, query }: RouteRow): string[] {
  const conditions: string[] = [];
  if (path.kind === 'regex') conditions.push(`{ path -m reg ${wholeRegex(path.regex)} }`);
  if (method !== null) conditions.push(`{ method -m str ${methodName(method)} }`);
  for (const { name, kind, value } of headers)
    conditions.push(compared(`req.fhdr(${argumentName(name)})`, kind, value));
  for (const one of query) conditions.push(...queryConditions(one));
  return conditions;
}

const compared = (fetch: string, kind: 'exact' | 'regex', value: string): string => {
  if (kind === 'regex') return `{ ${fetch} -m reg ${wholeRegex(value)} }`;
  // An empty text has no pattern.
  return value === '' ? `{ ${fetch} -m len 0 }` : `{ ${fetch},hex -m str ${hex(value)} }`;
};

/** The first parameter of a name counts, as it was sent. HAProxy's url_param would also end one at ";". */
function queryConditions({ name, kind, value }: RouteRow['query'][number]): string[] {
  const own = regexText(name);
  const before = `^(?:(?!${own}(?:[=&]|$))[^&]*&)*${own}`;
  if (kind === 'regex') {
    // Arguments have quotes of their own, inside of those of the word.
    const extract = `'query,regsub("${before}=?([^&]*).*$","\\1")'`;
    return [
      `{ query -m reg ${pattern(before, '(?:[=&]|$)')} }`,
      `{ ${extract} -m reg ${wholeRegex(value)} }`,
    ];
  }
  const last = value === '' ? '=?' : `=${regexText(value)}`;
  return [`{ query -m reg ${pattern(before, last, '(?:&|$)')} }`];
}
