import { readHostname } from './host-pattern.ts';
import { integer, list, optionalText, portNumber, type Raw, record, show, text } from './raw.ts';
import { pathRefusal } from './request-path.ts';
import type { Cors, HeaderChanges, HeaderValue, PathMatch, PathRewrite, RouteAction } from './route-map.ts';
import { isProblem, type RuleProblem, unsupported } from './rule-problem.ts';

export type Redirect = Extract<RouteAction, { kind: 'redirect' }>;

/** The filters of a rule or of a backendRef, as read. Mirrors are resolved by the reader of rules. */
export interface Filters {
  readonly request: HeaderChanges;
  readonly response: HeaderChanges;
  readonly redirect: Redirect | null;
  readonly rewrite: { readonly host: string | null; readonly path: PathRewrite | null } | null;
  readonly cors: Cors | null;
  readonly mirrors: readonly MirrorFilter[];
}

export interface MirrorFilter {
  readonly field: string;
  readonly reference: Raw;
  readonly numerator: number;
  readonly denominator: number;
}

const NOTHING: HeaderChanges = { set: [], add: [], remove: [] };
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$/;
/** Field values of HTTP in ASCII, without white space at their ends. */
const FIELD_VALUE = /^(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?$/;
const LONGEST_VALUE = 4096;
const MAX_CHANGES = 64;
/** Changing these would change where a request ends, or what the connection is. */
const HOP_BY_HOP = [
  'connection',
  'content-length',
  'host',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];
const METHOD = /^(?:\*|[A-Z]{1,32})$/;
const ORIGIN = /^(?:\*|https?:\/\/(?:\*|(?:\*\.)?[A-Za-z0-9.-]{1,253})(?::[0-9]{1,5})?)$/;
const STATUSES = [301, 302, 303, 307, 308] as const;

type Kind = 'rule' | 'backend' | 'grpc-rule';

const ALLOWED: Readonly<Record<Kind, readonly string[]>> = {
  rule: [
    'RequestHeaderModifier',
    'ResponseHeaderModifier',
    'RequestRedirect',
    'URLRewrite',
    'RequestMirror',
    'CORS',
  ],
  'grpc-rule': ['RequestHeaderModifier', 'ResponseHeaderModifier', 'RequestMirror'],
  backend: ['RequestHeaderModifier', 'ResponseHeaderModifier'],
};

/** Reads the filters of a rule. `paths`: what its matches compare paths with, for replacements of prefixes. */
export function readFilters(
  filters: readonly unknown[],
  kind: Kind,
  field: string,
  paths: readonly PathMatch[],
): Filters | RuleProblem {
  const read: { -readonly [K in keyof Filters]: Filters[K] } & { mirrors: MirrorFilter[] } = {
    request: NOTHING,
    response: NOTHING,
    redirect: null,
    rewrite: null,
    cors: null,
    mirrors: [],
  };
  const seen = new Set<string>();
  for (const [index, item] of filters.entries()) {
    const filter = record(item);
    const type = text(filter['type']);
    const place = `${field}[${index}]`;
    if (!ALLOWED[kind].includes(type))
      return unsupported(`${place}.type`, `filter ${show(filter['type'])} is not supported here`);
    if (seen.has(type) && type !== 'RequestMirror')
      return { reason: 'IncompatibleFilters', message: `${place}.type: filter ${type} is there twice` };
    seen.add(type);
    const problem = readFilter(read, type, filter, place, paths);
    if (problem) return problem;
  }
  if (read.redirect && (read.rewrite || read.cors || read.mirrors.length > 0))
    return {
      reason: 'IncompatibleFilters',
      message: `${field}: RequestRedirect excludes URLRewrite, RequestMirror and CORS`,
    };
  // What a redirect answers has the rule's changes of response headers.
  if (read.redirect) read.redirect = { ...read.redirect, response: read.response };
  return read;
}

function readFilter(
  read: { -readonly [K in keyof Filters]: Filters[K] } & { mirrors: MirrorFilter[] },
  type: string,
  filter: Raw,
  place: string,
  paths: readonly PathMatch[],
): RuleProblem | null {
  switch (type) {
    case 'RequestHeaderModifier':
    case 'ResponseHeaderModifier': {
      const request = type === 'RequestHeaderModifier';
      const name = request ? 'requestHeaderModifier' : 'responseHeaderModifier';
      const changes = readChanges(record(filter[name]), `${place}.${name}`);
      if (isProblem(changes)) return changes;
      if (request) read.request = changes;
      else read.response = changes;
      return null;
    }
    case 'RequestRedirect': {
      const redirect = readRedirect(record(filter['requestRedirect']), `${place}.requestRedirect`, paths);
      if (isProblem(redirect)) return redirect;
      read.redirect = redirect;
      return null;
    }
    case 'URLRewrite': {
      const value = record(filter['urlRewrite']);
      const host = readHost(value['hostname'], `${place}.urlRewrite.hostname`);
      const path = readPathModifier(value['path'], `${place}.urlRewrite.path`, paths);
      if (typeof host === 'object' && host !== null) return host;
      if (path !== null && isProblem(path)) return path;
      read.rewrite = { host, path };
      return null;
    }
    case 'RequestMirror': {
      const mirror = readMirror(record(filter['requestMirror']), `${place}.requestMirror`);
      if (isProblem(mirror)) return mirror;
      read.mirrors.push(mirror);
      return null;
    }
    default: {
      const cors = readCors(record(filter['cors']), `${place}.cors`);
      if (isProblem(cors)) return cors;
      read.cors = cors;
      return null;
    }
  }
}

function readChanges(value: Raw, field: string): HeaderChanges | RuleProblem {
  const values = (name: string): HeaderValue[] | RuleProblem => {
    const found: HeaderValue[] = [];
    for (const [index, item] of list(value[name]).entries()) {
      const header = record(item);
      const key = text(header['name']).toLowerCase();
      const given = text(header['value']);
      const problem =
        headerProblem(key) ??
        (FIELD_VALUE.test(given) && given.length <= LONGEST_VALUE
          ? null
          : `${show(given)} is not a value of a header`);
      if (problem !== null) return unsupported(`${field}.${name}[${index}]`, problem);
      // Of several with the same name the first counts.
      if (!found.some((known) => known.name === key)) found.push({ name: key, value: given });
    }
    return found;
  };
  const set = values('set');
  if (!Array.isArray(set)) return set;
  const add = values('add');
  if (!Array.isArray(add)) return add;
  const remove: string[] = [];
  for (const [index, item] of list(value['remove']).entries()) {
    const name = text(item).toLowerCase();
    const problem = headerProblem(name);
    if (problem !== null) return unsupported(`${field}.remove[${index}]`, problem);
    remove.push(name);
  }
  if (set.length + add.length + remove.length > MAX_CHANGES)
    return unsupported(field, `changes more than ${MAX_CHANGES} headers`);
  return { set, add, remove };
}

function headerProblem(name: string): string | null {
  if (!TOKEN.test(name)) return `${show(name)} is not the name of a header`;
  return HOP_BY_HOP.includes(name) ? `header ${name} cannot be changed` : null;
}

function readRedirect(value: Raw, field: string, paths: readonly PathMatch[]): Redirect | RuleProblem {
  const scheme = value['scheme'] ?? null;
  if (scheme !== null && scheme !== 'http' && scheme !== 'https')
    return unsupported(`${field}.scheme`, `${show(scheme)} is neither http nor https`);
  const host = readHost(value['hostname'], `${field}.hostname`);
  if (typeof host === 'object' && host !== null) return host;
  const path = readPathModifier(value['path'], `${field}.path`, paths);
  if (path !== null && isProblem(path)) return path;
  const port = value['port'] === undefined || value['port'] === null ? null : portNumber(value['port']);
  if (port === null && value['port'] !== undefined && value['port'] !== null)
    return unsupported(`${field}.port`, `${show(value['port'])} is not a port number`);
  const status = STATUSES.find((known) => known === (value['statusCode'] ?? 302));
  if (status === undefined)
    return unsupported(
      `${field}.statusCode`,
      `${show(value['statusCode'])} is none of ${STATUSES.join(', ')}`,
    );
  return { kind: 'redirect', scheme, host, port, path, status, response: NOTHING };
}

function readHost(value: unknown, field: string): string | null | RuleProblem {
  if (value === undefined || value === null) return null;
  const host = readHostname(text(value));
  return host === null || host.startsWith('*')
    ? unsupported(field, `${show(value)} is not a DNS name`)
    : host;
}

function readPathModifier(
  value: unknown,
  field: string,
  paths: readonly PathMatch[],
): PathRewrite | null | RuleProblem {
  if (value === undefined || value === null) return null;
  const modifier = record(value);
  const full = modifier['type'] === 'ReplaceFullPath';
  if (!full && modifier['type'] !== 'ReplacePrefixMatch')
    return unsupported(
      `${field}.type`,
      `${show(modifier['type'])} is neither ReplaceFullPath nor ReplacePrefixMatch`,
    );
  const name = full ? 'replaceFullPath' : 'replacePrefixMatch';
  const path = text(modifier[name]);
  const made = path === '' ? '/' : path;
  const problem = made.startsWith('/') ? pathRefusal(made) : pathRefusal(`/${made}`);
  if (problem !== null || made.includes('?'))
    return unsupported(`${field}.${name}`, `${show(path)} is not a path: it ${problem ?? 'has a "?"'}`);
  if (!full && !paths.every(({ kind }) => kind === 'prefix'))
    return unsupported(`${field}.type`, 'ReplacePrefixMatch needs matches of type PathPrefix only');
  return { kind: full ? 'full' : 'prefix', path: made.startsWith('/') ? made : `/${made}` };
}

function readMirror(value: Raw, field: string): MirrorFilter | RuleProblem {
  const reference = record(value['backendRef']);
  const { percent, fraction } = value;
  if (fraction !== undefined && fraction !== null) {
    const denominator =
      record(fraction)['denominator'] === undefined
        ? 100
        : integer(record(fraction)['denominator'], 1, 1_000_000_000);
    const numerator = integer(record(fraction)['numerator'], 0, denominator ?? 0);
    return denominator === null || numerator === null
      ? unsupported(`${field}.fraction`, 'is not a share of at most 1')
      : { field, reference, numerator, denominator };
  }
  const share = percent === undefined || percent === null ? 100 : integer(percent, 0, 100);
  return share === null
    ? unsupported(`${field}.percent`, `${show(percent)} is not a whole number from 0 to 100`)
    : { field, reference, numerator: share, denominator: 100 };
}

function readCors(value: Raw, field: string): Cors | RuleProblem {
  const items = (name: string, pattern: RegExp): string[] | RuleProblem => {
    const found: string[] = [];
    for (const [index, item] of list(value[name]).entries()) {
      if (!pattern.test(text(item)) || index >= MAX_CHANGES)
        return unsupported(`${field}.${name}[${index}]`, `${show(item)} is not possible there`);
      found.push(text(item));
    }
    return found;
  };
  const origins = items('allowOrigins', ORIGIN);
  const methods = items('allowMethods', METHOD);
  const headers = items('allowHeaders', TOKEN);
  const exposed = items('exposeHeaders', TOKEN);
  for (const read of [origins, methods, headers, exposed]) if (!Array.isArray(read)) return read;
  const maxAge =
    value['maxAge'] === undefined || value['maxAge'] === null ? 5 : integer(value['maxAge'], 1, 2 ** 31 - 1);
  if (maxAge === null)
    return unsupported(`${field}.maxAge`, `${show(value['maxAge'])} is not a number of seconds`);
  const credentials = value['allowCredentials'] === true;
  const names = (read: string[] | RuleProblem) => (Array.isArray(read) ? read : []);
  return {
    origins: names(origins),
    methods: names(methods),
    headers: names(headers),
    // "*" exposes nothing more to requests with credentials.
    exposed: credentials ? names(exposed).filter((name) => name !== '*') : names(exposed),
    credentials,
    maxAge,
  };
}

/** Returns the name of a session's cookie, or null. */
export const cookieName = (value: unknown): string | null =>
  optionalText(value) !== null && /^[A-Za-z0-9_.-]{1,128}$/.test(text(value)) ? text(value) : null;
