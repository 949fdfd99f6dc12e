import type { BackendContext } from './backend-refs.ts';
import { type Condition, condition, type Verdict, verdict } from './conditions.ts';
import { createHostClaims, type HostClaims } from './host-claims.ts';
import { intersectHosts, readHostname } from './host-pattern.ts';
import { type HttpKind, type RankedRow, type RouteRules, readHttpRules } from './http-rules.ts';
import { compareAge, type Identity, identityOf } from './identity.ts';
import type { Listener } from './listener.ts';
import { GATEWAY_CONTROLLER, type GatewayObject, type GatewayObjects } from './objects.ts';
import { type Attachment, findListeners, findParent, type Parent, type Parents } from './parent-refs.ts';
import { list, type Raw, record, show, text } from './raw.ts';
import type { CertificateKey, HostPattern, WeightedBackend } from './route-map.ts';
import type { ObjectStatus } from './statuses.ts';
import { readStreamRules, type StreamKind } from './stream-rules.ts';

export interface HttpAttachment {
  readonly identity: Identity;
  readonly hostnames: readonly HostPattern[];
  readonly rows: readonly RankedRow[];
}

export interface StreamAttachment {
  readonly kind: StreamKind;
  readonly identity: Identity;
  readonly hostnames: readonly HostPattern[];
  readonly backends: readonly WeightedBackend[];
}

/** What is attached to each listener, the oldest first. */
export interface AttachedRoutes {
  readonly http: ReadonlyMap<Listener, readonly HttpAttachment[]>;
  readonly streams: ReadonlyMap<Listener, readonly StreamAttachment[]>;
  readonly statuses: readonly ObjectStatus[];
}

interface Route {
  readonly kind: HttpKind | StreamKind;
  readonly object: GatewayObject;
  readonly identity: Identity;
  readonly spec: Raw;
}

const MAX_PARENTS = 32;
const MAX_HOSTNAMES = 64;

/** Attaches every route to the listeners that take it, and computes the routes' statuses. */
export function attachRoutes(
  objects: GatewayObjects,
  parents: Parents,
  context: BackendContext,
): AttachedRoutes {
  const http = new Map<Listener, HttpAttachment[]>();
  const streams = new Map<Listener, StreamAttachment[]>();
  const claims = new Map<Listener, Map<string, HostClaims>>();
  const statuses: ObjectStatus[] = [];
  const routes = sortedRoutes(objects);
  const withGrpc = objects.grpcRoutes.length > 0;
  for (const route of routes) {
    const attacher: Attacher = {
      route,
      context,
      http,
      streams,
      claims: withGrpc ? claims : null,
      rules: new Map(),
      attached: new Set(),
    };
    const entries = list(route.spec['parentRefs'])
      .slice(0, MAX_PARENTS)
      .flatMap((item) => {
        const reference = record(item);
        const parent = findParent(reference, route.identity.namespace, parents);
        if (!parent) return [];
        const conditions = attachToParent(attacher, reference, parent);
        return [{ parentRef: reference, controllerName: GATEWAY_CONTROLLER, conditions }];
      });
    const { namespace, name } = route.identity;
    // An empty list removes what was said when it still had a parent here.
    if (entries.length > 0 || hadParents(route.object))
      statuses.push({ kind: route.kind, namespace, name, status: { parents: entries } });
  }
  return { http, streams, statuses };
}

function sortedRoutes(objects: GatewayObjects): readonly Route[] {
  const read = (kind: Route['kind'], from: readonly GatewayObject[]) =>
    from.flatMap((object): readonly Route[] => {
      const identity = identityOf(object);
      return identity ? [{ kind, object, identity, spec: record(object.spec) }] : [];
    });
  return [
    ...read('HTTPRoute', objects.httpRoutes),
    ...read('GRPCRoute', objects.grpcRoutes),
    ...read('TLSRoute', objects.tlsRoutes),
    ...read('TCPRoute', objects.tcpRoutes),
    ...read('UDPRoute', objects.udpRoutes),
  ].sort((a, b) => compareAge(a.identity, b.identity));
}

const hadParents = ({ status }: GatewayObject): boolean =>
  list(record(status)['parents']).some((item) => record(item)['controllerName'] === GATEWAY_CONTROLLER);

interface Attacher {
  readonly route: Route;
  readonly context: BackendContext;
  readonly http: Map<Listener, HttpAttachment[]>;
  readonly streams: Map<Listener, StreamAttachment[]>;
  /** Hosts of HTTPRoutes and of GRPCRoutes at each listener; null: there are no GRPCRoutes. */
  readonly claims: Map<Listener, Map<string, HostClaims>> | null;
  /** Rules by how they are read: a Gateway's client certificate, and whether TLS ends there. */
  readonly rules: Map<string, RouteRules<RankedRow> | RouteRules<WeightedBackend>>;
  /** The listeners that have the route already, by another parentRef. */
  readonly attached: Set<Listener>;
}

type Rules = RouteRules<RankedRow> | RouteRules<WeightedBackend>;

/** Attaches a route to one parent and returns the conditions for it. */
function attachToParent(attacher: Attacher, reference: Raw, parent: Parent): readonly Condition[] {
  const { route } = attacher;
  const { generation, namespace } = route.identity;
  const { hostnames, problem } = hostnamesOf(route);
  const { attachments, refusal } = findListeners(reference, parent, {
    kind: route.kind,
    namespace,
    hostnames,
  });
  const { clientCertificate } = parent.gateway;
  const first = rulesFor(attacher, attachments[0]?.listener ?? null, clientCertificate);
  let accepted = problem ?? refusal ?? validity(first);
  if (accepted.holds) {
    const taken = attachments.filter((attachment) => !claimedByOther(attacher, attachment));
    if (taken.length === 0)
      accepted = verdict(
        false,
        'NotAllowedByListeners',
        `an older ${otherKind(route.kind)} has a hostname of this route at every listener`,
      );
    for (const attachment of taken)
      attach(attacher, attachment, rulesFor(attacher, attachment.listener, clientCertificate));
  }
  if (accepted.holds)
    for (const service of first.services)
      attacher.context.policies.note(service, parent.gateway.owner.identity);
  const conditions = [
    condition('Accepted', accepted, generation),
    condition('ResolvedRefs', first.resolved, generation),
  ];
  if (accepted.holds && first.dropped.length > 0)
    conditions.push(condition('PartiallyInvalid', partial(first), generation));
  return conditions;
}

function hostnamesOf({ kind, spec }: Route): {
  readonly hostnames: readonly HostPattern[];
  readonly problem: Verdict | null;
} {
  const given = kind === 'TCPRoute' || kind === 'UDPRoute' ? [] : list(spec['hostnames']);
  if (given.length === 0) return { hostnames: [''], problem: null };
  const hostnames: HostPattern[] = [];
  for (const [index, item] of given.slice(0, MAX_HOSTNAMES).entries()) {
    const hostname = readHostname(text(item));
    if (hostname === null)
      return {
        hostnames: [''],
        problem: verdict(
          false,
          'UnsupportedValue',
          `spec.hostnames[${index}]: ${show(item)} is not a DNS name`,
        ),
      };
    hostnames.push(hostname);
  }
  return { hostnames, problem: null };
}

function rulesFor(
  attacher: Attacher,
  listener: Listener | null,
  clientCertificate: CertificateKey | null,
): Rules {
  const { route, context, rules } = attacher;
  const terminated = listener !== null && listener.protocol === 'TLS' && !listener.passthrough;
  const key = `${clientCertificate ?? ''} ${terminated}`;
  const known = rules.get(key);
  if (known) return known;
  const { kind, identity, spec } = route;
  const read =
    kind === 'HTTPRoute' || kind === 'GRPCRoute'
      ? readHttpRules(kind, identity, spec, clientCertificate, context)
      : readStreamRules(kind, identity, spec, terminated, clientCertificate, context);
  rules.set(key, read);
  return read;
}

function validity({ dropped, ruleCount }: Rules): Verdict {
  const [first] = dropped;
  if (!first || dropped.length < ruleCount) return verdict(true, 'Accepted', 'The route is attached');
  return verdict(false, first.problem.reason, `spec.rules[${first.rule}].${first.problem.message}`);
}

function partial({ dropped }: Rules): Verdict {
  const shown = dropped.map(({ rule, problem }) => `${rule} (${problem.message})`).join('; ');
  return verdict(
    true,
    'UnsupportedValue',
    `Dropped Rule: requests for these rules are answered with an error: ${shown}`,
  );
}

const otherKind = (kind: string): string => (kind === 'HTTPRoute' ? 'GRPCRoute' : 'HTTPRoute');

/** HTTPRoutes and GRPCRoutes do not share a host of a listener: the older route keeps it. */
function claimedByOther({ route: { kind }, claims }: Attacher, { listener, hostnames }: Attachment): boolean {
  if (claims === null || (kind !== 'HTTPRoute' && kind !== 'GRPCRoute')) return false;
  let atListener = claims.get(listener);
  if (!atListener) {
    atListener = new Map([
      ['HTTPRoute', createHostClaims()],
      ['GRPCRoute', createHostClaims()],
    ]);
    claims.set(listener, atListener);
  }
  const common = hostnames
    .map((hostname) => intersectHosts(hostname, listener.hostname))
    .filter((host) => host !== null);
  if (common.some((hostname) => atListener.get(otherKind(kind))?.intersects(hostname))) return true;
  for (const hostname of common) atListener.get(kind)?.add(hostname);
  return false;
}

function attach(
  { route, http, streams, attached }: Attacher,
  { listener, hostnames }: Attachment,
  rules: Rules,
): void {
  if (attached.has(listener)) return;
  attached.add(listener);
  listener.attachedRoutes++;
  const { kind, identity } = route;
  if (kind === 'HTTPRoute' || kind === 'GRPCRoute') {
    const attachment = { identity, hostnames, rows: rules.rows as RouteRules<RankedRow>['rows'] };
    const known = http.get(listener);
    if (known) known.push(attachment);
    else http.set(listener, [attachment]);
    return;
  }
  const attachment = {
    kind,
    identity,
    hostnames,
    backends: rules.rows as RouteRules<WeightedBackend>['rows'],
  };
  const known = streams.get(listener);
  if (known) known.push(attachment);
  else streams.set(listener, [attachment]);
}
