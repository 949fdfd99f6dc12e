/**
 * Measures the pure core of the gateways: attach() of many routes, the index of its map, and decide() for one request.
 * The layouts: each route with a host of its own; all routes on one host, each with a path of its own; all routes on one
 * host and path, told apart by a header, for which there is no index; and half of them for hosts, half for every host.
 *
 * node bench/gateway-decide.ts [--routes 10000] [--requests 200000]
 */
import { parseArgs } from 'node:util';
import { attach } from '../src/gateway/attach.ts';
import { decide } from '../src/gateway/decide.ts';
import type { GatewayRequest } from '../src/gateway/decision.ts';
import type { GatewayObject, GatewayObjects } from '../src/gateway/objects.ts';
import { indexRoutes } from '../src/gateway/route-index.ts';
import {
  gateway,
  gatewayClass,
  listener,
  objects,
  prefix,
  request,
  route,
  rule,
  service,
} from '../src/gateway/testing/objects.ts';
import { printTable } from './print-table.ts';

const { values } = parseArgs({
  options: { routes: { type: 'string', default: '10000' }, requests: { type: 'string', default: '200000' } },
});
const [routes, requests] = [Number(values.routes), Number(values.requests)];

interface Layout {
  readonly name: string;
  readonly route: (index: number) => GatewayObject;
  readonly ask: (index: number) => GatewayRequest;
}

const key = { gateway: 'gateway/default/gw' };
const hosted = (index: number) =>
  route(
    `r${index}`,
    [rule('web', prefix('/')), rule('web', prefix('/api/v1'))],
    { age: index % 97 },
    { hostnames: [`h${index}.apps.example`] },
  );

const LAYOUTS: readonly Layout[] = [
  {
    name: 'a host each',
    route: hosted,
    ask: (index) => request(`http://h${index}.apps.example/api/v1/items/7?page=2`, key),
  },
  {
    name: 'a path each, one host',
    route: (index) =>
      route(
        `r${index}`,
        [rule('web', prefix(`/team-${index % 100}/app-${index}`))],
        {},
        { hostnames: ['apps.example'] },
      ),
    ask: (index) => request(`http://apps.example/team-${index % 100}/app-${index}/items/7?page=2`, key),
  },
  {
    name: 'half of them for every host',
    route: (index) =>
      index % 2 === 0 ? hosted(index) : route(`r${index}`, [rule('web', prefix(`/app-${index}`))]),
    ask: (index) => request(`http://h${index - (index % 2)}.apps.example/app-${index}/x`, key),
  },
  {
    name: 'a header each, one path',
    route: (index) =>
      route(`r${index}`, [rule('web', prefix('/', { headers: [{ name: 'x-app', value: `${index}` }] }))]),
    ask: (index) =>
      request('http://apps.example/', { ...key, headers: [{ name: 'X-App', value: `${index}` }] }),
  },
];

/** Microseconds of this process. */
function processorTime(): number {
  const { user, system } = process.cpuUsage();
  return user + system;
}

function measure(layout: Layout): readonly string[] {
  const world: GatewayObjects = objects({
    gatewayClasses: [gatewayClass()],
    gateways: [gateway('gw', [listener('http')])],
    services: [service('web')],
    httpRoutes: Array.from({ length: routes }, (_, index) => layout.route(index)),
  });
  attach(world);
  const start = processorTime();
  const { routeMap } = attach(world);
  const attached = processorTime();
  const index = indexRoutes(routeMap);
  const indexed = processorTime();
  // A prime step visits the routes in an order that no cache knows.
  const asked = Array.from({ length: Math.min(routes, 5000) }, (_, i) => layout.ask((i * 7919) % routes));
  for (const one of asked)
    if (decide(index, one).kind !== 'forward') throw new RangeError(`${layout.name}: not forwarded`);
  const times: number[] = [];
  for (let round = 0; round < 5; round++) {
    const from = processorTime();
    for (let i = 0; i < requests / 5; i++)
      decide(index, asked[i % asked.length] ?? asked[0] ?? layout.ask(0));
    times.push((processorTime() - from) / (requests / 5));
  }
  times.sort((a, b) => a - b);
  const [best = 0] = times;
  return [
    layout.name,
    `${Math.round((attached - start) / 1000)} ms`,
    `${Math.round((indexed - attached) / 1000)} ms`,
    `${best.toFixed(2)} µs`,
    `${(times[2] ?? 0).toFixed(2)} µs`,
  ];
}

console.log(`${routes} HTTPRoutes of a Gateway, Node ${process.version}`);
printTable([['routes', 'attach()', 'index', 'decide(), best', 'median'], ...LAYOUTS.map(measure)]);
