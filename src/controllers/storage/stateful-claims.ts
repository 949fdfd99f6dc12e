import type { OwnerReference, PersistentVolumeClaim, Pod, StatefulSet } from '../../kube/types.ts';
import { apiVersionOf, RESOURCES } from '../../kube/types.ts';

/** Returns "data-web-3": the claim of a template for a pod of the set. */
export function claimNameAt(template: string, set: StatefulSet, ordinal: number): string {
  return `${template}-${set.metadata?.name}-${ordinal}`;
}

/** Returns the claims of the set's pod of this ordinal, from the templates. Pure. */
export function claimsAt(set: StatefulSet, ordinal: number): PersistentVolumeClaim[] {
  return (set.spec?.volumeClaimTemplates ?? []).map((template) => ({
    metadata: {
      ...template.metadata,
      name: claimNameAt(template.metadata?.name ?? '', set, ordinal),
      namespace: set.metadata?.namespace ?? '',
      labels: { ...template.metadata?.labels, ...set.spec?.selector?.matchLabels },
    },
    ...(template.spec ? { spec: template.spec } : {}),
  }));
}

/** Returns the pod's volumes with those of its claims, which override others of the same name. */
export function withClaimVolumes(set: StatefulSet, ordinal: number, pod: Pod): Pod {
  const names = (set.spec?.volumeClaimTemplates ?? []).map(({ metadata }) => metadata?.name ?? '');
  if (names.length === 0 || !pod.spec) return pod;
  const claimed = names.map((name) => ({
    name,
    persistentVolumeClaim: { claimName: claimNameAt(name, set, ordinal) },
  }));
  const others = (pod.spec.volumes ?? []).filter(({ name }) => !names.includes(name));
  return { ...pod, spec: { ...pod.spec, volumes: [...claimed, ...others] } };
}

/**
 * Returns the owners of a claim of the set according to its retention policy (KEP-1847), or null if they are up to
 * date: the set if claims are deleted with it, the pod being scaled down if they are deleted with that. Pure.
 */
export function claimOwners(
  set: StatefulSet,
  claim: PersistentVolumeClaim,
  pod: Pod | undefined,
  isScaledAway: boolean,
): OwnerReference[] | null {
  const policy = set.spec?.persistentVolumeClaimRetentionPolicy;
  const { whenDeleted = 'Retain', whenScaled = 'Retain' } = policy ?? {};
  const before = claim.metadata?.ownerReferences ?? [];
  // The set must not change a claim with another controller.
  if (
    before.some(
      (owner) => owner.controller && owner.uid !== set.metadata?.uid && owner.uid !== pod?.metadata?.uid,
    )
  ) {
    return null;
  }
  const wanted: OwnerReference[] = [];
  if (whenScaled === 'Delete' && isScaledAway && pod) wanted.push(referenceTo(RESOURCES.pods, pod));
  else if (whenDeleted === 'Delete') wanted.push(referenceTo(RESOURCES.statefulSets, set));
  const isManaged = (owner: OwnerReference) =>
    owner.uid === set.metadata?.uid || (owner.kind === 'Pod' && owner.name === pod?.metadata?.name);
  const others = before.filter((owner) => !isManaged(owner));
  const after = [...others, ...wanted];
  const key = (owners: readonly OwnerReference[]) =>
    owners
      .map(({ uid, controller }) => `${uid} ${controller ?? false}`)
      .sort()
      .join();
  return key(after) === key(before) ? null : after;
}

function referenceTo(
  resource: typeof RESOURCES.pods | typeof RESOURCES.statefulSets,
  object: Pod | StatefulSet,
): OwnerReference {
  const { name = '', uid = '' } = object.metadata ?? {};
  const apiVersion = apiVersionOf(resource);
  return { apiVersion, kind: resource.kind, name, uid, controller: true, blockOwnerDeletion: true };
}
