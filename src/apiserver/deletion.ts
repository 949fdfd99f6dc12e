import { timestamp } from '../kube/timestamp.ts';
import type { Kind } from './kind.ts';
import { type ApiObject, at, textAt } from './object.ts';
import type { PropagationPolicy } from './verbs/delete-options.ts';

/** What a DELETE asks for, beside its preconditions. */
export interface DeletionRequest {
  readonly gracePeriodSeconds?: number;
  readonly propagationPolicy?: PropagationPolicy;
}

/** What the garbage collector does before the object goes; a policy replaces an earlier one. */
const FINALIZERS = { Foreground: 'foregroundDeletion', Orphan: 'orphan' } as const;

/**
 * Returns the object as a DELETE leaves it; `gone`: nothing keeps it, and it is removed. Pods have a grace period, which a
 * later DELETE can only shorten; other objects remain while they have finalizers.
 */
export function afterDelete(
  kind: Kind,
  current: ApiObject,
  request: DeletionRequest,
  nowMs: number,
): { readonly object: ApiObject; readonly gone: boolean } {
  const isGraceful = kind.collection === 'pods';
  const { deletionTimestamp, deletionGracePeriodSeconds: left = 0 } = current.metadata;
  const isPending = deletionTimestamp !== undefined && isGraceful && left > 0;
  const asked = request.gracePeriodSeconds;
  const isShorter = asked !== undefined && positive(asked) < left;
  if (isPending && !isShorter) return { object: current, gone: false };
  const object = structuredClone(current);
  const { metadata } = object;
  const finalizers = finalizersAfter(kind, current, request);
  if (finalizers.length > 0) metadata.finalizers = finalizers;
  else delete metadata.finalizers;
  const grace =
    isPending && isShorter
      ? positive(asked)
      : isGraceful && deletionTimestamp === undefined
        ? gracePeriod(current, asked)
        : 0;
  const isNamespaceInUse = kind.collection === 'namespaces' && namespaceFinalizers(current).length > 0;
  const gone = finalizers.length === 0 && grace === 0 && !isNamespaceInUse;
  if (gone && !isGraceful) return { object: current, gone };
  if (isPending) {
    // The new period counts from the first DELETE.
    metadata.deletionTimestamp = timestamp(Date.parse(String(deletionTimestamp)) + (grace - left) * 1000);
    metadata.deletionGracePeriodSeconds = grace;
  } else if (deletionTimestamp === undefined) {
    metadata.deletionTimestamp = timestamp(nowMs + grace * 1000);
    metadata.deletionGracePeriodSeconds = grace;
    if (kind.generationFields.length > 0) metadata.generation = (current.metadata.generation ?? 0) + 1;
  }
  if (isNamespaceInUse) object['status'] = { ...(object['status'] as object), phase: 'Terminating' };
  return { object, gone };
}

/** Returns the entries of `spec.finalizers` of a namespace. */
export function namespaceFinalizers(namespace: ApiObject): unknown[] {
  const finalizers = at(namespace, 'spec', 'finalizers');
  return Array.isArray(finalizers) ? finalizers : [];
}

function finalizersAfter(kind: Kind, current: ApiObject, request: DeletionRequest): string[] {
  const { metadata } = current;
  const { propagationPolicy: policy } = request;
  const finalizers = new Set(metadata.finalizers ?? []);
  if (policy !== undefined) {
    for (const finalizer of Object.values(FINALIZERS)) finalizers.delete(finalizer);
    if (policy !== 'Background') finalizers.add(FINALIZERS[policy]);
  }
  if (metadata.deletionTimestamp === undefined) {
    for (const finalizer of kind.deletionFinalizers ?? []) finalizers.add(finalizer);
  }
  return [...finalizers];
}

/** Returns the grace period of a pod in seconds: none before it is on a node, and after its end. */
function gracePeriod(pod: ApiObject, asked: number | undefined): number {
  const phase = textAt(pod, 'status', 'phase');
  if (textAt(pod, 'spec', 'nodeName') === '' || phase === 'Succeeded' || phase === 'Failed') return 0;
  const own = at(pod, 'spec', 'terminationGracePeriodSeconds');
  return positive(asked ?? (typeof own === 'number' ? own : 30));
}

/** Returns the period; a negative one means one second, as upstream. */
const positive = (seconds: number) => (seconds < 0 ? 1 : seconds);
