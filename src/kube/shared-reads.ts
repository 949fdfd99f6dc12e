import type { Clock } from '../lib/clock.ts';
import { shareCalls } from '../lib/shared-call.ts';
import type { Client } from './client.ts';
import type { KubeObject, Resource } from './types.ts';

/** Reads objects, which callers must not change. */
export interface ObjectReader {
  get<T extends KubeObject>(resource: Resource<T>, name: string, namespace?: string): Promise<T>;
  /** Returns the objects of a namespace. */
  listIn<T extends KubeObject>(resource: Resource<T>, namespace: string): Promise<readonly T[]>;
}

/**
 * Returns a reader whose callers share requests: those that ask for the same while a request is open get the result of the next
 * one, which begins after they asked. Pods that start together so read their ConfigMaps and Services twice, not once for each.
 */
export function shareReads(client: Pick<Client, 'get' | 'list'>, clock: Clock): ObjectReader {
  const open = new Map<string, { readonly ask: () => Promise<unknown>; askers: number }>();
  const ask = async <T>(key: readonly (string | undefined)[], read: () => Promise<T>): Promise<T> => {
    const name = JSON.stringify(key);
    const entry = open.get(name) ?? { ask: shareCalls(read, clock), askers: 0 };
    open.set(name, entry);
    entry.askers++;
    try {
      return (await entry.ask()) as T;
    } finally {
      entry.askers--;
      if (entry.askers === 0) open.delete(name);
    }
  };
  return {
    get: (resource, name, namespace) =>
      ask(['get', resource.group, resource.plural, namespace, name], () =>
        client.get(resource, name, namespace),
      ),
    listIn: (resource, namespace) =>
      ask(
        ['list', resource.group, resource.plural, namespace],
        async () => (await client.list(resource, { namespace })).items,
      ),
  };
}
