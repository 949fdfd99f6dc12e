import { type Frontend, type Pool, SOURCE_CLASSES } from './model.ts';

/** Returns the distinct pools that a frontend's routes forward to. */
export function poolsOf({ routes }: Pick<Frontend, 'routes'>): Pool[] {
  const pools = new Set<Pool>();
  for (const source of SOURCE_CLASSES) {
    const route = routes[source];
    if (route.action === 'forward') pools.add(route.pool);
  }
  return [...pools];
}
