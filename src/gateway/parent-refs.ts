import { type Verdict, verdict } from './conditions.ts';
import { intersectHosts } from './host-pattern.ts';
import { keyOf } from './identity.ts';
import type { KnownGateway, Listener } from './listener.ts';
import { optionalText, portNumber, type Raw, show, text } from './raw.ts';
import { GATEWAY_GROUP } from './reference-grants.ts';
import type { HostPattern } from './route-map.ts';

/** The parents that routes can name: Gateways and ListenerSets of this controller, by "KIND NAMESPACE/NAME". */
export type Parents = ReadonlyMap<string, Parent>;

export interface Parent {
  readonly gateway: KnownGateway;
  /** A Gateway's own, or a ListenerSet's: a route that names the Gateway does not attach to those of its sets. */
  readonly listeners: readonly Listener[];
}

export function indexParents(gateways: readonly KnownGateway[]): Parents {
  const parents = new Map<string, Parent>();
  for (const gateway of gateways) {
    parents.set(`Gateway ${keyOf(gateway.owner.identity)}`, { gateway, listeners: gateway.listeners });
    for (const { owner, listeners } of gateway.sets)
      parents.set(`ListenerSet ${keyOf(owner.identity)}`, { gateway, listeners });
  }
  return parents;
}

/** Returns the parent that a parentRef names; null: it is of another controller, or does not exist. */
export function findParent(reference: Raw, namespace: string, parents: Parents): Parent | null {
  if ((optionalText(reference['group']) ?? GATEWAY_GROUP) !== GATEWAY_GROUP) return null;
  const kind = optionalText(reference['kind']) ?? 'Gateway';
  const key = { namespace: optionalText(reference['namespace']) ?? namespace, name: text(reference['name']) };
  return parents.get(`${kind} ${keyOf(key)}`) ?? null;
}

/** A listener that a route attaches to, with the hosts that both have. */
export interface Attachment {
  readonly listener: Listener;
  readonly hostnames: readonly HostPattern[];
}

export interface RouteClaim {
  readonly kind: string;
  readonly namespace: string;
  /** [""]: every host. */
  readonly hostnames: readonly HostPattern[];
}

/** Finds the listeners of a parent that take a route, or the reason why none does. */
export function findListeners(
  reference: Raw,
  { listeners }: Parent,
  { kind, namespace, hostnames }: RouteClaim,
): { readonly attachments: readonly Attachment[]; readonly refusal: Verdict | null } {
  const section = optionalText(reference['sectionName']);
  const port =
    reference['port'] === undefined || reference['port'] === null
      ? null
      : (portNumber(reference['port']) ?? 0);
  const named = listeners.filter(
    (listener) =>
      (section === null || listener.name === section) && (port === null || listener.port === port),
  );
  const none = (reason: string, message: string) => ({
    attachments: [],
    refusal: verdict(false, reason, message),
  });
  if (named.length === 0)
    return none(
      'NoMatchingParent',
      `the parent has no listener${section === null ? '' : ` with the name ${show(section)}`}${port === null ? '' : ` with port ${port}`}`,
    );
  const allowed = named.filter((listener) => listener.kinds.includes(kind) && listener.allows(namespace));
  if (allowed.length === 0)
    return none(
      'NotAllowedByListeners',
      `no listener allows routes of kind ${kind} from namespace ${namespace}`,
    );
  const attachments = allowed.flatMap((listener): readonly Attachment[] => {
    const common = new Set<HostPattern>();
    for (const hostname of hostnames) {
      // The route's own hostname is kept: rows of narrower ones go first. Tables cut it to the listener's.
      if (intersectHosts(hostname, listener.hostname) !== null) common.add(hostname);
    }
    return common.size === 0 ? [] : [{ listener, hostnames: [...common] }];
  });
  if (attachments.length === 0)
    return none(
      'NoMatchingListenerHostname',
      'no listener has a hostname that intersects with those of the route',
    );
  return { attachments, refusal: null };
}
