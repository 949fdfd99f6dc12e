import { hasReason } from '../../kube/client.ts';
import type { EventRecorder } from '../../kube/events.ts';
import { timestamp } from '../../kube/timestamp.ts';
import {
  keyOf,
  type PersistentVolume,
  type PersistentVolumeClaim,
  RESOURCES,
  type StorageClass,
  splitKey,
} from '../../kube/types.ts';
import { VOLUME_PROTECTION_FINALIZER } from '../../kube/well-known-labels.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Cache } from '../cache.ts';
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

/** The state that the steps of the controller share. */
interface VolumeWork {
  readonly context: ControllerContext;
  /** Undefined: this process provisions no volumes. */
  readonly local: LocalVolumes | undefined;
  readonly volumes: Cache<PersistentVolume>;
  readonly claims: Cache<PersistentVolumeClaim>;
  readonly storageClasses: Cache<StorageClass>;
  readonly events: EventRecorder;
  readonly recordClaimEvent: (
    claim: PersistentVolumeClaim,
    type: 'Normal' | 'Warning',
    reason: string,
    message: string,
  ) => void;
  /** Handles a claim again. */
  readonly addClaim: (namespace: string, name: string) => void;
}

/** Binds claims to volumes, provisions volumes of the local-path provisioner, and implements reclaim policies. */
export function startVolumes(context: ControllerContext, local: LocalVolumes | undefined): void {
  const { persistentVolumes: volumes, persistentVolumeClaims: claims, storageClasses } = context.caches;
  const events = recorderFor(context, 'persistentvolume-controller');
  const work: VolumeWork = {
    context,
    local,
    ...{ volumes, claims, storageClasses, events },
    recordClaimEvent: (claim, ...event) => events.event(claim, ...event, RESOURCES.persistentVolumeClaims),
    addClaim: (namespace, name) => queue.add(`claim ${namespace}/${name}`),
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
        if (claim && claim.metadata?.deletionTimestamp === undefined) await syncClaim(work, claim);
        return;
      }
      const volume = volumes.get(undefined, key);
      if (!volume) return;
      await syncVolume(work, volume);
      const current = volumes.get(undefined, key);
      if (current?.metadata?.deletionTimestamp !== undefined) await releaseVolume(work, current);
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

const syncClaim = async (work: VolumeWork, claim: PersistentVolumeClaim) => {
  const storageClass = work.storageClasses.get(undefined, classOf(claim));
  const step = stepOfClaim({ claim, volumes: work.volumes.informer.list(), storageClass });
  switch (step.step) {
    case 'bind':
      await bind(work, claim, step.volume);
      return;
    case 'provision':
      await provision(work, claim, step.storageClass);
      return;
    case 'wait':
      work.recordClaimEvent(claim, step.type, step.reason, step.message);
      await setClaimPhase(work, claim, 'Pending');
      return;
    case 'lose':
      if (claim.status?.phase !== 'Lost') work.recordClaimEvent(claim, 'Warning', step.reason, step.message);
      await setClaimPhase(work, claim, 'Lost');
  }
};

const setClaimPhase = async (work: VolumeWork, claim: PersistentVolumeClaim, phase: string) => {
  if (claim.status?.phase === phase) return;
  await work.claims.updateStatus({ ...claim, status: { ...claim.status, phase } });
};

/** The volume first: two claims can compete for it, and only one gets its claimRef. */
const bind = async (work: VolumeWork, claim: PersistentVolumeClaim, volume: PersistentVolume) => {
  const taken = boundVolume(volume, claim);
  const held = taken === volume ? volume : await work.volumes.update(taken);
  await setVolumePhase(work, held, 'Bound');
  const wanted = boundClaim(claim, held);
  const bound = wanted === claim ? claim : await work.claims.update(wanted);
  const status = { ...bound.status, ...boundStatus(held) };
  if (!same(status, bound.status)) await work.claims.updateStatus({ ...bound, status });
};

const setVolumePhase = async (work: VolumeWork, volume: PersistentVolume, phase: string, message = '') => {
  if (volume.status?.phase === phase && (volume.status.message ?? '') === message) return;
  const status = {
    phase,
    ...(message ? { message } : {}),
    lastPhaseTransitionTime: timestamp(work.context.clock.now()),
  };
  await work.volumes.updateStatus({ ...volume, status });
};

const provision = async (work: VolumeWork, claim: PersistentVolumeClaim, storageClass: StorageClass) => {
  const { provisioner } = storageClass;
  if (claim.metadata?.annotations?.[PROVISIONER_ANNOTATIONS[1] ?? ''] !== provisioner) {
    const annotations = Object.fromEntries(PROVISIONER_ANNOTATIONS.map((key) => [key, provisioner]));
    await work.claims.patch(claim, 'merge', { metadata: { uid: claim.metadata?.uid, annotations } });
    return;
  }
  if (provisioner !== LOCAL_PATH || !work.local) {
    work.recordClaimEvent(
      claim,
      'Normal',
      'ExternalProvisioning',
      `Waiting for a volume to be created either by the external provisioner '${provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.`,
    );
    await setClaimPhase(work, claim, 'Pending');
    return;
  }
  const problem = provisioningProblem(claim);
  if (problem !== null) {
    const message = `failed to provision volume with StorageClass "${storageClass.metadata?.name}": ${problem}`;
    work.recordClaimEvent(claim, 'Warning', 'ProvisioningFailed', message);
    return;
  }
  const node = await nodeOfVolume(work.context, claim, (message) =>
    work.recordClaimEvent(claim, 'Warning', 'ProvisioningFailed', message),
  );
  if (!node) return;
  const volume = localVolume(claim, storageClass, node, work.local.pathOf);
  const path = volume.spec?.local?.path ?? volume.spec?.hostPath?.path ?? '';
  try {
    await work.local.create(path);
  } catch (error) {
    work.recordClaimEvent(
      claim,
      'Warning',
      'ProvisioningFailed',
      `failed to create ${path}: ${messageOf(error)}`,
    );
    throw error;
  }
  const made = await createVolume(work, volume);
  const message = `Successfully provisioned volume ${made.metadata?.name}`;
  work.recordClaimEvent(claim, 'Normal', 'ProvisioningSucceeded', message);
  await bind(work, work.claims.informer.get(keyOf(claim)) ?? claim, made);
};

const createVolume = async (work: VolumeWork, volume: PersistentVolume): Promise<PersistentVolume> => {
  try {
    return await work.volumes.create(volume);
  } catch (error) {
    // Provisioned earlier without binding the claim: the name contains the claim's uid.
    if (hasReason(error, 'AlreadyExists')) {
      return work.context.client.get(RESOURCES.persistentVolumes, volume.metadata?.name ?? '', undefined, {
        signal: work.context.signal,
      });
    }
    throw error;
  }
};

const syncVolume = async (work: VolumeWork, volume: PersistentVolume) => {
  const reference = volume.spec?.claimRef;
  const found = reference ? await claimOf(work, reference.namespace ?? '', reference.name ?? '') : undefined;
  const claim = found?.metadata?.uid === reference?.uid ? found : undefined;
  const step = stepOfVolume({ volume, claim });
  switch (step.step) {
    case 'phase':
      await setVolumePhase(work, volume, step.phase);
      if (reference && !claim?.spec?.volumeName)
        work.addClaim(reference.namespace ?? '', reference.name ?? '');
      return;
    case 'unbind': {
      const free = await work.volumes.update(unboundVolume(volume));
      await setVolumePhase(work, free, 'Available');
      return;
    }
    case 'release':
      await release(work, volume);
  }
};

/** Reads from the server only: the release of a volume depends on it. */
const claimOf = async (
  work: VolumeWork,
  namespace: string,
  name: string,
): Promise<PersistentVolumeClaim | undefined> => {
  const known = work.claims.get(namespace, name);
  if (known) return known;
  try {
    return await work.context.client.get(RESOURCES.persistentVolumeClaims, name, namespace, {
      signal: work.context.signal,
    });
  } catch (error) {
    if (hasReason(error, 'NotFound')) return undefined;
    throw error;
  }
};

const release = async (work: VolumeWork, volume: PersistentVolume) => {
  const policy = volume.spec?.persistentVolumeReclaimPolicy ?? 'Retain';
  const isOurs = volume.metadata?.annotations?.[PROVISIONED_BY] === LOCAL_PATH && work.local !== undefined;
  const isForeign = volume.metadata?.annotations?.[PROVISIONED_BY] !== undefined && !isOurs;
  if (volume.status?.phase !== 'Failed') await setVolumePhase(work, volume, 'Released');
  if (policy === 'Retain' || isForeign) return;
  if (policy === 'Delete' && isOurs) {
    await work.local.remove(work.local.pathOf(volume.metadata?.name ?? ''));
    await work.volumes.delete(volume);
    return;
  }
  const message =
    policy === 'Delete'
      ? `error getting deleter volume plugin for volume "${volume.metadata?.name}": no deletable volume plugin matched`
      : `the reclaim policy ${policy} is not supported: use Retain or Delete`;
  if (volume.status?.phase === 'Failed') return;
  const current = work.volumes.get(undefined, volume.metadata?.name ?? '') ?? volume;
  const reason = policy === 'Delete' ? 'VolumeFailedDelete' : 'VolumeFailedRecycle';
  work.events.event(volume, 'Warning', reason, message, RESOURCES.persistentVolumes);
  await setVolumePhase(work, current, 'Failed', message);
};

/** Removes the finalizer of a volume that is being deleted, after its claim is gone and its folder is removed. */
const releaseVolume = async (work: VolumeWork, volume: PersistentVolume) => {
  if (volume.status?.phase === 'Bound') return;
  const { uid, resourceVersion, name = '', finalizers = [] } = volume.metadata ?? {};
  const ours = [VOLUME_PROTECTION_FINALIZER, FOLDER_FINALIZER];
  const left = finalizers.filter((finalizer) => !ours.includes(finalizer));
  if (left.length === finalizers.length) return;
  const isDeleted = volume.spec?.persistentVolumeReclaimPolicy === 'Delete';
  if (finalizers.includes(FOLDER_FINALIZER) && isDeleted && work.local)
    await work.local.remove(work.local.pathOf(name));
  await work.volumes.patch(volume, 'merge', { metadata: { uid, resourceVersion, finalizers: left } });
};
