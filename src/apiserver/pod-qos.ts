import { type ApiObject, isObject } from './object.ts';

/** Returns Guaranteed, Burstable or BestEffort, by the containers' requests and limits of CPU and memory. */
export function qosClass(pod: ApiObject): string {
  const spec = isObject(pod['spec']) ? pod['spec'] : {};
  const containers = [spec['containers'], spec['initContainers']].flatMap((list) =>
    Array.isArray(list) ? list : [],
  );
  let any = false;
  let guaranteed = true;
  for (const container of containers) {
    const resources = isObject(container) && isObject(container['resources']) ? container['resources'] : {};
    const requests = isObject(resources['requests']) ? resources['requests'] : {};
    const limits = isObject(resources['limits']) ? resources['limits'] : {};
    for (const name of ['cpu', 'memory']) {
      if (requests[name] !== undefined || limits[name] !== undefined) any = true;
      if (limits[name] === undefined || (requests[name] ?? limits[name]) !== limits[name]) guaranteed = false;
    }
  }
  return !any ? 'BestEffort' : guaranteed ? 'Guaranteed' : 'Burstable';
}
