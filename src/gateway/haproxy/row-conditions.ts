import type { RouteRow } from '../route-map.ts';
import { argumentName, hex, methodName, wholeRegex } from './quote.ts';

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
  for (const { name, kind, value } of query)
    conditions.push(compared(`url_param(${argumentName(name)})`, kind, value));
  return conditions;
}

const compared = (fetch: string, kind: 'exact' | 'regex', value: string): string => {
  if (kind === 'regex') return `{ ${fetch} -m reg ${wholeRegex(value)} }`;
  // An empty text has no pattern.
  return value === '' ? `{ ${fetch} -m found } !{ ${fetch} -m len gt 0 }` : `{ ${fetch},hex -m str ${hex(value)} }`;
};
