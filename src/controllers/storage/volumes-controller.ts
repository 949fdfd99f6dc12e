import { hasReason } from '../../kube/client.ts';
import { timestamp } from '../../kube/timestamp.ts';
import {
  keyOf,
  type PersistentVolume,
  type PersistentVolumeClaim,
  RESOURCES,
  type StorageClass,
  splitKey,
} from '../../kube/types.ts';
import { messageOf } from '../../lib/errors.ts';
import { same } from '../canonical.ts';
import { type ControllerContext, controllerQueue, recorderFor } from '../context.ts';
import { boundClaim, boundStatus, boundVolume, stepOfClaim, stepOfVolume, unboundVolume } from './binding.ts';
import { classOf, PROVISIONED_BY } from './claims.ts';
import {
  FOLDER_FINALIZER,
  LOCAL_PATH,
  type LocalVolumes,
  localVolume,
  provisioningProblem,
} from './provisioning.ts';
import { nodeOfVolume } from './volume-node.ts';

const PROVISIONER_ANNOTATIONS = [
  'volume.beta.kubernetes.io/storage-provisioner',
  'volume.kubernetes.io/storage-provisioner',
];

/** Binds claims to volumes, provisions volumes of the local-path provisioner, and implements reclaim policies. */
export function startVolumes(context: ControllerContext, local: LocalVolumes | undefined): void {
  const { caches, client, clock, signal } = context;
  const { persistentVolumes: volumes, persistentVolumeClaims: claims, storageClasses } = caches;
  const events = recorderFor(context, 'persistentvolume-controller');
  const recordClaimEvent = (
    claim: PersistentVolumeClaim,
    type: 'Normal' | 'Warning',
    reason: string,
    message: string,
  ) => events.event(claim, type, reason, message, RESOURCES.persistentVolumeClaims);

  const syncClaim = async (claim: PersistentVolumeClaim) => {
    const storageClass = storageClasses.get(undefined, classOf(claim));
    const step = stepOfClaim({ claim, volumes: volumes.informer.list(), storageClass });
    switch (step.step) {
      case 'bind':
        await bind(claim, step.volume);
        return;
      case 'provision':
        await provision(claim, step.storageClass);
        return;
      case 'wait':
        recordClaimEvent(claim, step.type, step.reason, step.message);
        await setClaimPhase(claim, 'Pending');
        return;
      case 'lose':
        if (claim.status?.phase !== 'Lost') recordClaimEvent(claim, 'Warning', step.reason, step.message);
        await setClaimPhase(claim, 'Lost');
    }
  };
  const setClaimPhase = async (claim: PersistentVolumeClaim, phase: string) => {
    if (claim.status?.phase === phase) return;
    await claims.updateStatus({ ...claim, status: { ...claim.status, phase } });
  };
  /** The volume first: two claims can compete for it, and only one gets its claimRef. */
  const bind = async (claim: PersistentVolumeClaim, volume: PersistentVolume) => {
    const taken = boundVolume(volume, claim);
    const held = taken === volume ? volume : await volumes.update(taken);
    await setVolumePhase(held, 'Bound');
    const wanted = boundClaim(claim, held);
    const bound = wanted === claim ? claim : await claims.update(wanted);
    const status = { ...bound.status, ...boundStatus(held) };
    if (!same(status, bound.status)) await claims.updateStatus({ ...bound, status });
  };
  const setVolumePhase = async (volume: PersistentVolume, phase: string, message = '') => {
    if (volume.status?.phase === phase && (volume.status.message ?? '') === message) return;
    const status = {
      phase,
      ...(message ? { message } : {}),
      lastPhaseTransitionTime: timestamp(clock.now()),
    };
    await volumes.updateStatus({ ...volume, status });
  };

  const provision = async (claim: PersistentVolumeClaim, storageClass: StorageClass) => {
    const { provisioner } = storageClass;
    if (claim.metadata?.annotations?.[PROVISIONER_ANNOTATIONS[1] ?? ''] !== provisioner) {
      const annotations = Object.fromEntries(PROVISIONER_ANNOTATIONS.map((key) => [key, provisioner]));
      await claims.patch(claim, 'merge', { metadata: { uid: claim.metadata?.uid, annotations } });
      return;
    }
    if (provisioner !== LOCAL_PATH || !local) {
      recordClaimEvent(
        claim,
        'Normal',
        'ExternalProvisioning',
        `Waiting for a volume to be created either by the external provisioner '${provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.`,
      );
      await setClaimPhase(claim, 'Pending');
      return;
    }
    const problem = provisioningProblem(claim);
    if (problem !== null) {
      const message = `failed to provision volume with StorageClass "${storageClass.metadata?.name}": ${problem}`;
      recordClaimEvent(claim, 'Warning', 'ProvisioningFailed', message);
      return;
    }
    const node = await nodeOfVolume(context, claim, (message) =>
      recordClaimEvent(claim, 'Warning', 'ProvisioningFailed', message),
    );
    if (!node) return;
    const volume = localVolume(claim, storageClass, node, local.pathOf);
    const path = volume.spec?.local?.path ?? volume.spec?.hostPath?.path ?? '';
    try {
      await local.create(path);
    } catch (error) {
      recordClaimEvent(
        claim,
        'Warning',
        'ProvisioningFailed',
        `failed to create ${path}: ${messageOf(error)}`,
      );
      throw error;
    }
    const made = await createVolume(volume);
    const message = `Successfully provisioned volume ${made.metadata?.name}`;
    recordClaimEvent(claim, 'Normal', 'ProvisioningSucceeded', message);
    await bind(claims.informer.get(keyOf(claim)) ?? claim, made);
  };
  const createVolume = async (volume: PersistentVolume): Promise<PersistentVolume> => {
    try {
      return await volumes.create(volume);
    } catch (error) {
      // Provisioned earlier without binding the claim: the name contains the claim's uid.
      if (hasReason(error, 'AlreadyExists')) {
        return client.get(RESOURCES.persistentVolumes, volume.metadata?.name ?? '', undefined, { signal });
      }
      throw error;
    }
  };
  const syncVolume = async (volume: PersistentVolume) => {
    const reference = volume.spec?.claimRef;
    const found = reference ? await claimOf(reference.namespace ?? '', reference.name ?? '') : undefined;
    const claim = found?.metadata?.uid === reference?.uid ? found : undefined;
    const step = stepOfVolume({ volume, claim });
    switch (step.step) {
      case 'phase':
        await setVolumePhase(volume, step.phase);
        if (reference && !claim?.spec?.volumeName)
          queue.add(`claim ${reference.namespace}/${reference.name}`);
        return;
      case 'unbind': {
        const free = await volumes.update(unboundVolume(volume));
        await setVolumePhase(free, 'Available');
        return;
      }
      case 'release':
        await release(volume);
    }
  };
  /** Reads from the server only: the release of a volume depends on it. */
  const claimOf = async (namespace: string, name: string): Promise<PersistentVolumeClaim | undefined> => {
    const known = claims.get(namespace, name);
    if (known) return known;
    try {
      return await client.get(RESOURCES.persistentVolumeClaims, name, namespace, { signal });
    } catch (error) {
      if (hasReason(error, 'NotFound')) return undefined;
      throw error;
    }
  };
  const release = async (volume: PersistentVolume) => {
    const policy = volume.spec?.persistentVolumeReclaimPolicy ?? 'Retain';
    const isOurs = volume.metadata?.annotations?.[PROVISIONED_BY] === LOCAL_PATH && local !== undefined;
    const isForeign = volume.metadata?.annotations?.[PROVISIONED_BY] !== undefined && !isOurs;
    if (volume.status?.phase !== 'Failed') await setVolumePhase(volume, 'Released');
    if (policy === 'Retain' || isForeign) return;
    if (policy === 'Delete' && isOurs) {
      await local.remove(local.pathOf(volume.metadata?.name ?? ''));
      await volumes.delete(volume);
      return;
    }
    const message =
      policy === 'Delete'
        ? `error getting deleter volume plugin for volume "${volume.metadata?.name}": no deletable volume plugin matched`
        : `the reclaim policy ${policy} is not supported: use Retain or Delete`;
    if (volume.status?.phase === 'Failed') return;
    const current = volumes.get(undefined, volume.metadata?.name ?? '') ?? volume;
    const reason = policy === 'Delete' ? 'VolumeFailedDelete' : 'VolumeFailedRecycle';
    events.event(volume, 'Warning', reason, message, RESOURCES.persistentVolumes);
    await setVolumePhase(current, 'Failed', message);
  };
  /** Removes the finalizer of a volume that is being deleted, after its claim is gone and its folder is removed. */
  const releaseVolume = async (volume: PersistentVolume) => {
    if (volume.status?.phase === 'Bound') return;
    const { uid, resourceVersion, name = '', finalizers = [] } = volume.metadata ?? {};
    const ours = ['kubernetes.io/pv-protection', FOLDER_FINALIZER];
    const left = finalizers.filter((finalizer) => !ours.includes(finalizer));
    if (left.length === finalizers.length) return;
    const isDeleted = volume.spec?.persistentVolumeReclaimPolicy === 'Delete';
    if (finalizers.includes(FOLDER_FINALIZER) && isDeleted && local) await local.remove(local.pathOf(name));
    await volumes.patch(volume, 'merge', { metadata: { uid, resourceVersion, finalizers: left } });
  };

  // One at a time: two claims must not choose the same volume.
  const queue = controllerQueue(
    context,
    'persistent-volumes',
    async (id) => {
      const [kind, key = ''] = id.split(' ');
      if (kind === 'claim') {
        const { namespace, name } = splitKey(key);
        const claim = claims.get(namespace, name);
        if (claim && claim.metadata?.deletionTimestamp === undefined) await syncClaim(claim);
        return;
      }
      const volume = volumes.get(undefined, key);
      if (!volume) return;
      await syncVolume(volume);
      const current = volumes.get(undefined, key);
      if (current?.metadata?.deletionTimestamp !== undefined) await releaseVolume(current);
    },
    1,
  );
  const addClaim = (claim: PersistentVolumeClaim) => queue.add(`claim ${keyOf(claim)}`);
  const addVolume = (volume: PersistentVolume) => queue.add(`volume ${volume.metadata?.name}`);
  const addPending = (className?: string) => {
    for (const claim of claims.informer.list()) {
      if (claim.status?.phase === 'Bound') continue;
      if (className === undefined || classOf(claim) === className) addClaim(claim);
    }
  };
  claims.informer.handle({
    onAdd: addClaim,
    onUpdate: addClaim,
    onDelete(claim) {
      const volume = volumes.get(undefined, claim.spec?.volumeName ?? '');
      if (volume) addVolume(volume);
    },
  });
  const addVolumeAndClaims = (volume: PersistentVolume) => {
    addVolume(volume);
    const reference = volume.spec?.claimRef;
    if (reference) queue.add(`claim ${reference.namespace}/${reference.name}`);
    else addPending();
  };
  volumes.informer.handle({
    onAdd: addVolumeAndClaims,
    onUpdate: addVolumeAndClaims,
    onDelete(volume) {
      const reference = volume.spec?.claimRef;
      if (reference) queue.add(`claim ${reference.namespace}/${reference.name}`);
    },
  });
  storageClasses.informer.handle({
    onAdd: ({ metadata }) => addPending(metadata?.name),
    onUpdate: ({ metadata }) => addPending(metadata?.name),
  });
}
