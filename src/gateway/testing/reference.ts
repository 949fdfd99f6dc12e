import type { GatewayRequest } from '../decision.ts';
import type { GatewayObject, GatewayObjects } from '../objects.ts';

/**
 * A second implementation, slow and without an index, written from the words of the Gateway API: every match of every route
 * is looked at, and the best is found by sorting. It reads valid objects only, and shares no code with the first one.
 */
interface Ref {
  readonly name: string;
  readonly namespace?: string;
  readonly port?: number;
  readonly sectionName?: string;
  readonly weight?: number;
}

interface Match {
  readonly path?: { readonly type: string; readonly value: string };
  readonly method?: string;
  readonly headers?: readonly { readonly name: string; readonly type?: string; readonly value: string }[];
  readonly queryParams?: readonly { readonly name: string; readonly type?: string; readonly value: string }[];
}

interface RouteSpec {
  readonly parentRefs: readonly Ref[];
  readonly hostnames?: readonly string[];
  readonly rules: readonly { readonly matches?: readonly Match[]; readonly backendRefs: readonly Ref[] }[];
}

interface ListenerSpec {
  readonly name: string;
  readonly port: number;
  readonly protocol: string;
  readonly hostname?: string;
  readonly allowedRoutes?: { readonly namespaces?: { readonly from?: string } };
}

const nameOf = ({ metadata }: GatewayObject) => metadata?.name ?? '';
const namespaceOf = ({ metadata }: GatewayObject) => metadata?.namespace ?? '';

/** "*.x" has every name that ends with ".x" and has something before; no hostname has every name. */
function hasName(hostname: string | undefined, name: string): boolean {
  if (hostname === undefined) return true;
  return hostname.startsWith('*.')
    ? new RegExp(`^.+${hostname.slice(1).replaceAll('.', '\\.')}$`).test(name)
    : hostname === name;
}

const specificity = (hostname: string | undefined): readonly [number, number] => [
  hostname === undefined || hostname.startsWith('*') ? 0 : hostname.length,
  hostname?.length ?? 0,
];

const byMost = (a: readonly number[], b: readonly number[]): number => {
  const at = a.findIndex((value, index) => value !== b[index]);
  return at < 0 ? 0 : (b[at] ?? 0) - (a[at] ?? 0);
};

/** Returns the decision as short text, like outcome(). */
export function referenceOutcome(objects: GatewayObjects, request: GatewayRequest): string {
  const gateway = objects.gateways.find(
    (one) => `gateway/${namespaceOf(one)}/${nameOf(one)}` === request.gateway,
  );
  const listeners = (
    (gateway?.spec as { listeners: readonly ListenerSpec[] } | undefined)?.listeners ?? []
  ).filter(({ port }) => port === request.port);
  const protocol = listeners[0]?.protocol;
  if (!gateway || protocol === undefined || (protocol === 'HTTPS') !== (request.serverName !== null))
    return 'close';
  const mostSpecific = (name: string) =>
    listeners
      .filter(({ hostname }) => hasName(hostname, name))
      .sort((a, b) => byMost(specificity(a.hostname), specificity(b.hostname)))[0];
  const connection = request.serverName === null ? undefined : mostSpecific(request.serverName);
  if (request.serverName !== null && !connection) return 'close';
  const host = request.host.toLowerCase().replace(/:\d+$/, '');
  const [path = '', ...rest] = request.target.split('?');
  const listener = mostSpecific(host);
  if (!listener) return '404';
  if (connection && connection !== listener) return '421';
  const query = new Map<string, string>();
  for (const part of rest.join('?').split('&')) {
    const [name = '', ...value] = part.split('=');
    if (!query.has(name)) query.set(name, value.join('='));
  }
  const found: {
    readonly keys: readonly number[];
    readonly order: string;
    readonly route: GatewayObject;
    readonly rule: RouteSpec['rules'][number];
  }[] = [];
  for (const route of objects.httpRoutes) {
    const spec = route.spec as RouteSpec;
    if (!spec.parentRefs.some((ref) => attaches(ref, route, gateway, listener))) continue;
    for (const hostname of spec.hostnames ?? [undefined]) {
      if (!hasName(hostname, host)) continue;
      spec.rules.forEach((rule, ruleIndex) => {
        (rule.matches ?? [{}]).forEach((match, matchIndex) => {
          if (!matches(match, path, query, request)) return;
          const { type = 'PathPrefix', value = '/' } = match.path ?? {};
          const length = type === 'PathPrefix' ? value.replace(/\/$/, '').length || 1 : value.length;
          const kind = { Exact: 2, RegularExpression: 1, PathPrefix: 0 }[type] ?? 0;
          const keys = [
            ...specificity(hostname),
            kind,
            length,
            match.method === undefined ? 0 : 1,
            match.headers?.length ?? 0,
            match.queryParams?.length ?? 0,
            -Date.parse(route.metadata?.creationTimestamp ?? ''),
          ];
          const place = [ruleIndex, matchIndex].map((number) => String(number).padStart(4, '0')).join(' ');
          found.push({ keys, order: `${namespaceOf(route)}/${nameOf(route)} ${place}`, route, rule });
        });
      });
    }
  }
  const [best] = found.sort((a, b) => byMost(a.keys, b.keys) || (a.order < b.order ? -1 : 1));
  return best ? backendsOf(best.rule.backendRefs, best.route, objects) : '404';
}

function attaches(ref: Ref, route: GatewayObject, gateway: GatewayObject, listener: ListenerSpec): boolean {
  const from = listener.allowedRoutes?.namespaces?.from ?? 'Same';
  return (
    ref.name === nameOf(gateway) &&
    (ref.namespace ?? namespaceOf(route)) === namespaceOf(gateway) &&
    (ref.sectionName === undefined || ref.sectionName === listener.name) &&
    (ref.port === undefined || ref.port === listener.port) &&
    (from === 'All' || namespaceOf(route) === namespaceOf(gateway))
  );
}

function matches(
  match: Match,
  path: string,
  query: ReadonlyMap<string, string>,
  request: GatewayRequest,
): boolean {
  const { type = 'PathPrefix', value = '/' } = match.path ?? {};
  const segments = (text: string) => text.split('/').slice(1);
  const wanted = segments(value.replace(/\/$/, ''));
  const fits =
    type === 'Exact'
      ? path === value
      : type === 'PathPrefix'
        ? wanted.every((segment, index) => segments(path)[index] === segment)
        : new RegExp(`^(?:${value})$`).test(path);
  const same = (kind: string | undefined, wanted: string, given: string) =>
    kind === 'RegularExpression' ? new RegExp(`^(?:${wanted})$`).test(given) : wanted === given;
  return (
    fits &&
    (match.method === undefined || match.method === request.method) &&
    (match.headers ?? []).every((wanted) =>
      request.headers.some(
        ({ name, value }) =>
          name.toLowerCase() === wanted.name.toLowerCase() && same(wanted.type, wanted.value, value),
      ),
    ) &&
    (match.queryParams ?? []).every((wanted) => {
      const given = query.get(wanted.name);
      return given !== undefined && same(wanted.type, wanted.value, given);
    })
  );
}

function backendsOf(refs: readonly Ref[], route: GatewayObject, objects: GatewayObjects): string {
  const shown = refs
    .filter(({ weight = 1 }) => weight > 0)
    .map((ref) => {
      const namespace = ref.namespace ?? namespaceOf(route);
      const exists = objects.services.some(
        (one) => nameOf(one) === ref.name && namespaceOf(one) === namespace,
      );
      const granted =
        namespace === namespaceOf(route) ||
        objects.referenceGrants.some((grant) => {
          const { from, to } = grant.spec as {
            from: readonly Ref[];
            to: readonly { readonly name?: string }[];
          };
          return (
            namespaceOf(grant) === namespace &&
            from.some((one) => one.namespace === namespaceOf(route)) &&
            to.some(({ name }) => name === undefined || name === ref.name)
          );
        });
      const name = exists && granted ? `${namespace === 'default' ? '' : `${namespace}/`}${ref.name}` : '500';
      return { name, weight: ref.weight ?? 1 };
    });
  if (shown.every(({ name }) => name === '500')) return '500';
  if (shown.length === 1) return shown[0]?.name ?? '';
  return shown.map(({ name, weight }) => `${name} ${weight}`).join(', ');
}
