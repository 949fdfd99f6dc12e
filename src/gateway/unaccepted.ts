import type { Attached } from './attach.ts';
import { hostMatches, readHostname } from './host-pattern.ts';
import { keyOf } from './identity.ts';
import { classOf, ownIngressClasses } from './ingress-class.ts';
import type { GatewayObject, GatewayObjects } from './objects.ts';
import { list, type Raw, record, text } from './raw.ts';
import { compileRegex } from './regex-machine.ts';
import type { RequestUrl } from './request-url.ts';
import type { GatewayKey } from './route-map.ts';

/** What an object of a gateway says against a request that it is for. */
export interface Unaccepted {
  /** "HTTPRoute shop/web". */
  readonly object: string;
  /** "Accepted" and the like, with its status; null: an Ingress, which has events only. */
  readonly condition: string | null;
  readonly reason: string;
  /** "spec.hostnames"; null: the message names none. */
  readonly field: string | null;
  readonly message: string;
}

/** An unaccepted object with its gateway. `named`: it has the URL's host by its name, not by a rule for all hosts. */
export interface UnacceptedAt extends Unaccepted {
  readonly gateway: GatewayKey;
  readonly named: boolean;
}

/** Conditions with the status that says that something is not as its owner wants. */
const BAD: Readonly<Record<string, string>> = {
  Accepted: 'False',
  ResolvedRefs: 'False',
  PartiallyInvalid: 'True',
  Conflicted: 'True',
};

const FIELDS: Readonly<Record<string, string>> = {
  NoMatchingListenerHostname: 'spec.hostnames',
  NoMatchingParent: 'spec.parentRefs',
  NotAllowedByListeners: 'spec.parentRefs',
};

const LISTS = {
  HTTPRoute: 'httpRoutes',
  GRPCRoute: 'grpcRoutes',
  TLSRoute: 'tlsRoutes',
  Gateway: 'gateways',
  ListenerSet: 'listenerSets',
  Ingress: 'ingresses',
} as const satisfies Readonly<Record<string, keyof GatewayObjects>>;

/** Returns the objects that have the host or the path of a URL and are not accepted, or in part only. */
export function findUnaccepted(
  objects: GatewayObjects,
  { statuses, findings }: Attached,
  url: RequestUrl,
): readonly UnacceptedAt[] {
  const found: UnacceptedAt[] = [];
  const setOwners = new Map(objects.listenerSets.map((set) => [nameOf(set), ownerOfSet(set)]));
  const known = new Map(
    Object.entries(LISTS).map(([kind, source]) => [
      kind,
      new Map(objects[source].map((one) => [nameOf(one), one])),
    ]),
  );
  for (const { kind, namespace, name, status } of statuses) {
    const own = { namespace, name };
    const object = known.get(kind)?.get(keyOf(own));
    if (!object) continue;
    if (kind === 'HTTPRoute' || kind === 'GRPCRoute' || kind === 'TLSRoute') {
      const belongs = routeBelongs(kind, record(object.spec), url);
      if (belongs === 'no') continue;
      for (const item of list(status['parents'])) {
        const parent = record(item);
        const gateway = gatewayOfParent(record(parent['parentRef']), namespace, setOwners);
        if (gateway === null) continue;
        for (const bad of badConditions(parent['conditions'], null))
          if (!isOfOtherRule(record(object.spec), bad, url))
            found.push({ object: `${kind} ${keyOf(own)}`, ...bad, gateway, named: belongs === 'named' });
      }
    } else if (kind === 'Gateway' || kind === 'ListenerSet') {
      const gateway = kind === 'Gateway' ? `gateway/${keyOf(own)}` : setOwners.get(keyOf(own));
      if (gateway === undefined) continue;
      for (const { bad, named } of badListeners(record(object.spec), status, url))
        found.push({ object: `${kind} ${keyOf(own)}`, ...bad, gateway, named });
    }
  }
  const classes = ownIngressClasses(objects.ingressClasses);
  for (const { object, reason, message } of findings) {
    const ingress = known.get(object.kind)?.get(keyOf(object));
    const name = object.kind === 'Ingress' && ingress ? classOf(ingress, classes) : null;
    const belongs = ingress ? ingressBelongs(record(ingress.spec), url) : 'no';
    if (name === null || belongs === 'no') continue;
    const { field, rest } = splitField(message);
    if (ingress && isOfOtherPath(record(ingress.spec), field, url)) continue;
    const named = belongs === 'named';
    const said = { condition: null, reason, field, message: rest, gateway: `ingress/${name}`, named };
    found.push({ object: `Ingress ${keyOf(object)}`, ...said });
  }
  return found;
}

const nameOf = ({ metadata }: GatewayObject): string =>
  keyOf({ namespace: text(metadata?.namespace), name: text(metadata?.name) });

function ownerOfSet(set: GatewayObject): GatewayKey {
  const parent = record(record(set.spec)['parentRef']);
  const namespace = text(parent['namespace']) || text(set.metadata?.namespace);
  return `gateway/${namespace}/${text(parent['name'])}`;
}

function gatewayOfParent(
  parent: Raw,
  namespace: string,
  setOwners: ReadonlyMap<string, GatewayKey>,
): GatewayKey | null {
  const key = keyOf({ namespace: text(parent['namespace']) || namespace, name: text(parent['name']) });
  return parent['kind'] === 'ListenerSet' ? (setOwners.get(key) ?? null) : `gateway/${key}`;
}

type Belongs = 'named' | 'any' | 'no';

function hostBelongs(hosts: readonly unknown[], { name, address }: RequestUrl, oneLabel: boolean): Belongs {
  const patterns = hosts.map((host) => readHostname(text(host)));
  if (address === null && patterns.some((one) => one !== null && hostMatches(one, name, oneLabel)))
    return 'named';
  // A hostname that cannot be read is a reason of its own, and may have been meant.
  return patterns.length === 0 || patterns.includes(null) ? 'any' : 'no';
}

function routeBelongs(kind: string, spec: Raw, url: RequestUrl): Belongs {
  const host = hostBelongs(list(spec['hostnames']), url, false);
  if (host !== 'any' || kind !== 'HTTPRoute') return host;
  const matches = list(spec['rules']).flatMap((rule) => {
    const own = list(record(rule)['matches']);
    return own.length === 0 ? [{}] : own;
  });
  return matches.length === 0 || matches.some((one) => pathBelongs(record(record(one)['path']), url))
    ? 'any'
    : 'no';
}

/** Reports whether a condition is about a rule that does not take the path. An accepted route has others that count. */
function isOfOtherRule(spec: Raw, { field, condition }: Said, url: RequestUrl): boolean {
  const [, rule] = /^spec\.rules\[([0-9]+)\]/.exec(field ?? '') ?? [];
  if (rule === undefined || condition === 'Accepted=False') return false;
  const matches = list(record(list(spec['rules'])[Number(rule)])['matches']);
  return matches.length > 0 && !matches.some((one) => pathBelongs(record(record(one)['path']), url));
}

/** Reports whether an event of an Ingress is about another host or path. */
function isOfOtherPath(spec: Raw, field: string | null, url: RequestUrl): boolean {
  const [, index, path] = /^spec\.rules\[([0-9]+)\](?:\.http\.paths\[([0-9]+)\])?/.exec(field ?? '') ?? [];
  if (index === undefined) return false;
  const rule = record(list(spec['rules'])[Number(index)]);
  const host = text(rule['host']);
  if (host !== '' && hostBelongs([host], url, true) === 'no') return true;
  if (path === undefined) return false;
  const taken = record(list(record(rule['http'])['paths'])[Number(path)]);
  return !isBelow(pathOf(url), text(taken['path']) || '/');
}

const pathOf = ({ target }: RequestUrl): string => target.replace(/\?.*$/s, '');

function pathBelongs(match: Raw, url: RequestUrl): boolean {
  const path = pathOf(url);
  const value = text(match['value']) || '/';
  switch (match['type'] ?? 'PathPrefix') {
    case 'Exact':
      return path === value;
    case 'RegularExpression': {
      const machine = compileRegex(value);
      // What cannot be compiled is why the rule is refused.
      return machine === null || machine.match(path) !== null;
    }
    default:
      return isBelow(path, value);
  }
}

function isBelow(path: string, prefix: string): boolean {
  const plain = prefix.replace(/\/$/, '');
  return path === plain || path.startsWith(`${plain}/`);
}

function ingressBelongs(spec: Raw, url: RequestUrl): Belongs {
  const rules = list(spec['rules']).map(record);
  const hosts = rules.map((rule) => text(rule['host'])).filter((host) => host !== '');
  if (hosts.length > 0 && hostBelongs(hosts, url, true) === 'named') return 'named';
  const path = pathOf(url);
  const open = rules.filter((rule) => text(rule['host']) === '');
  const paths = open.flatMap((rule) => list(record(rule['http'])['paths']).map(record));
  const takes = paths.some((one) => isBelow(path, text(one['path']) || '/'));
  return takes || spec['defaultBackend'] !== undefined ? 'any' : 'no';
}

/** Yields what a Gateway or ListenerSet, and its listeners for a host, say. */
function* badListeners(
  spec: Raw,
  status: Readonly<Record<string, unknown>>,
  url: RequestUrl,
): Generator<{ readonly bad: Said; readonly named: boolean }> {
  const said = new Map(list(status['listeners']).map((item) => [record(item)['name'], record(item)]));
  let best: Belongs = 'no';
  for (const [index, listener] of list(spec['listeners']).map(record).entries()) {
    if (listener['port'] !== url.port) continue;
    const hostname = text(listener['hostname']);
    const belongs = hostBelongs(hostname === '' ? [] : [hostname], url, false);
    if (belongs === 'no') continue;
    if (best !== 'named') best = belongs;
    for (const bad of badConditions(said.get(listener['name'])?.['conditions'], `spec.listeners[${index}]`))
      yield { bad, named: belongs === 'named' };
  }
  if (best === 'no') return;
  for (const bad of badConditions(status['conditions'], null))
    if (!OF_LISTENERS.has(bad.reason)) yield { bad, named: best === 'named' };
}

/** Reasons that sum up the conditions of listeners. */
const OF_LISTENERS = new Set(['ListenersNotValid', 'ListenersNotResolved']);

type Said = Omit<Unaccepted, 'object'>;

function badConditions(conditions: unknown, place: string | null): readonly Said[] {
  return list(conditions).flatMap((item): readonly Said[] => {
    const { type, status, reason, message } = record(item);
    if (BAD[text(type)] !== status) return [];
    const { field, rest } = splitField(text(message));
    return [
      {
        condition: `${text(type)}=${text(status)}`,
        reason: text(reason),
        field: field ?? FIELDS[text(reason)] ?? place,
        message: rest,
      },
    ];
  });
}

/** Splits "FIELD: what is wrong". */
function splitField(message: string): { readonly field: string | null; readonly rest: string } {
  const [, field, rest] = /^((?:spec|metadata|rules)[.[][^\s:]*): (.*)$/s.exec(message) ?? [];
  return field === undefined || rest === undefined ? { field: null, rest: message } : { field, rest };
}
