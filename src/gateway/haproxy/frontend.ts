import { HOST_SYNTAX } from '../request-host.ts';
import { LONGEST_PATH, REFUSED_PATHS } from '../request-path.ts';
import type { HttpListener, HttpPort, TlsPort } from '../route-map.ts';
import { type HostMaps, hostMaps, type Resolution } from './host-maps.ts';
import type { PathTable, PathTables } from './path-tables.ts';
import { word } from './quote.ts';
import { NO_ROW } from './section-table.ts';

/** A frontend as text, and its maps by file name. */
export interface Frontend {
  readonly text: string;
  readonly files: ReadonlyMap<string, string>;
}

export interface FrontendOptions {
  /** Unique among all frontends: "f0". */
  readonly name: string;
  /** Arguments of its bind lines. */
  readonly binds: readonly string[];
  readonly port: HttpPort | TlsPort;
  readonly listeners: readonly HttpListener[];
  /** Open connections that one client may have, an IPv6 network of 64 bits as one. */
  readonly perSource: number;
}

/** The value of names without a listener or table; others are numbers. */
const NOTHING = 'none';

type Numbered = Resolution<HttpListener['hosts'][number]>;

/** Returns the frontend of a port for HTTP, whose TLS, if any, ends at its bind lines. */
export function httpFrontend(options: FrontendOptions, tables: PathTables): Frontend {
  const { name, binds, port, listeners, perSource } = options;
  const isTls = port.kind === 'tls';
  const used = new Map<string, PathTable>();
  const hosts = hostMaps(listeners);
  const checksListener = isTls && (listeners.length > 1 || listeners[0]?.hostname !== '');
  const textOf = (found: Numbered | null): string => {
    if (found === null) return '';
    const table = found.table === null ? null : tables.table(found.table.rows);
    if (table) used.set(table.id, table);
    return checksListener ? `${found.listener}.${table?.id ?? ''}` : (table?.id ?? NOTHING);
  };
  const files = new Map<string, string>();
  const target = checksListener ? 'txn.ht' : 'txn.t';
  const host = lookups('var(txn.host)', target, `${name}-host`, hosts, textOf, files);
  const misdirected = checksListener ? misdirectedRules(name, listeners, files) : [];
  const lines = [
    ...binds.map((bind) => `bind ${bind}`),
    'tcp-request connection track-sc0 src,ipmask(32,64) table sources',
    `tcp-request connection reject if { sc0_conn_cur gt ${perSource} }`,
    ...requestChecks,
    'http-request set-var(txn.host) req.hdr(host),host_only,lower',
    'http-request set-var(txn.path) path',
    'http-request set-var(txn.slashed) path,concat(/)',
    ...host,
    ...misdirected,
    'http-request set-var(txn.row) var(txn.t),concat(,txn.path,),map_str(exact.map)',
    'http-request set-var(txn.row) var(txn.t),concat(,txn.path,/),map_beg(prefix.map) unless { var(txn.row) -m found }',
    ...[...used.values()].flatMap(({ rules }) => rules),
    ...forwardedHeaders(port.port, isTls),
    'use_backend %[var(txn.row)]',
    `default_backend ${NO_ROW}`,
  ];
  return { text: [`frontend ${name}`, ...lines.map((line) => `  ${line}`)].join('\n'), files };
}

/** Paths that backends read in different ways are refused before any route; see request-path.ts. */
const requestChecks = [
  `http-request deny status 400 if { path -m reg ${word(Object.values(REFUSED_PATHS).join('|'))} }`,
  `http-request deny status 400 if { path -m len gt ${LONGEST_PATH} }`,
  // HTTP/2 has no form without a host.
  'http-request deny status 400 unless { url -m beg / } or { req.ver 2.0 }',
  'http-request deny status 400 unless { path -m beg / }',
  `http-request deny status 400 unless { req.fhdr(host) -m reg ${word(HOST_SYNTAX)} }`,
];

/** Returns rules that look a name up in the maps, which are written to `files`. */
function lookups(
  fetch: string,
  variable: string,
  file: string,
  maps: HostMaps<HttpListener['hosts'][number]>,
  textOf: (found: Numbered | null) => string,
  files: Map<string, string>,
): string[] {
  const set = `http-request set-var(${variable})`;
  const missing = ` unless { var(${variable}) -m found }`;
  const rules: string[] = [];
  const add = (
    suffix: string,
    entries: HostMaps<never>['exact'] | typeof maps.exact,
    lookup: (path: string) => string,
  ) => {
    if (entries.size === 0) return;
    const path = `${file}-${suffix}.map`;
    const lines = [...entries].map(([key, found]) => `${key} ${textOf(found) || NOTHING}`);
    files.set(path, `${lines.join('\n')}\n`);
    rules.push(`${set} ${fetch},${lookup(path)}${rules.length > 0 ? missing : ''}`);
  };
  add('exact', maps.exact, (path) => `map_str(${path})`);
  add('label', maps.oneLabel, (path) => `field(2,.,0),map_str(${path})`);
  add('suffix', maps.suffixes, (path) => `map_end(${path})`);
  const other = textOf(maps.other);
  if (other !== '') rules.push(`${set} str(${other})${rules.length > 0 ? missing : ''}`);
  return rules;
}

/** A request for a host of another listener than the connection's is refused: its client may try another connection. */
function misdirectedRules(
  name: string,
  listeners: readonly HttpListener[],
  files: Map<string, string>,
): string[] {
  const maps = hostMaps(listeners.map(({ hostname }) => ({ hostname, hosts: [] })));
  const textOf = (found: Resolution<never> | null) => (found === null ? '' : String(found.listener));
  return [
    ...lookups(
      'ssl_fc_sni,lower',
      'txn.sl',
      `${name}-sni`,
      maps,
      textOf as (found: Numbered | null) => string,
      files,
    ),
    'http-request set-var(txn.l) var(txn.ht),field(1,.)',
    'http-request set-var(txn.t) var(txn.ht),field(2,.)',
    `http-request reject unless { var(txn.sl) -m found } !{ var(txn.sl) -m str ${NOTHING} }`,
    `http-request return status 421 if { var(txn.l) -m found } !{ var(txn.l) -m str ${NOTHING} } !{ var(txn.l),strcmp(txn.sl) eq 0 }`,
  ];
}

/** What clients sent of these is dropped, and also what backends may read as the same header (CGI). */
function forwardedHeaders(port: number, isTls: boolean): string[] {
  const scheme = isTls ? 'https' : 'http';
  const portPart = port === (isTls ? 443 : 80) ? '' : `:${port}`;
  return [
    `http-request set-var(txn.scheme) str(${scheme})`,
    ...(portPart === '' ? [] : [`http-request set-var(txn.portpart) str(${portPart})`]),
    `http-request del-header ${word('^(?i)(forwarded|x[^a-z0-9]?(forwarded([^a-z0-9].*)?|real[^a-z0-9]?ip|request[^a-z0-9]?id|original[^a-z0-9].*))$')} -m reg`,
    'http-request set-header X-Forwarded-For %[src]',
    `http-request set-header X-Forwarded-Proto ${scheme}`,
    'http-request set-header X-Forwarded-Host %[req.hdr(host)]',
    `http-request set-header X-Forwarded-Port ${port}`,
    'http-request set-header X-Real-IP %[src]',
    'http-request set-header X-Request-Id %[uuid()]',
  ];
}
