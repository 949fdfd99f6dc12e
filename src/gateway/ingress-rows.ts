import { readHostname } from './host-pattern.ts';
import { type Identity, keyOf } from './identity.ts';
import type { IngressSettings } from './ingress-annotations.ts';
import { hasTls, type IngressContext, type KnownIngress, subject } from './known-ingress.ts';
import { type PlacedRow, type Rank, rankOf } from './placed-rows.ts';
import { list, optionalText, portNumber, record, show, text } from './raw.ts';
import { regexProblem } from './regex.ts';
import { unreachablePath } from './request-path.ts';
import type {
  Backend,
  BackendTls,
  Forward,
  HeaderChanges,
  HostPattern,
  PathMatch,
  RouteAction,
  RouteRow,
  WeightedBackend,
} from './route-map.ts';

/** One path of a rule of an Ingress, or its default backend. */
export interface IngressPath {
  readonly identity: Identity;
  readonly isDefault: boolean;
  /** Where it stands in the object, for messages. */
  readonly field: string;
  readonly shown: string;
  rows: readonly PlacedRow[];
  /** The rows of port 80 where they redirect to TLS; null: the same. */
  redirect: readonly PlacedRow[] | null;
}

export const NO_CHANGES: HeaderChanges = { set: [], add: [], remove: [] };

/** The rank of default backends: after every path; those of Ingresses without rules first. */
const DEFAULT_RANK = 9;
const MISSING_STATUS = 503;
const EVERYTHING: PathMatch = { kind: 'prefix', path: '/' };
const REGEX_CHARACTERS = /[\\^$.|?*+()[\]{}]/;

/** Returns the rows of one Ingress: of its paths, its default backend and its app-root. */
export function ingressRows(ingress: KnownIngress, context: IngressContext): readonly IngressPath[] {
  const spec = record(ingress.object.spec);
  const rules = list(spec['rules']);
  const found: IngressPath[] = [];
  const hosts = new Set<HostPattern>();
  rules.forEach((item, rule) => {
    const field = `spec.rules[${rule}]`;
    const given = optionalText(record(item)['host']);
    const host = given === null ? '' : readHostname(given);
    if (host === null) {
      context.findings.add(
        subject(ingress.identity),
        'InvalidHost',
        `${field}.host: ${show(given)} is not a DNS name`,
      );
      return;
    }
    hosts.add(host);
    const paths = list(record(record(item)['http'])['paths']);
    // A rule without paths leads its host to the default backend.
    paths.forEach((path, index) => {
      const made = pathRows(
        ingress,
        { host, rule, index, field: `${field}.http.paths[${index}]` },
        record(path),
        context,
      );
      if (made) found.push(made);
    });
    if (ingress.settings.appRoot !== null && !ingress.settings.canary)
      found.push(appRoot(ingress, host, rule));
  });
  if (spec['defaultBackend'] !== undefined && spec['defaultBackend'] !== null)
    found.push(defaultRows(ingress, hosts, rules.length, context));
  return found;
}

interface PathPlace {
  readonly host: HostPattern;
  readonly rule: number;
  readonly index: number;
  readonly field: string;
}

function pathRows(
  ingress: KnownIngress,
  { host, rule, index, field }: PathPlace,
  path: Readonly<Record<string, unknown>>,
  context: IngressContext,
): IngressPath | null {
  const { identity, settings } = ingress;
  const given = text(path['path']) || '/';
  const report = (reason: string, message: string) => {
    context.findings.add(subject(identity), reason, `${field}${message}`);
    return null;
  };
  const match = readPath(given, text(path['pathType']), settings);
  if (typeof match === 'string') return report('InvalidPath', `.path: ${show(given)} ${match}`);
  const target = readBackend(ingress, path['backend'], context);
  if (target.kind === 'error') report('NoBackend', `.backend: ${target.reason}`);
  const action = target.kind === 'error' ? target : withRewrite(target, settings, match);
  const row = rowOf(ingress, { rule, id: String(index), path: match, action });
  const rows = [placed(ingress, host, rankOf(row, identity.createdAt), rule * 1000 + index, row)];
  return {
    identity,
    isDefault: false,
    field,
    shown: given,
    rows,
    redirect: redirectsToTls(ingress, host) ? rows.map(toTls) : null,
  };
}

const redirectsToTls = (ingress: KnownIngress, host: HostPattern): boolean =>
  ingress.settings.forceSslRedirect || (ingress.settings.sslRedirect && hasTls(ingress, host));

function toTls(placed: PlacedRow): PlacedRow {
  const action: RouteAction = {
    kind: 'redirect',
    scheme: 'https',
    host: null,
    port: null,
    path: null,
    status: 308,
    response: NO_CHANGES,
  };
  return { ...placed, row: { ...placed.row, id: `${placed.row.id}/tls`, action } };
}

function rowOf(
  { identity: { namespace, name } }: KnownIngress,
  { rule, id, path, action }: { rule: number; id: string; path: PathMatch; action: RouteAction },
): RouteRow {
  return {
    id: `ingress/${namespace}/${name}/${rule}/${id}`,
    route: { kind: 'Ingress', namespace, name, rule },
    path,
    method: null,
    headers: [],
    query: [],
    action,
  };
}

const placed = (
  { identity }: KnownIngress,
  hostname: HostPattern,
  rank: Rank,
  place: number,
  row: RouteRow,
): PlacedRow => ({ hostname, oneLabel: true, rank, owner: keyOf(identity), place, row });

/** Returns how a path matches, or what is wrong with it. */
function readPath(path: string, type: string, settings: IngressSettings): PathMatch | string {
  if (!path.startsWith('/')) return 'does not begin with "/"';
  if (path.length > 1024) return 'is longer than 1024 characters';
  const captures = settings.rewriteTarget?.includes('$') ?? false;
  if ((settings.useRegex || captures) && REGEX_CHARACTERS.test(path)) {
    // ingress-nginx: ~* "^PATH", so letters match in both cases and anything may follow.
    const regex = `(?i:${path}).*`;
    const problem = regexProblem(path) ?? regexProblem(regex);
    return problem ?? { kind: 'regex', regex };
  }
  const unreachable = unreachablePath(path);
  if (unreachable !== null) return `matches no request: ${unreachable}`;
  if (type === 'Exact') return { kind: 'exact', path };
  if (type !== 'Prefix' && type !== 'ImplementationSpecific' && type !== '')
    return `has the unknown type ${show(type)}: use Exact, Prefix or ImplementationSpecific`;
  return { kind: 'prefix', path: path.replace(/(?<=.)\/$/, '') };
}

function withRewrite(forward: Forward, { rewriteTarget }: IngressSettings, match: PathMatch): Forward {
  if (rewriteTarget === null) return forward;
  const kind = match.kind === 'regex' && rewriteTarget.includes('$') ? 'captures' : 'full';
  const path = kind === 'captures' ? rewriteTarget : rewriteTarget.replaceAll(/\$[0-9]/g, '') || '/';
  return { ...forward, rewrite: { host: null, path: { kind, path } } };
}

function appRoot(ingress: KnownIngress, host: HostPattern, rule: number): IngressPath {
  const path: PathMatch = { kind: 'exact', path: '/' };
  const action: RouteAction = {
    kind: 'redirect',
    scheme: null,
    host: null,
    port: null,
    path: { kind: 'full', path: ingress.settings.appRoot ?? '/' },
    status: 302,
    response: NO_CHANGES,
  };
  const row = rowOf(ingress, { rule, id: 'app-root', path, action });
  const rank = [-1, ...rankOf(row, ingress.identity.createdAt).slice(1)];
  const rows = [placed(ingress, host, rank, rule * 1000, row)];
  return {
    identity: ingress.identity,
    isDefault: true,
    field: 'metadata.annotations',
    shown: '/',
    rows,
    redirect: redirectsToTls(ingress, host) ? rows.map(toTls) : null,
  };
}

/** Places the default backend after the paths of the Ingress's own hosts, and after everything else. */
function defaultRows(
  ingress: KnownIngress,
  hosts: ReadonlySet<HostPattern>,
  ruleCount: number,
  context: IngressContext,
): IngressPath {
  const { identity } = ingress;
  const field = 'spec.defaultBackend';
  const action = readBackend(ingress, record(ingress.object.spec)['defaultBackend'], context);
  if (action.kind === 'error')
    context.findings.add(subject(identity), 'NoBackend', `${field}: ${action.reason}`);
  const row = rowOf(ingress, { rule: -1, id: '0', path: EVERYTHING, action });
  const rank = [DEFAULT_RANK, ruleCount === 0 ? 0 : 1, identity.createdAt];
  const rows = [...new Set([...hosts, ''])].map((host) => placed(ingress, host, rank, 0, row));
  const redirect = ingress.settings.forceSslRedirect ? rows.map(toTls) : null;
  return { identity, isDefault: true, field, shown: 'the default backend', rows, redirect };
}

/** Returns the action for a backend of an Ingress. */
function readBackend(
  { identity, settings }: KnownIngress,
  value: unknown,
  { services, backends, policies }: IngressContext,
): Forward | Extract<RouteAction, { kind: 'error' }> {
  const failed = (reason: string) => ({ kind: 'error', status: MISSING_STATUS, reason }) as const;
  if (settings.refusal !== null) return failed(settings.refusal);
  const backend = record(value);
  if (backend['resource'] !== undefined && backend['resource'] !== null)
    return failed('resource backends are not supported: name a Service');
  const reference = record(backend['service']);
  const name = text(reference['name']);
  const service = services.get(keyOf({ namespace: identity.namespace, name }));
  if (!service) return failed(`Service ${show(name)} does not exist in namespace ${identity.namespace}`);
  if (service.external) return failed(`Service ${name} is of type ExternalName: use one with endpoints`);
  const wanted = record(reference['port']);
  const portName = optionalText(wanted['name']);
  const number = portNumber(wanted['number']);
  const port = service.ports.find((port) =>
    portName !== null ? port.name === portName : number !== null && port.port === number,
  );
  if (!port) return failed(`Service ${name} has no port ${show(portName ?? wanted['number'])}`);
  if (port.protocol !== 'TCP')
    return failed(`port ${port.port} of Service ${name} is ${port.protocol}, not TCP`);
  const policy = policies.choose(keyOf(service), port);
  if (policy !== null && policy.tls === null)
    return failed(`BackendTLSPolicy ${policy.policy} is not valid, so Service ${name} cannot be reached`);
  const tls = policy?.tls ? { ...policy.tls, certificate: null } : tlsOf(settings, service.name);
  const key = backends.add(service, port, protocolOf(settings, port.appProtocol), tls);
  return forwardTo(
    [{ backend: key, weight: 1, request: NO_CHANGES, response: NO_CHANGES, reason: null }],
    settings,
  );
}

function protocolOf({ protocol }: IngressSettings, appProtocol: string): Backend['protocol'] {
  if (protocol === 'h2c' || protocol === 'grpcs') return 'h2c';
  if (protocol === 'https') return 'http1';
  return appProtocol === 'kubernetes.io/h2c' ? 'h2c' : 'http1';
}

function tlsOf({ protocol }: IngressSettings, service: string): BackendTls | null {
  if (protocol !== 'https' && protocol !== 'grpcs') return null;
  return { hostname: service, names: [], authorities: [], certificate: null, verify: false };
}

function forwardTo(backends: readonly WeightedBackend[], settings: IngressSettings): Forward {
  return {
    kind: 'forward',
    protocol: settings.protocol === 'h2c' || settings.protocol === 'grpcs' ? 'grpc' : 'http',
    backends,
    request: NO_CHANGES,
    response: NO_CHANGES,
    rewrite: null,
    mirrors: [],
    cors: settings.cors,
    timeouts: { request: null, backend: settings.backendTimeout, connect: settings.connectTimeout },
    retry: null,
    affinity: null,
    bodyLimit: settings.bodyLimit,
    sources: settings.sources,
  };
}
