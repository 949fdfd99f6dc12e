import { type BackendContext, resolveBackend, weightOf } from './backend-refs.ts';
import { type Verdict, verdict } from './conditions.ts';
import { type Filters, type MirrorFilter, readFilters } from './filters.ts';
import type { Identity } from './identity.ts';
import { type Rank, rankOf } from './placed-rows.ts';
import { list, type Raw, record } from './raw.ts';
import type { CertificateKey, Mirror, RouteAction, RouteRow, WeightedBackend } from './route-map.ts';
import { grpcLengths, type Match, readGrpcMatches, readHttpMatches } from './route-matches.ts';
import { isProblem, type RuleProblem, unsupported } from './rule-problem.ts';
import { readRuleSettings } from './rule-settings.ts';

export type HttpKind = 'HTTPRoute' | 'GRPCRoute';

export interface RankedRow {
  readonly rank: Rank;
  readonly place: number;
  readonly row: RouteRow;
}

/** The rules of a route, as read. */
export interface RouteRules<R> {
  readonly rows: readonly R[];
  readonly resolved: Verdict;
  /** The rules that cannot be applied, by index. */
  readonly dropped: readonly { readonly rule: number; readonly problem: RuleProblem }[];
  readonly ruleCount: number;
  /** "NAMESPACE/NAME" of the Services that are used. */
  readonly services: ReadonlySet<string>;
}

const MAX_RULES = 64;
const MAX_BACKENDS = 64;
const ALL_RESOLVED = verdict(true, 'ResolvedRefs', 'All references are resolved');

interface RuleReader {
  readonly kind: HttpKind;
  readonly identity: Identity;
  readonly clientCertificate: CertificateKey | null;
  readonly context: BackendContext;
  readonly services: Set<string>;
  resolved: Verdict;
}

/**
 * Reads the rules of an HTTPRoute or GRPCRoute. A rule that cannot be applied is answered with an error, so that its
 * requests do not fall to other rules; it has no rows only if its matches cannot be read. `clientCertificate`: shown to
 * backends with TLS.
 */
export function readHttpRules(
  kind: HttpKind,
  identity: Identity,
  spec: Raw,
  clientCertificate: CertificateKey | null,
  context: BackendContext,
): RouteRules<RankedRow> {
  const reader: RuleReader = {
    kind,
    identity,
    clientCertificate,
    context,
    services: new Set(),
    resolved: ALL_RESOLVED,
  };
  const rules = list(spec['rules']);
  const rows: RankedRow[] = [];
  const dropped: { rule: number; problem: RuleProblem }[] = [];
  for (const [rule, item] of rules.entries()) {
    if (rule >= MAX_RULES) {
      dropped.push({ rule, problem: unsupported('rules', `has more than ${MAX_RULES} items`) });
      break;
    }
    const raw = record(item);
    const given = list(raw['matches']);
    const matches = kind === 'HTTPRoute' ? readHttpMatches(given) : readGrpcMatches(given);
    if ('reason' in matches) {
      dropped.push({ rule, problem: matches });
      continue;
    }
    let action = readAction(reader, raw, rule, matches);
    if ('message' in action) {
      dropped.push({ rule, problem: action });
      action = { kind: 'error', status: failure(kind), reason: action.message };
    }
    for (const [index, match] of matches.entries()) {
      const row = rowOf(reader, rule, index, match, action);
      const rank =
        kind === 'HTTPRoute'
          ? rankOf(match, identity.createdAt)
          : grpcRank(given[index], match, identity.createdAt);
      rows.push({ rank, place: rule * 1000 + index, row });
    }
  }
  return { rows, resolved: reader.resolved, dropped, ruleCount: rules.length, services: reader.services };
}

/** The status for backends that cannot be used: what gRPC clients read as UNAVAILABLE. */
const failure = (kind: HttpKind): number => (kind === 'GRPCRoute' ? 503 : 500);

function rowOf(
  { kind, identity: { namespace, name }, clientCertificate }: RuleReader,
  rule: number,
  index: number,
  { path, method, headers, query }: Match,
  action: RouteAction,
): RouteRow {
  const own = clientCertificate === null ? '' : `/${clientCertificate}`;
  return {
    id: `${kind.toLowerCase()}/${namespace}/${name}/${rule}/${index}${own}`,
    route: { kind, namespace, name, rule },
    path,
    method,
    headers,
    query,
    action,
  };
}

/** The precedence of GRPCRoutes: the longest service, then the longest method, then the number of headers. */
function grpcRank(raw: unknown, { headers }: Match, createdAt: number): Rank {
  const [service, method] = grpcLengths(raw);
  return [-service, -method, -headers.length, 0, 0, createdAt];
}

function readAction(
  reader: RuleReader,
  raw: Raw,
  rule: number,
  matches: readonly Match[],
): RouteAction | RuleProblem {
  const { kind, identity } = reader;
  const paths = matches.map(({ path }) => path);
  const filters = readFilters(
    list(raw['filters']),
    kind === 'HTTPRoute' ? 'rule' : 'grpc-rule',
    'filters',
    paths,
  );
  if (isProblem(filters)) return filters;
  const settings = readRuleSettings(raw);
  if (isProblem(settings)) return settings;
  const references = list(raw['backendRefs']);
  if (references.length > MAX_BACKENDS)
    return unsupported('backendRefs', `has more than ${MAX_BACKENDS} items`);
  const backends: WeightedBackend[] = [];
  for (const [index, item] of references.entries()) {
    const backend = readBackend(
      reader,
      record(item),
      `spec.rules[${rule}].backendRefs[${index}]`,
      `backendRefs[${index}]`,
    );
    if (isBackendProblem(backend)) return backend;
    backends.push(backend);
  }
  const mirrors = readMirrors(reader, filters.mirrors, rule);
  if (filters.redirect) return filters.redirect;
  const used = backends.filter(({ weight }) => weight > 0);
  if (!used.some(({ backend }) => backend !== null)) {
    const reason =
      used[0]?.reason ??
      (references.length === 0 ? 'the rule has no backends' : 'all backends of the rule have weight 0');
    return {
      kind: 'error',
      status: failure(kind),
      reason: `${identity.namespace}/${identity.name}: ${reason}`,
    };
  }
  return {
    kind: 'forward',
    protocol: kind === 'GRPCRoute' ? 'grpc' : 'http',
    backends: used,
    request: filters.request,
    response: filters.response,
    rewrite: filters.rewrite,
    mirrors,
    cors: filters.cors,
    ...settings,
    bodyLimit: null,
    sources: [],
  };
}

const isBackendProblem = (value: WeightedBackend | RuleProblem): value is RuleProblem => 'message' in value;

function readBackend(
  reader: RuleReader,
  reference: Raw,
  field: string,
  shown: string,
): WeightedBackend | RuleProblem {
  const filters: Filters | RuleProblem = readFilters(
    list(reference['filters']),
    'backend',
    `${shown}.filters`,
    [],
  );
  if (isProblem(filters)) return filters;
  const found = resolve(reader, reference, field);
  return {
    backend: found.key,
    weight: weightOf(reference),
    request: filters.request,
    response: filters.response,
    reason: found.key === null ? found.reason : null,
  };
}

function resolve(reader: RuleReader, reference: Raw, field: string) {
  const { kind, identity, clientCertificate, context } = reader;
  const source = { kind, namespace: identity.namespace };
  const found = resolveBackend(
    reference,
    source,
    kind === 'GRPCRoute' ? 'grpc' : 'http',
    clientCertificate,
    context,
  );
  if (found.service !== null) reader.services.add(found.service);
  if (found.key === null && found.condition !== null && reader.resolved.holds)
    reader.resolved = verdict(false, found.condition.reason, `${field}: ${found.condition.message}`);
  return found;
}

/** Resolves mirrors. One that cannot be used is left out: the requests themselves are still served. */
function readMirrors(reader: RuleReader, mirrors: readonly MirrorFilter[], rule: number): readonly Mirror[] {
  return mirrors.flatMap(({ field, reference, numerator, denominator }) => {
    const found = resolve(reader, reference, `spec.rules[${rule}].${field}.backendRef`);
    return found.key === null || numerator === 0 ? [] : [{ backend: found.key, numerator, denominator }];
  });
}
