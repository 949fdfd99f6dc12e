import { createHash } from 'node:crypto';
import type { HttpListener, PortPlan, Termination, TlsPort } from '../route-map.ts';
import { httpFrontend } from './frontend.ts';
import { createPathTables } from './path-tables.ts';
import type { ProxySettings, RenderInput, Rendering, Section } from './rendering.ts';
import { authorityFile, certificateFile, createSectionTable, NO_ROW } from './section-table.ts';

/** Name of the file of the certificate for names that no other has. */
const FALLBACK_FILE = 'certificate-fallback.pem';

/**
 * Renders the gateways of a map as HAProxy's configuration. Rows in `excluded` are answered with 500. Pure: equal inputs give
 * equal texts.
 */
export function render(input: RenderInput, excluded: ReadonlySet<string> = new Set()): Rendering {
  const { routeMap, certificates, authorities, fallbackCertificate } = input;
  const sections = createSectionTable(routeMap, excluded);
  const tables = createPathTables(sections);
  const files = new Map<string, string>();
  const texts: string[] = [];
  for (const gateway of routeMap.gateways) {
    for (const port of gateway.ports) {
      const binds = input.binds(gateway.key, port.port);
      if (binds.length === 0) continue;
      const text = portText(input, { name: `f${texts.length}`, port, binds }, tables, files);
      if (text !== null) texts.push(text);
    }
  }
  files.set('exact.map', lines(tables.exact));
  files.set('prefix.map', lines(tables.prefix));
  for (const [key, pem] of certificates) files.set(certificateFile(key), pem);
  files.set(FALLBACK_FILE, fallbackCertificate);
  // A file that is missing or empty would make HAProxy refuse everything: nothing is signed by the one instead.
  const addAuthorities = (keys: readonly string[]) =>
    files.set(
      authorityFile(keys),
      keys.flatMap((key) => authorities.get(key) ?? []).join('\n') || fallbackCertificate,
    );
  for (const { tls } of routeMap.backends) {
    if (tls === null) continue;
    if (tls.authorities.length > 0) addAuthorities(tls.authorities);
    if (tls.certificate !== null && !certificates.has(tls.certificate))
      files.set(certificateFile(tls.certificate), fallbackCertificate);
  }
  for (const { ports } of routeMap.gateways)
    for (const port of ports)
      for (const one of port.kind === 'tls' ? port.listeners : [])
        if (one.kind === 'https' && one.tls.clients) addAuthorities(one.tls.clients.authorities);
  const none: Section = {
    name: NO_ROW,
    lines: [
      "http-request return status 404 content-type text/plain string '404: no route takes this request'",
    ],
    backend: null,
    serverWords: '',
  };
  const refused = [...sections.refused, ...tables.refused].sort((a, b) => (a.id < b.id ? -1 : 1));
  return {
    head: [globalText(input.settings), DEFAULTS, SOURCES, ...texts].join('\n\n'),
    sections: [none, ...sections.sections],
    files,
    refused,
    rowsOf: sections.rowsOf,
  };
}

const lines = (entries: readonly string[]): string => entries.map((entry) => `${entry}\n`).join('');

function portText(
  input: RenderInput,
  {
    name,
    port,
    binds,
  }: { readonly name: string; readonly port: PortPlan; readonly binds: readonly string[] },
  tables: ReturnType<typeof createPathTables>,
  files: Map<string, string>,
): string | null {
  const perSource = sourceConnections(input.settings.maxConnections);
  const add = (frontend: ReturnType<typeof httpFrontend>) => {
    for (const [file, text] of frontend.files) files.set(file, text);
    return frontend.text;
  };
  if (port.kind === 'http')
    return add(httpFrontend({ name, binds, port, listeners: port.listeners, perSource }, tables));
  if (port.kind !== 'tls') return null;
  const listeners = port.listeners.filter((one) => one.kind === 'https');
  if (listeners.length === 0) return null;
  files.set(`${name}.crt-list`, lines(certificateLines(listeners, input)));
  const secure = binds.map((bind) => `${bind} ssl crt-list ${name}.crt-list alpn h2,http/1.1${strict(port)}`);
  return add(httpFrontend({ name, binds: secure, port, listeners, perSource }, tables));
}

/** Without a listener for all names, connections for others end in their handshake; a wildcard here has one label only. */
function strict({ listeners }: TlsPort): string {
  return listeners.every(({ hostname }) => hostname !== '' && !hostname.startsWith('*')) ? ' strict-sni' : '';
}

/** Returns the lines of a crt-list: the first is for connections without a name. */
function certificateLines(
  listeners: readonly (HttpListener & { readonly tls: Termination })[],
  { certificates }: RenderInput,
): string[] {
  const inOrder = [...listeners].sort((a, b) => Number(a.hostname !== '') - Number(b.hostname !== ''));
  return inOrder.flatMap(({ hostname, tls }) => {
    const words = [`ssl-min-ver TLSv${tls.minVersion}`, 'alpn h2,http/1.1'];
    if (tls.clients) {
      words.push(
        `ca-file ${authorityFile(tls.clients.authorities)}`,
        `verify ${tls.clients.optional ? 'optional' : 'required'}`,
      );
    }
    return tls.certificates.map((key, i) => {
      const file = certificates.has(key) ? certificateFile(key) : FALLBACK_FILE;
      // Further certificates are for the names that they have.
      const names = hostname !== '' && i === 0 ? ` ${hostname}` : '';
      return `${file} [${words.join(' ')}]${names}`;
    });
  });
}

function globalText({ threads, maxConnections, user, chroot }: ProxySettings): string {
  return [
    'global',
    `nbthread ${threads}`,
    `maxconn ${maxConnections}`,
    'no strict-limits',
    'hard-stop-after 15m',
    ...(user ? [`uid ${user.uid}`, `gid ${user.gid}`] : []),
    ...(chroot === null ? [] : [`chroot ${chroot}`]),
    'stats socket unix@admin.sock mode 600 level admin expose-fd listeners',
    'stats timeout 1h',
    'ssl-default-bind-options ssl-min-ver TLSv1.2',
    'ssl-default-bind-ciphers ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL',
    'tune.ssl.default-dh-param 2048',
    'tune.h2.max-concurrent-streams 100',
    'tune.bufsize 16384',
    'tune.http.maxhdr 101',
  ].join('\n  ');
}

/** The open connections of each client, of all frontends together. */
const SOURCES = ['backend sources', 'stick-table type ipv6 size 50k expire 60s store conn_cur'].join('\n  ');

/** One client's share of all connections, so that it cannot keep others out. */
const sourceConnections = (maxConnections: number): number => Math.max(50, Math.floor(maxConnections / 4));

const DEFAULTS = [
  'defaults',
  'mode http',
  'timeout connect 5s',
  'timeout http-request 10s',
  'timeout http-keep-alive 60s',
  // Of a request's body and of an answer that the client does not read.
  'timeout client 5m',
  'timeout client-fin 10s',
  'timeout server 1h',
  'timeout tunnel 24h',
  'timeout queue 5s',
  'retries 3',
  'retry-on conn-failure',
  'option redispatch 1',
  'option dontlognull',
].join('\n  ');

/** Returns a short text that differs for different configurations. */
export function digestOf(files: ReadonlyMap<string, string>): string {
  const hash = createHash('sha256');
  for (const [name, text] of [...files].sort(([a], [b]) => (a < b ? -1 : 1)))
    hash.update(`${name}\0${text}\0`);
  return hash.digest('hex').slice(0, 16);
}
