import type {
  Cors,
  Forward,
  HeaderChanges,
  PathMatch,
  PathRewrite,
  RouteAction,
  WeightedBackend,
} from '../route-map.ts';
import { format, headerName, hex, literal, path, wholeRegex, word } from './quote.ts';

/** Statuses on which HAProxy 2.6 can send a request again. */
const RETRIED = new Set([401, 404, 408, 425, 500, 501, 502, 503, 504]);

/** Returns the rules of one action for requests of one path, without servers. Throws FairleadError "bad-argument". */
export function actionLines(action: RouteAction, match: PathMatch, chosen: WeightedBackend | null): string[] {
  switch (action.kind) {
    case 'error':
      return [
        `http-request return status ${action.status} content-type text/plain string ${word(`${action.status}: ${errorText(action.status)}`)}`,
      ];
    case 'redirect':
      return redirectLines(action, match);
    case 'forward':
      return forwardLines(action, match, chosen);
  }
}

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

function forwardLines(action: Forward, match: PathMatch, chosen: WeightedBackend | null): string[] {
  const { timeouts, retry, affinity, bodyLimit, sources, cors, rewrite } = action;
  const limits = [timeouts.request, timeouts.backend].filter((value) => value !== null);
  const lines = ['balance random'];
  if (limits.length > 0) lines.push(`timeout server ${Math.min(...limits)}ms`);
  if (timeouts.connect !== null) lines.push(`timeout connect ${timeouts.connect}ms`);
  if (retry !== null) {
    const statuses = retry.statuses.filter((status) => RETRIED.has(status));
    lines.push(`retries ${retry.attempts}`, `retry-on conn-failure ${statuses.join(' ')}`.trimEnd());
    if (statuses.length > 0) lines.push('option http-buffer-request');
  }
  if (affinity !== null) {
    const life = affinity.lifetime === null ? '' : ` maxlife ${affinity.lifetime}s`;
    lines.push(
      `cookie ${headerName(affinity.cookie)} insert indirect nocache httponly dynamic${life}`,
      'dynamic-cookie-key fairlead',
    );
  }
  if (sources.length > 0) lines.push(`http-request deny status 403 unless { src ${sources.map(cidr).join(' ')} }`);
  if (bodyLimit !== null) lines.push(`http-request deny status 413 if { req.body_size gt ${bodyLimit} }`);
  if (cors !== null) lines.push(...corsLines(cors));
  lines.push(...rewriteLines(rewrite?.path ?? null, match));
  if (rewrite?.host) lines.push(`http-request set-header Host ${format(literal(rewrite.host))}`);
  lines.push(...changeLines('http-request', action.request));
  if (chosen) lines.push(...changeLines('http-request', chosen.request));
  if (chosen) lines.push(...changeLines('http-response', chosen.response));
  lines.push(...changeLines('http-response', action.response));
  return lines;
}

function cidr(text: string): string {
  return word(text);
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
  if (rewrite.kind === 'full') return [`http-request set-path ${format(literal(path(rewrite.path)))}`];
  if (rewrite.kind === 'captures') {
    if (match.kind !== 'regex') return [`http-request set-path ${format(literal(path(rewrite.path)))}`];
    // The path of a request has no backslash or percent sign that the replacement could read.
    const parts = path(rewrite.path).split(/(\$[0-9])/);
    const replaced = parts.map((part) =>
      /^\$[0-9]$/.test(part) ? `\\\\${part.slice(1)}` : literal(part),
    );
    return [`http-request replace-path ${wholeRegex(match.regex)} ${format(...replaced)}`];
  }
  const prefix = match.kind === 'prefix' ? match.path.replace(/\/+$/, '') : '';
  const fresh = path(rewrite.path).replace(/\/+$/, '');
  const rest = `path,bytes(${Buffer.byteLength(prefix)})`;
  return [
    `http-request set-var(txn.rest) ${rest}`,
    `http-request set-path ${fresh === '' ? '/' : format(literal(fresh))} unless { var(txn.rest) -m found } { var(txn.rest) -m len gt 0 }`,
    `http-request set-path ${format(literal(fresh), '%[var(txn.rest)]')} if { var(txn.rest) -m found } { var(txn.rest) -m len gt 0 }`,
  ];
}

/** Returns the answer to preflight requests of allowed origins, and the headers of the answers to others. */
function corsLines({ origins, methods, headers, exposed, credentials, maxAge }: Cors): string[] {
  const allowed = origins.includes('*')
    ? '{ req.hdr(origin) -m found }'
    : `{ var(txn.cors) -m str yes }`;
  const wildcards = origins.filter((origin) => origin !== '*' && origin.includes('*'));
  const exact = origins.filter((origin) => !origin.includes('*'));
  const checks = [
    ...(exact.length > 0 ? [`{ req.hdr(origin),lower,hex -m str ${exact.map((one) => hex(one.toLowerCase())).join(' ')} }`] : []),
    ...wildcards.map((one) => {
      const regex = one.toLowerCase().replace(/[.*+?^${}()|[\]\\]/g, (char) => (char === '*' ? '.+' : `\\${char}`));
      return `{ req.hdr(origin),lower -m reg ${wholeRegex(regex)} }`;
    }),
  ];
  const methodsText = methods.includes('*') ? '%[var(txn.corsmethod)]' : literal(methods.join(', '));
  const headersText = headers.includes('*') ? '%[var(txn.corsheaders)]' : literal(headers.join(', '));
  const origin = origins.includes('*') && !credentials ? '*' : '%[var(txn.origin)]';
  const more = credentials ? ' hdr Access-Control-Allow-Credentials true' : '';
  return [
    'http-request set-var(txn.origin) req.hdr(origin)',
    'http-request set-var(txn.corsmethod) req.hdr(access-control-request-method)',
    'http-request set-var(txn.corsheaders) req.hdr(access-control-request-headers)',
    ...(origins.includes('*') ? [] : checks.map((check) => `http-request set-var(txn.cors) str(yes) if ${check}`)),
    `http-request return status 204 hdr Access-Control-Allow-Origin ${format(origin)} hdr Access-Control-Allow-Methods ${format(methodsText)} hdr Access-Control-Allow-Headers ${format(headersText)} hdr Access-Control-Max-Age ${format(String(maxAge))}${more} if METH_OPTIONS { var(txn.corsmethod) -m found } ${allowed}`,
    'http-request return status 204 if METH_OPTIONS { var(txn.corsmethod) -m found } { req.hdr(origin) -m found }',
    `http-response set-header Access-Control-Allow-Origin ${format(origin)} if { var(txn.origin) -m found }${origins.includes('*') ? '' : ' { var(txn.cors) -m str yes }'}`,
    ...(credentials
      ? [`http-response set-header Access-Control-Allow-Credentials true if { var(txn.origin) -m found }${origins.includes('*') ? '' : ' { var(txn.cors) -m str yes }'}`]
      : []),
    ...(exposed.length > 0
      ? [`http-response set-header Access-Control-Expose-Headers ${format(literal(exposed.join(', ')))} if { var(txn.origin) -m found }${origins.includes('*') ? '' : ' { var(txn.cors) -m str yes }'}`]
      : []),
  ];
}
