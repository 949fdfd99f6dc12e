import type { Node, PersistentVolume, PersistentVolumeClaim, StorageClass } from '../../kube/types.ts';
import { HOSTNAME_LABEL, VOLUME_PROTECTION_FINALIZER } from '../../kube/well-known-labels.ts';
import { ownMember } from '../../lib/own-member.ts';
import { PROVISIONED_BY } from './claims.ts';

/** The provisioner of the default StorageClass: folders on the machine that all nodes share. */
export const LOCAL_PATH = 'fairlead.io/local-path';
/** Finalizer of a volume until its folder is removed. */
export const FOLDER_FINALIZER = 'fairlead.io/local-path';

/** Storage of provisioned volumes. */
export interface LocalVolumes {
  /** Returns the folder of a volume, by its name. */
  readonly pathOf: (volume: string) => string;
  /** Creates the folder, writable by all. */
  readonly create: (path: string) => Promise<void>;
  /** Removes the folder with its content; resolves also if it does not exist. */
  readonly remove: (path: string) => Promise<void>;
}

/** Returns why the provisioner cannot satisfy a claim; null if it can. */
export function provisioningProblem(claim: PersistentVolumeClaim): string | null {
  if (claim.spec?.volumeMode === 'Block')
    return `${LOCAL_PATH} provides file systems only, not block devices`;
  if (claim.spec?.dataSource || claim.spec?.dataSourceRef) {
    return `${LOCAL_PATH} cannot fill a volume from a data source`;
  }
  if (claim.spec?.selector) return `${LOCAL_PATH} provides no volumes for claims with a selector`;
  return null;
}

/** Reports whether pods on several nodes may use the claim's volume. */
function isShared(claim: PersistentVolumeClaim): boolean {
  return (claim.spec?.accessModes ?? []).some((mode) => mode === 'ReadWriteMany' || mode === 'ReadOnlyMany');
}

/**
 * Builds the volume for a claim. It belongs to the node, like a local disk; a volume for pods of several nodes is
 * reachable from all, since they share the machine's disk. Pure.
 */
export function localVolume(
  claim: PersistentVolumeClaim,
  storageClass: StorageClass,
  node: Node,
  pathOf: LocalVolumes['pathOf'],
): PersistentVolume {
  const { name = '', namespace = '', uid = '', resourceVersion = '' } = claim.metadata ?? {};
  const volume = `pvc-${uid}`;
  const path = pathOf(volume);
  const host = node.metadata?.labels?.[HOSTNAME_LABEL] ?? node.metadata?.name ?? '';
  const match = { key: HOSTNAME_LABEL, operator: 'In', values: [host] };
  return {
    metadata: {
      name: volume,
      annotations: { [PROVISIONED_BY]: LOCAL_PATH },
      finalizers: [VOLUME_PROTECTION_FINALIZER, FOLDER_FINALIZER],
    },
    spec: {
      capacity: { storage: claim.spec?.resources?.requests?.['storage'] ?? '0' },
      accessModes: claim.spec?.accessModes ?? [],
      volumeMode: 'Filesystem',
      persistentVolumeReclaimPolicy: storageClass.reclaimPolicy ?? 'Delete',
      storageClassName: storageClass.metadata?.name ?? '',
      ...(storageClass.mountOptions ? { mountOptions: storageClass.mountOptions } : {}),
      claimRef: { kind: 'PersistentVolumeClaim', apiVersion: 'v1', name, namespace, uid, resourceVersion },
      ...(isShared(claim)
        ? { hostPath: { path, type: 'DirectoryOrCreate' } }
        : {
            local: { path },
            nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions: [match] }] } },
          }),
    },
  };
}

/** Reports whether a class's allowed topologies contain the node. */
export function isAllowedTopology(storageClass: StorageClass, node: Node): boolean {
  const terms = storageClass.allowedTopologies;
  if (!terms || terms.length === 0) return true;
  return terms.some(({ matchLabelExpressions = [] }) =>
    matchLabelExpressions.every(({ key, values }) =>
      values.includes(ownMember(node.metadata?.labels, key) ?? ''),
    ),
  );
}
