import type { Node, PersistentVolumeClaim } from '../../kube/types.ts';
import { FairleadError } from '../../lib/errors.ts';
import type { ContextWith } from '../context.ts';
import { nodeTaints } from '../taints.ts';
import { SELECTED_NODE } from './claims.ts';

/**
 * Returns the node of a claim's volume: the scheduler's choice, or any ready one for a claim that does not
 * wait for a pod. Undefined: the selected node no longer exists, and the scheduler is asked for another. If no node is
 * ready, calls `fail` with the reason and throws FairleadError.
 */
export async function nodeOfVolume(
  { caches, random }: Pick<ContextWith<'nodes' | 'persistentVolumeClaims'>, 'caches' | 'random'>,
  claim: PersistentVolumeClaim,
  fail: (message: string) => void,
): Promise<Node | undefined> {
  const { uid, annotations } = claim.metadata ?? {};
  const selected = annotations?.[SELECTED_NODE];
  if (selected !== undefined) {
    const node = caches.nodes.get(undefined, selected);
    if (!node) {
      const none = { metadata: { uid, annotations: { [SELECTED_NODE]: null } } };
      await caches.persistentVolumeClaims.patch(claim, 'merge', none);
    }
    return node;
  }
  const ready = caches.nodes.informer.list().filter((node) => nodeTaints(node).length === 0);
  const node = ready[Math.floor(random() * ready.length)];
  if (node) return node;
  const message = 'no node is ready for a volume';
  fail(message);
  const hint = 'kubectl describe nodes shows why they are not ready';
  throw new FairleadError(message, { op: 'provision volume', code: 'not-ready', hint });
}
