import type { PersistentVolumeClaim, Pod } from '../../kube/types.ts';
import { STORAGE_CLASS_ANNOTATION } from '../../kube/well-known-labels.ts';

/** Returns the name of a generic ephemeral volume's claim (KEP-1698). */
export function ephemeralClaimName(pod: Pod, volume: string): string {
  return `${pod.metadata?.name}-${volume}`;
}

/** A claim that a pod's volume names; `ephemeral` if it must belong to the pod. */
export interface ClaimUse {
  readonly name: string;
  readonly ephemeral: boolean;
}

/** Returns the claims that a pod's volumes use, in the pod's namespace. */
export function claimsOf(pod: Pod): ClaimUse[] {
  return (pod.spec?.volumes ?? []).flatMap(({ name, persistentVolumeClaim, ephemeral }): ClaimUse[] => {
    if (persistentVolumeClaim) return [{ name: persistentVolumeClaim.claimName, ephemeral: false }];
    return ephemeral ? [{ name: ephemeralClaimName(pod, name), ephemeral: true }] : [];
  });
}

/** Returns the class of a claim or volume; the older annotation overrides the field (upstream). */
export function classOf(object: {
  readonly metadata?: { readonly annotations?: Readonly<Record<string, string>> };
  readonly spec?: { readonly storageClassName?: string };
}): string {
  const annotation = object.metadata?.annotations?.[STORAGE_CLASS_ANNOTATION];
  return annotation ?? object.spec?.storageClassName ?? '';
}

/** Reports whether the controller has completed the binding, not only named a volume. */
export function isFullyBound(claim: PersistentVolumeClaim): boolean {
  return Boolean(claim.spec?.volumeName) && claim.metadata?.annotations?.[BIND_COMPLETED] !== undefined;
}

export const BIND_COMPLETED = 'pv.kubernetes.io/bind-completed';
export const BOUND_BY_CONTROLLER = 'pv.kubernetes.io/bound-by-controller';
export const PROVISIONED_BY = 'pv.kubernetes.io/provisioned-by';
/** The scheduler's choice: the provisioner creates the volume for that node. */
export const SELECTED_NODE = 'volume.kubernetes.io/selected-node';
export const NO_PROVISIONER = 'kubernetes.io/no-provisioner';
