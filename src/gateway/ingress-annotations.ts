import { NGINX_PREFIX } from '../kube/ingress-warnings.ts';
import { parseCidr } from '../lib/address.ts';
import { annotation } from './identity.ts';
import type { GatewayObject } from './objects.ts';
import { show } from './raw.ts';
import { regexProblem } from './regex.ts';
import type { Cors, ValueMatch } from './route-map.ts';

/**
 * Reads the annotations of ingress-nginx that are applied. A value that cannot be read becomes a problem; if the
 * annotation restricts who may do what, the Ingress's requests are refused until it is corrected.
 */
export interface IngressSettings {
  readonly rewriteTarget: string | null;
  readonly useRegex: boolean;
  readonly sslRedirect: boolean;
  readonly forceSslRedirect: boolean;
  readonly appRoot: string | null;
  readonly protocol: 'http1' | 'https' | 'h2c' | 'grpcs';
  readonly bodyLimit: number | null;
  readonly connectTimeout: number | null;
  readonly backendTimeout: number | null;
  readonly sources: readonly string[];
  readonly cors: Cors | null;
  readonly canary: Canary | null;
  /** A restriction that cannot be read: why all requests are refused. */
  readonly refusal: string | null;
}

export interface Canary {
  /** Share of requests for the canary: weight of total. */
  readonly weight: number;
  readonly total: number;
  readonly header: string | null;
  /** Header values for the canary; null: "always" is for it, "never" for the other. */
  readonly value: Pick<ValueMatch, 'kind' | 'value'> | null;
}

export interface AnnotationProblem {
  readonly annotation: string;
  readonly problem: string;
}

const PROTOCOLS: Readonly<Record<string, IngressSettings['protocol']>> = {
  HTTP: 'http1',
  AUTO_HTTP: 'http1',
  HTTPS: 'https',
  GRPC: 'h2c',
  GRPCS: 'grpcs',
};
const MAX_SECONDS = 86_400;
const MAX_BODY = 2 ** 40;
const MAX_ITEMS = 256;
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$/;
const ORIGIN = /^(?:\*|https?:\/\/(?:\*\.)?[a-zA-Z0-9.-]{1,253}(?::[0-9]{1,5})?)$/;
const PATH = /^\/[\x21-\x7e]{0,1023}$/;
const DEFAULT_CORS_HEADERS =
  'DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization';

interface Reader {
  text(name: string): string | null;
  flag(name: string, absent: boolean): boolean;
  whole(name: string, most: number): number | null;
  /** Items of a list with commas; null if the annotation is absent or one of them is refused. */
  items(name: string, accepts: (item: string) => boolean, what: string): readonly string[] | null;
  report(name: string, problem: string): null;
}

/** Reads the annotations of one Ingress. */
export function readIngressSettings(
  object: GatewayObject,
  report: (problem: AnnotationProblem) => void,
): IngressSettings {
  const read = createReader(object, report);
  const rewriteTarget = read.text('rewrite-target');
  const appRoot = read.text('app-root');
  const protocol = read.text('backend-protocol')?.toUpperCase() ?? 'HTTP';
  const known = Object.hasOwn(PROTOCOLS, protocol) ? PROTOCOLS[protocol] : undefined;
  if (!known) read.report('backend-protocol', `${show(protocol)} is none of HTTP, HTTPS, GRPC and GRPCS`);
  const sources = readSources(read);
  const seconds = (name: string) => {
    const value = read.whole(name, MAX_SECONDS);
    return value === null ? null : value * 1000;
  };
  const timeouts = [seconds('proxy-read-timeout'), seconds('proxy-send-timeout')].filter((ms) => ms !== null);
  return {
    rewriteTarget: acceptPath(rewriteTarget, 'rewrite-target', read),
    useRegex: read.flag('use-regex', false),
    sslRedirect: read.flag('ssl-redirect', false),
    forceSslRedirect: read.flag('force-ssl-redirect', false),
    appRoot: acceptPath(appRoot, 'app-root', read),
    protocol: known ?? 'http1',
    bodyLimit: readBodyLimit(read),
    connectTimeout: seconds('proxy-connect-timeout'),
    backendTimeout: timeouts.length === 0 ? null : Math.max(...timeouts),
    sources: sources ?? [],
    cors: readCors(read),
    canary: readCanary(read),
    refusal: sources === null ? 'the list of source ranges cannot be read' : null,
  };
}

function createReader(object: GatewayObject, report: (problem: AnnotationProblem) => void): Reader {
  const value = (name: string) => annotation(object, `${NGINX_PREFIX}${name}`)?.trim() ?? null;
  const refuse = (name: string, problem: string): null => {
    report({ annotation: `${NGINX_PREFIX}${name}`, problem });
    return null;
  };
  return {
    text: (name) => value(name) || null,
    flag(name, absent) {
      const given = value(name);
      if (given === null) return absent;
      if (/^(?:true|1|t)$/i.test(given)) return true;
      if (!/^(?:false|0|f)$/i.test(given)) refuse(name, `${show(given)} is neither "true" nor "false"`);
      return false;
    },
    whole(name, most) {
      const given = value(name);
      if (given === null) return null;
      if (/^[0-9]{1,9}$/.test(given) && Number(given) <= most) return Number(given);
      return refuse(name, `${show(given)} is not a whole number of at most ${most}`);
    },
    items(name, accepts, what) {
      const given = value(name);
      if (given === null) return null;
      const items = given
        .split(',')
        .map((item) => item.trim())
        .filter((item) => item !== '');
      const wrong = items.find((item) => !accepts(item));
      if (wrong !== undefined) return refuse(name, `${show(wrong)} is not ${what}`);
      if (items.length > MAX_ITEMS) return refuse(name, `has more than ${MAX_ITEMS} items`);
      return items;
    },
    report: refuse,
  };
}

function acceptPath(value: string | null, name: string, read: Reader): string | null {
  if (value === null || PATH.test(value)) return value;
  return read.report(name, `${show(value)} is not a path: it begins with "/" and has no spaces`);
}

/** Returns the ranges that clients must be of; null if they cannot be read. */
function readSources(read: Reader): readonly string[] | null {
  const all: string[] = [];
  for (const name of ['whitelist-source-range', 'allowlist-source-range']) {
    if (read.text(name) === null) continue;
    const accepts = (item: string) => parseCidr(item.includes('/') ? item : hostRange(item)) !== null;
    const items = read.items(name, accepts, 'an address or a range such as 10.0.0.0/8');
    if (items === null) return null;
    all.push(...items.map((item) => (item.includes('/') ? item : hostRange(item))));
  }
  return all;
}

const hostRange = (address: string): string => `${address}/${address.includes(':') ? 128 : 32}`;

function readBodyLimit(read: Reader): number | null {
  const given = read.text('proxy-body-size');
  if (given === null) return null;
  const [, digits, unit = ''] = /^([0-9]{1,12})([kmgKMG]?)$/.exec(given) ?? [];
  const factor = { '': 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30 }[unit.toLowerCase()] ?? 1;
  const bytes = digits === undefined ? Number.NaN : Number(digits) * factor;
  if (!(bytes <= MAX_BODY))
    return read.report('proxy-body-size', `${show(given)} is not a size such as "8m", or is over 1 TiB`);
  return bytes === 0 ? null : bytes;
}

function readCors(read: Reader): Cors | null {
  if (!read.flag('enable-cors', false)) return null;
  const tokens = (name: string, standard: string) =>
    read.text(name) === null
      ? standard.split(',').filter((item) => item !== '')
      : (read.items(name, (item) => TOKEN.test(item), 'a name') ?? []);
  const accepts = (item: string) => ORIGIN.test(item);
  const origins =
    read.text('cors-allow-origin') === null
      ? ['*']
      : (read.items('cors-allow-origin', accepts, 'an origin such as https://a.example') ?? []);
  return {
    origins,
    methods: tokens('cors-allow-methods', 'GET,PUT,POST,DELETE,PATCH,OPTIONS'),
    headers: tokens('cors-allow-headers', DEFAULT_CORS_HEADERS),
    exposed: tokens('cors-expose-headers', ''),
    // With "*", ingress-nginx answers "*", which browsers do not accept with credentials: so no origin gets them here.
    credentials: read.flag('cors-allow-credentials', true) && !origins.includes('*'),
    maxAge: read.whole('cors-max-age', 999_999_999) ?? 1_728_000,
  };
}

function readCanary(read: Reader): Canary | null {
  if (!read.flag('canary', false)) return null;
  const total = read.whole('canary-weight-total', 1_000_000) || 100;
  const weight = Math.min(read.whole('canary-weight', 1_000_000) ?? 0, total);
  const header = read.text('canary-by-header');
  if (header === null) return { weight, total, header, value: null };
  if (!TOKEN.test(header)) {
    read.report('canary-by-header', `${show(header)} is not the name of a header`);
    return { weight, total, header: null, value: null };
  }
  const value = read.text('canary-by-header-value');
  const pattern = read.text('canary-by-header-pattern');
  const name = header.toLowerCase();
  if (value !== null) return { weight, total, header: name, value: { kind: 'exact', value } };
  if (pattern === null) return { weight, total, header: name, value: null };
  const problem = regexProblem(pattern);
  if (problem === null) return { weight, total, header: name, value: { kind: 'regex', value: pattern } };
  read.report('canary-by-header-pattern', problem);
  return { weight, total, header: null, value: null };
}
