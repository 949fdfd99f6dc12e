import type { Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass } from '../../kube/types.ts';
import type { NodeLoad } from '../node-selection.ts';
import { claimsOf, classOf, isFullyBound, NO_PROVISIONER, SELECTED_NODE } from './claims.ts';
import { isAllowedTopology } from './provisioning.ts';
import { findVolume, reachesNode } from './volume-match.ts';

/** The objects that determine where a pod's volumes are usable. */
export interface VolumeSources {
  claim(namespace: string, name: string): PersistentVolumeClaim | undefined;
  volume(name: string): PersistentVolume | undefined;
  volumes(): readonly PersistentVolume[];
  storageClass(name: string): StorageClass | undefined;
  /** Volumes that are being bound for another pod. */
  readonly reserved: ReadonlySet<string>;
}

export interface PodVolumes {
  /** Why the pod fits nowhere; null if its volumes do not prevent it. */
  readonly problem: string | null;
  readonly bound: readonly PersistentVolume[];
  /** Claims that wait for this pod. */
  readonly waiting: readonly { readonly claim: PersistentVolumeClaim; readonly storageClass: StorageClass }[];
  /** Claims that only one pod may use (ReadWriteOncePod). */
  readonly exclusive: readonly string[];
}

/** Computes the requirements of a pod's volumes on its node (upstream's VolumeBinding and VolumeRestrictions). Pure. */
export function podVolumes(pod: Pod, sources: VolumeSources): PodVolumes {
  const bound: PersistentVolume[] = [];
  const waiting: { claim: PersistentVolumeClaim; storageClass: StorageClass }[] = [];
  const exclusive: string[] = [];
  const fail = (problem: string): PodVolumes => ({ problem, bound, waiting, exclusive });
  const { namespace = '', uid } = pod.metadata ?? {};
  for (const { name, ephemeral } of claimsOf(pod)) {
    const claim = sources.claim(namespace, name);
    if (!claim) {
      return fail(
        ephemeral
          ? `waiting for ephemeral volume controller to create the persistentvolumeclaim "${name}"`
          : `persistentvolumeclaim "${name}" not found`,
      );
    }
    if (claim.status?.phase === 'Lost') {
      return fail(
        `persistentvolumeclaim "${name}" bound to non-existent persistentvolume "${claim.spec?.volumeName}"`,
      );
    }
    if (claim.metadata?.deletionTimestamp !== undefined) {
      return fail(`persistentvolumeclaim "${name}" is being deleted`);
    }
    if (ephemeral && !claim.metadata?.ownerReferences?.some((owner) => owner.uid === uid)) {
      return fail(
        `PVC ${namespace}/${name} was not created for pod ${namespace}/${pod.metadata?.name} (pod is not owner)`,
      );
    }
    if (claim.spec?.accessModes?.includes('ReadWriteOncePod')) exclusive.push(name);
    if (isFullyBound(claim)) {
      const volume = sources.volume(claim.spec?.volumeName ?? '');
      if (!volume) return fail(`persistentvolume "${claim.spec?.volumeName}" not found`);
      bound.push(volume);
      continue;
    }
    const storageClass = sources.storageClass(classOf(claim));
    if (storageClass?.volumeBindingMode !== 'WaitForFirstConsumer' || claim.spec?.volumeName) {
      return fail('pod has unbound immediate PersistentVolumeClaims');
    }
    waiting.push({ claim, storageClass });
  }
  return { problem: null, bound, waiting, exclusive };
}

export interface NodeVolumes {
  /** Existing volumes for claims that wait. */
  readonly bindings: readonly { readonly claim: PersistentVolumeClaim; readonly volume: PersistentVolume }[];
  /** Claims whose volumes are provisioned for the node. */
  readonly provision: readonly PersistentVolumeClaim[];
}

/** Computes how a node can provide the pod's volumes, or why it cannot. Pure. */
export function volumesOn(
  needs: PodVolumes,
  node: Node,
  sources: VolumeSources,
): NodeVolumes | { readonly refusal: string } {
  if (!needs.bound.every((volume) => reachesNode(volume, node))) {
    return { refusal: "node(s) didn't match PersistentVolume's node affinity" };
  }
  const taken = new Set(sources.reserved);
  const bindings: { claim: PersistentVolumeClaim; volume: PersistentVolume }[] = [];
  const provision: PersistentVolumeClaim[] = [];
  for (const { claim, storageClass } of needs.waiting) {
    const selected = claim.metadata?.annotations?.[SELECTED_NODE];
    // Its volume is being provisioned for that node.
    if (selected !== undefined) {
      if (selected !== node.metadata?.name) {
        return { refusal: "node(s) didn't find available persistent volumes to bind" };
      }
      provision.push(claim);
      continue;
    }
    const volume = findVolume(claim, sources.volumes(), { node, taken });
    if (volume) {
      taken.add(volume.metadata?.name ?? '');
      bindings.push({ claim, volume });
    } else if (storageClass.provisioner !== NO_PROVISIONER && isAllowedTopology(storageClass, node)) {
      provision.push(claim);
    } else return { refusal: "node(s) didn't find available persistent volumes to bind" };
  }
  return { bindings, provision };
}

/** Returns why pods exclude the pod through claims that only one pod may use; null if none does. */
export function exclusiveRefusal(pod: Pod, needs: PodVolumes, loads: readonly NodeLoad[]): string | null {
  if (needs.exclusive.length === 0) return null;
  const taken = loads.some(({ pods }) =>
    pods.some(
      (other) =>
        other.metadata?.namespace === pod.metadata?.namespace &&
        claimsOf(other).some(({ name }) => needs.exclusive.includes(name)),
    ),
  );
  return taken
    ? 'node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod'
    : null;
}
