import { hasReason } from '../../kube/client.ts';
import {
  keyOf,
  type PersistentVolume,
  type PersistentVolumeClaim,
  RESOURCES,
  splitKey,
} from '../../kube/types.ts';
import { messageOf } from '../../lib/errors.ts';
import { type ContextWith, controllerQueue, recorderFor } from '../context.ts';
import { classOf, PROVISIONED_BY } from './claims.ts';
import {
  FOLDER_FINALIZER,
  LOCAL_PATH,
  type LocalVolumes,
  localVolume,
  provisioningProblem,
} from './provisioning.ts';
import { nodeOfVolume } from './volume-node.ts';

/** Written by kube-controller-manager when a provisioner is to create the claim's volume. */
const PROVISIONER = 'volume.kubernetes.io/storage-provisioner';

type Context = ContextWith<'nodes' | 'persistentVolumes' | 'persistentVolumeClaims' | 'storageClasses'>;

/**
 * Creates and removes the volumes of the local-path provisioner beside kube-controller-manager, which binds them to their
 * claims and releases them.
 */
export function startExternalProvisioner(context: Context, local: LocalVolumes): void {
  const { caches } = context;
  const { persistentVolumes: volumes, persistentVolumeClaims: claims, storageClasses } = caches;
  const events = recorderFor(context, LOCAL_PATH);
  const fail = (claim: PersistentVolumeClaim, message: string) =>
    events.event(claim, 'Warning', 'ProvisioningFailed', message, RESOURCES.persistentVolumeClaims);

  const provision = async (claim: PersistentVolumeClaim) => {
    const { annotations = {}, deletionTimestamp } = claim.metadata ?? {};
    const storageClass = storageClasses.get(undefined, classOf(claim));
    const isWanted = annotations[PROVISIONER] === LOCAL_PATH && storageClass?.provisioner === LOCAL_PATH;
    if (!isWanted || claim.spec?.volumeName || deletionTimestamp !== undefined) return;
    const problem = provisioningProblem(claim);
    if (problem !== null) {
      fail(claim, problem);
      return;
    }
    const node = await nodeOfVolume(context, claim, (message) => fail(claim, message));
    if (!node) return;
    const volume = localVolume(claim, storageClass, node, local.pathOf);
    const path = volume.spec?.local?.path ?? volume.spec?.hostPath?.path ?? '';
    try {
      await local.create(path);
      await volumes.create(volume);
    } catch (error) {
      // The name contains the claim's uid: created earlier, and not yet bound.
      if (hasReason(error, 'AlreadyExists')) return;
      fail(claim, `failed to provision ${path}: ${messageOf(error)}`);
      throw error;
    }
    const message = `Successfully provisioned volume ${volume.metadata?.name}`;
    events.event(claim, 'Normal', 'ProvisioningSucceeded', message, RESOURCES.persistentVolumeClaims);
  };

  const release = async (volume: PersistentVolume) => {
    const { annotations = {}, finalizers = [], deletionTimestamp, name = '' } = volume.metadata ?? {};
    if (annotations[PROVISIONED_BY] !== LOCAL_PATH) return;
    const isDeleted = deletionTimestamp !== undefined;
    const isFree = volume.status?.phase === 'Released' || (isDeleted && volume.status?.phase !== 'Bound');
    if (!isFree) return;
    if (volume.spec?.persistentVolumeReclaimPolicy === 'Delete') {
      await local.remove(local.pathOf(name));
      if (!isDeleted) await volumes.delete(volume);
    } else if (!isDeleted) return;
    const left = finalizers.filter((finalizer) => finalizer !== FOLDER_FINALIZER);
    if (left.length === finalizers.length) return;
    const { uid } = volume.metadata ?? {};
    await volumes.patch(volume, 'merge', { metadata: { uid, finalizers: left } });
  };

  const queue = controllerQueue(context, 'local-path-provisioner', async (id) => {
    const [kind, key = ''] = id.split(' ');
    if (kind === 'claim') {
      const { namespace, name } = splitKey(key);
      const claim = claims.get(namespace, name);
      if (claim) await provision(claim);
      return;
    }
    const volume = volumes.get(undefined, key);
    if (volume) await release(volume);
  });
  const addClaim = (claim: PersistentVolumeClaim) => queue.add(`claim ${keyOf(claim)}`);
  const addVolume = (volume: PersistentVolume) => queue.add(`volume ${volume.metadata?.name}`);
  claims.informer.handle({ onAdd: addClaim, onUpdate: addClaim, onDelete() {} });
  volumes.informer.handle({ onAdd: addVolume, onUpdate: addVolume, onDelete() {} });
}
