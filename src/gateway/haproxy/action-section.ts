import type {
  Cors,
  Forward,
  HeaderChanges,
  PathMatch,
  PathRewrite,
  RouteAction,
  WeightedBackend,
} from '../route-map.ts';
import { format, headerName, hex, literal, path, pattern, regexText, wholeRegex, word } from './quote.ts';

/** Statuses on which HAProxy 2.6 can send a request again. */
const RETRIED = new Set([401, 404, 408, 425, 500, 501, 502, 503, 504]);
/** HAProxy's longest time, in milliseconds (24 days): it refuses longer ones with the whole configuration. */
const LONGEST = 2_147_483_000;
/** Of a line's 64 words. */
const SOURCES_OF_A_LINE = 50;

/**
 * Returns the rules of one action for requests of one path, without servers. `chosen`: the backend of this section; null: the
 * action has none. Throws FairleadError "bad-argument".
 */
export function actionLines(action: RouteAction, match: PathMatch, chosen: WeightedBackend | null): string[] {
  switch (action.kind) {
    case 'error':
      return [answerLine(action.status)];
    case 'redirect':
      return redirectLines(action, match);
    case 'forward':
      // Clients of gRPC take 503 as UNAVAILABLE, which says more than their UNKNOWN for 500.
      return chosen?.backend == null
        ? [...admissionLines(action), answerLine(action.protocol === 'grpc' ? 503 : 500)]
        : forwardLines(action, match, chosen);
  }
}

const answerLine = (status: number): string =>
  `http-request return status ${status} content-type text/plain string ${word(`${status}: ${errorText(status)}`)}`;

/** The reason is for the owner of the route, not for its clients. */
function errorText(status: number): string {
  if (status === 404) return 'no route takes this request';
  if (status === 500) return 'the route of this request has no backend that may be used';
  return status === 503 ? 'no endpoint is ready' : 'the gateway refuses this request';
}

function redirectLines(action: Extract<RouteAction, { kind: 'redirect' }>, match: PathMatch): string[] {
  const host = action.host === null ? '%[var(txn.host)]' : literal(action.host);
  const rewrite = rewriteLines(action.path, match);
  const target = '%[path]%[var(txn.qs)]';
  const line = (scheme: string, port: string, condition = '') =>
    `http-request redirect code ${action.status} location ${format(`${scheme}://`, host, port, target)}${condition}`;
  const portText = (scheme: 'http' | 'https', port: number) =>
    port === (scheme === 'http' ? 80 : 443) ? '' : `:${port}`;
  const own = { http: 80, https: 443 } as const;
  const lines: string[] = [];
  if (action.scheme !== null)
    lines.push(line(action.scheme, portText(action.scheme, action.port ?? own[action.scheme])));
  else if (action.port === null) lines.push(line('%[var(txn.scheme)]', '%[var(txn.portpart)]'));
  else {
    lines.push(
      line('https', portText('https', action.port), ' if { var(txn.scheme) -m str https }'),
      line('http', portText('http', action.port)),
    );
  }
  return [
    'http-request set-var-fmt(txn.qs) "?%[query]" if { query -m found }',
    ...rewrite,
    ...changeLines('http-after-response', action.response),
    ...lines,
  ];
}

function forwardLines(action: Forward, match: PathMatch, chosen: WeightedBackend): string[] {
  const { timeouts, retry, affinity, rewrite } = action;
  const limits = [timeouts.request, timeouts.backend].filter((value) => value !== null);
  const lines = ['balance random'];
  if (limits.length > 0) lines.push(`timeout server ${Math.min(...limits, LONGEST)}ms`);
  if (timeouts.connect !== null) lines.push(`timeout connect ${Math.min(timeouts.connect, LONGEST)}ms`);
  if (retry !== null) {
    const statuses = retry.statuses.filter((status) => RETRIED.has(status));
    lines.push(`retries ${retry.attempts}`, `retry-on conn-failure ${statuses.join(' ')}`.trimEnd());
    if (statuses.length > 0) lines.push('option http-buffer-request');
  }
  if (affinity !== null) {
    const life = affinity.lifetime === null ? '' : ` maxlife ${Math.min(affinity.lifetime, LONGEST / 1000)}s`;
    lines.push(
      `cookie ${headerName(affinity.cookie)} insert indirect nocache httponly dynamic${life}`,
      'dynamic-cookie-key fairlead',
    );
  }
  lines.push(...admissionLines(action));
  lines.push(...rewriteLines(rewrite?.path ?? null, match));
  if (rewrite?.host) lines.push(`http-request set-header Host ${format(literal(rewrite.host))}`);
  lines.push(...changeLines('http-request', action.request));
  lines.push(...changeLines('http-request', chosen.request));
  lines.push(...changeLines('http-response', chosen.response));
  lines.push(...changeLines('http-response', action.response));
  return lines;
}

/** Returns the rules that refuse or answer a request before any backend. */
function admissionLines({ sources, cors, bodyLimit }: Forward): string[] {
  return [
    // Lines with the same name are alternatives.
    ...Array.from(
      { length: Math.ceil(sources.length / SOURCES_OF_A_LINE) },
      (_, i) =>
        `acl source src ${sources
          .slice(i * SOURCES_OF_A_LINE, (i + 1) * SOURCES_OF_A_LINE)
          .map(word)
          .join(' ')}`,
    ),
    ...(sources.length > 0 ? ['http-request deny status 403 unless source'] : []),
    ...(cors === null ? [] : corsLines(cors)),
    ...(bodyLimit === null ? [] : [`http-request deny status 413 if { req.body_size gt ${bodyLimit} }`]),
  ];
}

function changeLines(
  rule: 'http-request' | 'http-response' | 'http-after-response',
  { set, add, remove }: HeaderChanges,
): string[] {
  return [
    ...remove.map((name) => `${rule} del-header ${headerName(name)}`),
    ...set.map(({ name, value }) => `${rule} set-header ${headerName(name)} ${format(literal(value))}`),
    ...add.map(({ name, value }) => `${rule} add-header ${headerName(name)} ${format(literal(value))}`),
  ];
}

/** Returns the rules that change the path; the query stays. */
function rewriteLines(rewrite: PathRewrite | null, match: PathMatch): string[] {
  if (rewrite === null) return [];
  if (rewrite.kind === 'full') return [setPath(rewrite.path)];
  if (rewrite.kind === 'captures') {
    const rooted = rewrite.path.startsWith('/')
      ? []
      : ['http-request set-path "/%[path]" unless { path -m beg / }'];
    if (match.kind !== 'regex') return [setPath(rewrite.path.replace(/\$[1-9]/g, '')), ...rooted];
    // The path of a request has no backslash that the replacement could read.
    const parts = path(rewrite.path).split(/(\$[1-9])/);
    const replaced = parts.map((part) => (/^\$[1-9]$/.test(part) ? `\\\\${part.slice(1)}` : literal(part)));
    return [`http-request replace-path ${wholeRegex(match.regex)} ${format(...replaced)}`, ...rooted];
  }
  const fresh = rewrite.path.replace(/\/$/, '');
  if (match.kind !== 'prefix') return [setPath(fresh)];
  const prefix = match.path === '/' ? '' : match.path;
  const hasRest = '{ var(txn.rest) -m found } { var(txn.rest) -m len gt 0 }';
  return [
    `http-request set-var(txn.rest) path,bytes(${Buffer.byteLength(prefix)})`,
    `${setPath(fresh)} unless ${hasRest}`,
    `http-request set-path ${format(literal(path(fresh)), '%[var(txn.rest)]')} if ${hasRest}`,
  ];
}

const setPath = (text: string): string =>
  `http-request set-path ${format(text === '' ? '/' : literal(path(text)))}`;

/** Returns the answer to preflight requests, and the headers of the answers to others; see cors.ts. */
function corsLines({ origins, methods, headers, exposed, credentials, maxAge }: Cors): string[] {
  const isAllowed = '{ var(txn.cors) -m found }';
  const isPreflight = 'METH_OPTIONS { var(txn.origin) -m found } { var(txn.corsmethod) -m found }';
  const origin = origins.includes('*') && !credentials ? '*' : '%[var(txn.origin)]';
  const every = (list: readonly string[], requested: string) => {
    if (!list.includes('*')) return literal(list.join(', '));
    return credentials ? `%[var(${requested})]` : '*';
  };
  const common: [string, string][] = [['access-control-allow-origin', origin]];
  if (credentials) common.push(['access-control-allow-credentials', 'true']);
  if (exposed.length > 0) common.push(['access-control-expose-headers', literal(exposed.join(', '))]);
  const preflight: [string, string][] = [
    ...common,
    ['access-control-allow-methods', every(methods, 'txn.corsmethod')],
    ['access-control-allow-headers', every(headers, 'txn.corsheaders')],
    ['access-control-max-age', String(maxAge)],
  ];
  const given = preflight
    .filter(([, value]) => value !== '')
    .map(([name, value]) => `hdr ${name} ${format(value)}`);
  return [
    'http-request set-var(txn.origin) req.fhdr(origin,1)',
    'http-request set-var(txn.plain) var(txn.origin),lower,regsub(:80$,) if { req.fhdr(origin,1) -m beg -i http: }',
    'http-request set-var(txn.plain) var(txn.origin),lower,regsub(:443$,) unless { var(txn.plain) -m found }',
    'http-request set-var(txn.corsmethod) req.fhdr(access-control-request-method,1)',
    'http-request set-var(txn.corsheaders) req.fhdr(access-control-request-headers,1)',
    ...origins.map((one) => `http-request set-var(txn.cors) str(yes) if ${originCondition(one)}`),
    `http-request return status 200 ${given.join(' ')} if ${isPreflight} ${isAllowed}`,
    `http-request return status 200 if ${isPreflight}`,
    ...common.map(
      ([name, value]) => `http-after-response set-header ${name} ${format(value)} if ${isAllowed}`,
    ),
  ];
}

function originCondition(origin: string): string {
  if (origin === '*') return '{ var(txn.origin) -m found }';
  const lower = origin.toLowerCase();
  const plain = lower.startsWith('http:') ? lower.replace(/:80$/, '') : lower.replace(/:443$/, '');
  const star = plain.indexOf('*');
  if (star < 0) return `{ var(txn.plain),hex -m str ${hex(plain)} }`;
  const [before, after] = [plain.slice(0, star), plain.slice(star + 1)].map(regexText);
  return `{ var(txn.plain) -m reg ${pattern('^', before ?? '', '[a-z0-9.-]+', after ?? '', '$')} }`;
}
