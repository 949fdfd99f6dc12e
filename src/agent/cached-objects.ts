import type { Informer } from '../kube/informer.ts';
import type { KubeObject } from '../kube/types.ts';

/** Returns the time of the oldest objects of an earlier run that are used without the API server; null: none are. */
export function oldest(informers: readonly Pick<Informer<KubeObject>, 'cachedAt'>[]): number | null {
  const times = informers.flatMap(({ cachedAt }) => cachedAt ?? []);
  return times.length === 0 ? null : Math.min(...times);
}

/** Says how old they are; null: none are used. */
export function cacheProblem(at: number | null): string | null {
  return at === null
    ? null
    : `the API server cannot be reached: using the objects of ${new Date(at).toISOString()}`;
}
