import { list, optionalText, type Raw, record, show, text } from './raw.ts';
import { regexProblem } from './regex.ts';
import { unreachablePath } from './request-path.ts';
import type { PathMatch, RouteRow, ValueMatch } from './route-map.ts';
import { isProblem, type RuleProblem, unsupported } from './rule-problem.ts';

/** One match of a rule. */
export type Match = Pick<RouteRow, 'path' | 'method' | 'headers' | 'query'>;

const EVERYTHING: PathMatch = { kind: 'prefix', path: '/' };
const EVERY_REQUEST: Match = { path: EVERYTHING, method: null, headers: [], query: [] };
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$/;
const SERVICE = /^[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*$/;
const GRPC_METHOD = /^[A-Za-z_][A-Za-z0-9_]*$/;
const LONGEST_VALUE = 4096;
/** As the API's schema. */
const MAX_MATCHES = 128;

/** Reads the matches of a rule of an HTTPRoute; without any it takes every request. */
export function readHttpMatches(matches: readonly unknown[]): readonly Match[] | RuleProblem {
  return readAll(matches, readHttpMatch);
}

/** Reads the matches of a rule of a GRPCRoute: a gRPC method is the path /SERVICE/METHOD. */
export function readGrpcMatches(matches: readonly unknown[]): readonly Match[] | RuleProblem {
  return readAll(matches, readGrpcMatch);
}

function readAll(
  matches: readonly unknown[],
  read: (match: Raw, field: string) => Match | RuleProblem,
): readonly Match[] | RuleProblem {
  if (matches.length === 0) return [EVERY_REQUEST];
  if (matches.length > MAX_MATCHES) return unsupported('matches', `has more than ${MAX_MATCHES} items`);
  const found: Match[] = [];
  for (const [index, item] of matches.entries()) {
    const match = read(record(item), `matches[${index}]`);
    if (isProblem(match)) return match;
    found.push(match);
  }
  return found;
}

function readHttpMatch(match: Raw, field: string): Match | RuleProblem {
  const path = readPath(match['path'], `${field}.path`);
  if (isProblem(path)) return path;
  const method = optionalText(match['method']);
  if (method !== null && !TOKEN.test(method))
    return unsupported(`${field}.method`, `${show(method)} is not a method`);
  const headers = readValues(match['headers'], `${field}.headers`, true);
  if (!Array.isArray(headers)) return headers;
  const query = readValues(match['queryParams'], `${field}.queryParams`, false);
  if (!Array.isArray(query)) return query;
  return { path, method, headers, query };
}

function readPath(value: unknown, field: string): PathMatch | RuleProblem {
  if (value === undefined || value === null) return EVERYTHING;
  const { type = 'PathPrefix', value: given = '/' } = record(value);
  const path = text(given);
  if (type === 'RegularExpression') {
    const problem = regexProblem(path);
    return problem === null ? { kind: 'regex', regex: path } : unsupported(`${field}.value`, problem);
  }
  if (type !== 'Exact' && type !== 'PathPrefix')
    return unsupported(`${field}.type`, `${show(type)} is none of Exact, PathPrefix, RegularExpression`);
  const problem = unreachablePath(path);
  if (problem !== null) return unsupported(`${field}.value`, `${show(given)} matches no request: ${problem}`);
  return type === 'Exact'
    ? { kind: 'exact', path }
    : { kind: 'prefix', path: path.replace(/\/+$/, '') || '/' };
}

/** Reads matches of headers or query parameters. Of several with the same name the first counts, as the API says. */
function readValues(value: unknown, field: string, header: boolean): ValueMatch[] | RuleProblem {
  const found: ValueMatch[] = [];
  for (const [index, item] of list(value).entries()) {
    const { name, type = 'Exact', value: given } = record(item);
    const place = `${field}[${index}]`;
    const key = header ? text(name).toLowerCase() : text(name);
    if (!TOKEN.test(key)) return unsupported(`${place}.name`, `${show(name)} is not a name`);
    const wanted = text(given);
    if (wanted.length > LONGEST_VALUE || /[\x00-\x1f\x7f-\uffff]/.test(wanted))
      return unsupported(`${place}.value`, `${show(given)} is too long, or not printable ASCII`);
    if (type !== 'Exact' && type !== 'RegularExpression')
      return unsupported(`${place}.type`, `${show(type)} is neither Exact nor RegularExpression`);
    const problem = type === 'RegularExpression' ? regexProblem(wanted) : null;
    if (problem !== null) return unsupported(`${place}.value`, problem);
    if (found.some((known) => known.name === key)) continue;
    found.push({ name: key, kind: type === 'Exact' ? 'exact' : 'regex', value: wanted });
  }
  return found;
}

function readGrpcMatch(match: Raw, field: string): Match | RuleProblem {
  const path = readGrpcMethod(match['method'], `${field}.method`);
  if (isProblem(path)) return path;
  const headers = readValues(match['headers'], `${field}.headers`, true);
  return Array.isArray(headers) ? { path, method: null, headers, query: [] } : headers;
}

function readGrpcMethod(value: unknown, field: string): PathMatch | RuleProblem {
  if (value === undefined || value === null) return EVERYTHING;
  const given = record(value);
  const type = given['type'] ?? 'Exact';
  const service = optionalText(given['service']);
  const method = optionalText(given['method']);
  if (service === null && method === null) return EVERYTHING;
  if (type === 'RegularExpression') {
    for (const part of [service, method]) {
      const problem = part === null ? null : regexProblem(part);
      if (problem !== null) return unsupported(field, problem);
    }
    const regex = `/${service === null ? '[^/]+' : `(?:${service})`}/${method === null ? '[^/]+' : `(?:${method})`}`;
    const problem = regexProblem(regex);
    return problem === null ? { kind: 'regex', regex } : unsupported(field, problem);
  }
  if (type !== 'Exact')
    return unsupported(`${field}.type`, `${show(type)} is neither Exact nor RegularExpression`);
  if (service !== null && !SERVICE.test(service))
    return unsupported(`${field}.service`, `${show(service)} is not a gRPC service`);
  if (method !== null && !GRPC_METHOD.test(method))
    return unsupported(`${field}.method`, `${show(method)} is not a gRPC method`);
  if (service === null) return { kind: 'regex', regex: `/[^/]+/${method}` };
  return method === null
    ? { kind: 'prefix', path: `/${service}` }
    : { kind: 'exact', path: `/${service}/${method}` };
}

/** Returns the number of characters of the service and of the method in a match of a GRPCRoute: its precedence. */
export function grpcLengths(match: unknown): readonly [service: number, method: number] {
  const { service, method } = record(record(match)['method']);
  return [text(service).length, text(method).length];
}
