import type { Random } from '../../service/testing/random.ts';
import type { GatewayRequest } from '../decision.ts';
import type { GatewayObject, GatewayObjects } from '../objects.ts';
import { gateway, gatewayClass, namespaceObject, object, objects, request, service } from './objects.ts';

/** Few names, so that hosts, paths, times and conditions meet often. */
const HOSTNAMES = [
  'a.example',
  'b.a.example',
  'c.b.a.example',
  '*.example',
  '*.a.example',
  '*.b.a.example',
  'other.test',
];
const HOSTS = [
  'a.example',
  'b.a.example',
  'c.b.a.example',
  'd.c.b.a.example',
  'x.example',
  'other.test',
  'example',
  'A.Example:80',
];
const PATHS = ['/', '/x', '/x/', '/x/y', '/x/y/z', '/xy', '/y', '//x', '/x//y'];
const REGEXES = ['/x.*', '/[xy]', '/x(/y)?', '/.*y'];
const METHODS = ['GET', 'POST'];
const VALUES = ['1', '2', '12'];
const SERVICES = ['a', 'b', 'missing'];
const NAMESPACES = ['default', 'other'];

function many<T>(random: Random, most: number, make: () => T): T[] {
  return Array.from({ length: random.integer(most + 1) }, make);
}

function conditions(random: Random, names: readonly string[]) {
  const used = names.filter(() => random.chance(0.3));
  return used.map((name) =>
    random.chance(0.2)
      ? { name, type: 'RegularExpression', value: '1.*|2' }
      : { name, value: random.pick(VALUES) },
  );
}

function match(random: Random) {
  const kind = random.pick(['Exact', 'PathPrefix', 'PathPrefix', 'RegularExpression']);
  const value = kind === 'RegularExpression' ? random.pick(REGEXES) : random.pick(PATHS.slice(0, 7));
  const headers = conditions(random, ['x-a', 'X-B']);
  const queryParams = conditions(random, ['q', 'r']);
  return {
    ...(random.chance(0.85) ? { path: { type: kind, value } } : {}),
    ...(random.chance(0.2) ? { method: random.pick(METHODS) } : {}),
    ...(headers.length > 0 ? { headers } : {}),
    ...(queryParams.length > 0 ? { queryParams } : {}),
  };
}

function backend(random: Random) {
  return {
    name: random.pick(SERVICES),
    port: 80,
    ...(random.chance(0.2) ? { namespace: random.pick(NAMESPACES) } : {}),
    ...(random.chance(0.2) ? { weight: random.integer(3) } : {}),
  };
}

function httpRoute(random: Random, name: string): GatewayObject {
  const hostnames = [...new Set(many(random, 2, () => random.pick(HOSTNAMES)))];
  const rules = Array.from({ length: 1 + random.integer(3) }, () => ({
    ...(random.chance(0.9)
      ? { matches: Array.from({ length: 1 + random.integer(2) }, () => match(random)) }
      : {}),
    backendRefs: Array.from({ length: 1 + random.integer(2) }, () => backend(random)),
  }));
  const parent = {
    name: random.pick(['gw', 'gw', 'gw', 'none']),
    namespace: 'default',
    ...(random.chance(0.2) ? { sectionName: random.pick(['l0', 'l1', 's0']) } : {}),
    ...(random.chance(0.2) ? { port: random.pick([80, 443]) } : {}),
  };
  const spec = { parentRefs: [parent], rules, ...(hostnames.length > 0 ? { hostnames } : {}) };
  return object(name, spec, { namespace: random.pick(NAMESPACES), age: random.integer(3) });
}

function listeners(random: Random, letter: string, protocol: string, port: number) {
  const hostnames = [...new Set(many(random, 3, () => random.pick(HOSTNAMES)))];
  const all = random.chance(0.6) || hostnames.length === 0 ? [undefined, ...hostnames] : hostnames;
  return all.map((hostname, index) => ({
    name: `${letter}${index}`,
    port,
    protocol,
    ...(hostname === undefined ? {} : { hostname }),
    ...(protocol === 'HTTPS' ? { tls: { certificateRefs: [{ name: 'tls' }] } } : {}),
    allowedRoutes: { namespaces: { from: random.pick(['All', 'All', 'Same']) } },
  }));
}

/** Returns a random Gateway "gw" with HTTPRoutes. */
export function randomRoutes(random: Random): GatewayObjects {
  const grant = {
    from: [{ group: 'gateway.networking.k8s.io', kind: 'HTTPRoute', namespace: random.pick(NAMESPACES) }],
    to: [{ group: '', kind: 'Service', ...(random.chance(0.5) ? { name: random.pick(SERVICES) } : {}) }],
  };
  return objects({
    gatewayClasses: [gatewayClass()],
    namespaces: NAMESPACES.map((name) => namespaceObject(name)),
    services: [service('a'), service('b'), service('a', { namespace: 'other' })],
    certificates: new Map([['default/tls', null]]),
    gateways: [
      gateway('gw', [...listeners(random, 'l', 'HTTP', 80), ...listeners(random, 's', 'HTTPS', 443)]),
    ],
    httpRoutes: Array.from({ length: 1 + random.integer(5) }, (_, index) => httpRoute(random, `r${index}`)),
    referenceGrants: random.chance(0.5)
      ? [object('grant', grant, { namespace: random.pick(NAMESPACES) })]
      : [],
  });
}

/** Returns a random request to it. */
export function randomRequest(random: Random): GatewayRequest {
  const host = random.pick(HOSTS);
  const query = many(random, 2, () => `${random.pick(['q', 'r', 's'])}=${random.pick(VALUES)}`).join('&');
  const target = `${random.pick(PATHS)}${query === '' ? '' : `?${query}`}`;
  const headers = many(random, 3, () => ({ name: random.pick(['X-A', 'x-b']), value: random.pick(VALUES) }));
  const base = request(`http://${host}${target}`, {
    gateway: 'gateway/default/gw',
    method: random.pick(METHODS),
    headers,
    host,
    target,
  });
  if (random.chance(0.5)) return base;
  const serverName = random.chance(0.7)
    ? host.toLowerCase().replace(/:\d+$/, '')
    : random.pick(HOSTS.slice(0, 7));
  return { ...base, port: 443, serverName };
}
