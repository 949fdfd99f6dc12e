import { timestamp } from '../kube/timestamp.ts';
import type { Kind } from './kind.ts';
import { type ApiObject, at, textAt } from './object.ts';

export type PropagationPolicy = 'Background' | 'Foreground' | 'Orphan';

/** The options of a DELETE, beside its preconditions. */
export interface DeletionRequest {
  readonly gracePeriodSeconds?: number;
  readonly propagationPolicy?: PropagationPolicy;
  /** Deprecated form of the policy: true is Orphan, false is Background. */
  readonly orphanDependents?: boolean;
}

/** The finalizer that makes the garbage collector handle the dependents before the object goes. */
const FINALIZERS = { Foreground: 'foregroundDeletion', Orphan: 'orphan' } as const;
const OF_COLLECTOR: readonly string[] = Object.values(FINALIZERS);

/**
 * Returns the object as a DELETE leaves it; `gone`: nothing keeps it, and it is removed. Pods have a grace period, which a
 * later DELETE can only shorten; other objects remain while they have finalizers. A namespace whose contents are being
 * deleted stays as it is.
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
  const isNamespaceInUse = kind.collection === 'namespaces' && namespaceFinalizers(current).length > 0;
  const isBegun = deletionTimestamp !== undefined && isNamespaceInUse;
  if (isBegun || (isPending && !isShorter)) return { object: current, gone: false };
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
  const gone = finalizers.length === 0 && grace === 0 && !isNamespaceInUse;
  if (gone && (!isGraceful || (deletionTimestamp !== undefined && !isPending)))
    return { object: current, gone };
  if (isPending) {
    // The new period counts from the first DELETE.
    metadata.deletionTimestamp = timestamp(Date.parse(String(deletionTimestamp)) + (grace - left) * 1000);
    metadata.deletionGracePeriodSeconds = grace;
  } else if (deletionTimestamp === undefined) {
    metadata.deletionTimestamp = timestamp(nowMs + grace * 1000);
    if (!isNamespaceInUse) metadata.deletionGracePeriodSeconds = grace;
    const { generation = 0 } = current.metadata;
    if (generation > 0) metadata.generation = generation + 1;
  }
  if (isNamespaceInUse) object['status'] = { ...(object['status'] as object), phase: 'Terminating' };
  return { object, gone };
}

/** Returns the entries of `spec.finalizers` of a namespace. */
export function namespaceFinalizers(namespace: ApiObject): unknown[] {
  const finalizers = at(namespace, 'spec', 'finalizers');
  return Array.isArray(finalizers) ? finalizers : [];
}

/** Returns the finalizers after a DELETE; a policy replaces an earlier one (upstream's registry/generic/registry/store.go). */
function finalizersAfter(kind: Kind, current: ApiObject, request: DeletionRequest): string[] {
  const { deletionTimestamp, finalizers = [] } = current.metadata;
  const policy = propagation(kind, finalizers, request);
  const wanted = policy === 'Background' ? [] : [FINALIZERS[policy]];
  const present = finalizers.filter((one) => OF_COLLECTOR.includes(one));
  const isSame = wanted.length === present.length && wanted.every((one) => present.includes(one));
  const left = isSame ? finalizers : [...finalizers.filter((one) => !OF_COLLECTOR.includes(one)), ...wanted];
  const ofKind = deletionTimestamp === undefined ? (kind.deletionFinalizers ?? []) : [];
  return [...new Set([...left, ...ofKind])];
}

function propagation(kind: Kind, finalizers: readonly string[], request: DeletionRequest): PropagationPolicy {
  const { orphanDependents, propagationPolicy } = request;
  if (kind.propagation === 'Unsupported') return 'Background';
  if (orphanDependents) return 'Orphan';
  // The contents of a namespace go before it in any case.
  if (orphanDependents === false) return kind.collection === 'namespaces' ? 'Foreground' : 'Background';
  if (propagationPolicy !== undefined) return propagationPolicy;
  const earlier = finalizers.find((one) => OF_COLLECTOR.includes(one));
  if (earlier !== undefined) return earlier === FINALIZERS.Orphan ? 'Orphan' : 'Foreground';
  return kind.propagation ?? 'Background';
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
