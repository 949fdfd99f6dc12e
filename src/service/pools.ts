import { type Endpoint, type Frontend, type Pool, SOURCE_CLASSES } from './model.ts';

/** Returns the distinct pools that a frontend's routes forward to. */
export function poolsOf({ routes }: Pick<Frontend, 'routes'>): Pool[] {
  const pools = new Set<Pool>();
  for (const source of SOURCE_CLASSES) {
    const route = routes[source];
    if (route.action === 'forward') pools.add(route.pool);
  }
  return [...pools];
}

/** Returns "10.244.1.2 8080". */
export const endpointPlace = ({ ip, port }: Pick<Endpoint, 'ip' | 'port'>): string => `${ip} ${port}`;

/** Returns the places of the endpoints that flows through a frontend may lead to; `spared` ones get no new flows. */
export function servingPlaces(frontend: Pick<Frontend, 'routes'>): Set<string> {
  const served = poolsOf(frontend).flatMap(({ endpoints, spared = [] }) => [...endpoints, ...spared]);
  return new Set(served.map(endpointPlace));
}

/** Returns the keys of the endpoints that no longer serve a source class; null `after`: all. */
export function lostEndpoints(before: Frontend, after: Frontend | null): Set<string> {
  const lost = new Set<string>();
  for (const source of SOURCE_CLASSES) {
    const [old, now] = [before.routes[source], after?.routes[source]];
    if (old.action !== 'forward' || old === now) continue;
    const serving = new Set(now?.action === 'forward' ? now.pool.endpoints.map(endpointPlace) : []);
    for (const endpoint of old.pool.endpoints) {
      if (!serving.has(endpointPlace(endpoint))) lost.add(endpointPlace(endpoint));
    }
  }
  return lost;
}
