import type { Client } from '../kube/client.ts';
import { ANNOUNCEMENT_LABEL, ANNOUNCEMENT_NAMESPACE } from '../kube/load-balancer.ts';
import { type Lease, type Pod, RESOURCES } from '../kube/types.ts';
import { podIndex } from '../observe/explain-places.ts';

export interface ListedObjects {
  readonly pods: readonly Pod[];
  /** Leases of announced addresses. */
  readonly leases: readonly Lease[];
}

/** Listed objects, with an index for many questions. */
export interface IndexedObjects extends ListedObjects {
  /** The pods by address; see podIndex. */
  readonly podsByAddress: ReadonlyMap<string, Pod>;
}

export const indexObjects = (objects: ListedObjects): IndexedObjects => ({
  ...objects,
  podsByAddress: podIndex(objects.pods),
});

/** Lists the objects that an explanation needs and agents do not watch. `announcer`: may list the Leases of announced addresses. */
export async function listObjectsToExplain(client: Client, announcer = client): Promise<ListedObjects> {
  const [{ items: pods }, { items: leases }] = await Promise.all([
    client.list(RESOURCES.pods),
    announcer.list(RESOURCES.leases, {
      namespace: ANNOUNCEMENT_NAMESPACE,
      labelSelector: ANNOUNCEMENT_LABEL,
    }),
  ]);
  return { pods, leases };
}
