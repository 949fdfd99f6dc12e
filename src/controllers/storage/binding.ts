import type { PersistentVolume, PersistentVolumeClaim, StorageClass } from '../../kube/types.ts';
import {
  BIND_COMPLETED,
  BOUND_BY_CONTROLLER,
  classOf,
  isFullyBound,
  PROVISIONED_BY,
  SELECTED_NODE,
} from './claims.ts';
import { findVolume, isBoundTo, mismatch } from './volume-match.ts';

export interface ClaimView {
  readonly claim: PersistentVolumeClaim;
  readonly volumes: readonly PersistentVolume[];
  /** The claim's class, if it exists. */
  readonly storageClass: StorageClass | undefined;
}

/** The next step of a claim. */
export type ClaimStep =
  | { readonly step: 'bind'; readonly volume: PersistentVolume }
  | { readonly step: 'provision'; readonly storageClass: StorageClass }
  /** Remains Pending; the event names the reason. */
  | {
      readonly step: 'wait';
      readonly type: 'Normal' | 'Warning';
      readonly reason: string;
      readonly message: string;
    }
  /** Its volume is gone or bound to another claim: its data cannot be restored. */
  | { readonly step: 'lose'; readonly reason: string; readonly message: string };

/** Decides the next step of a claim (upstream's syncClaim). Pure. */
export function stepOfClaim(view: ClaimView): ClaimStep {
  const { claim, volumes, storageClass } = view;
  const named = claim.spec?.volumeName ?? '';
  const volume = volumes.find(({ metadata }) => metadata?.name === named);
  if (claim.metadata?.annotations?.[BIND_COMPLETED] !== undefined) {
    if (named === '' || !volume) {
      return {
        step: 'lose',
        reason: 'ClaimLost',
        message: 'Bound claim has lost its PersistentVolume. Data on the volume is lost!',
      };
    }
    if (!volume.spec?.claimRef || isBoundTo(volume, claim)) return { step: 'bind', volume };
    const message = 'Two claims are bound to the same volume, this one is bound incorrectly';
    return { step: 'lose', reason: 'ClaimMisbound', message };
  }
  if (named !== '') {
    if (!volume) return waiting('FailedBinding', `volume ${JSON.stringify(named)} does not exist yet`);
    if (volume.spec?.claimRef && !isBoundTo(volume, claim)) {
      return waiting('FailedBinding', `volume ${JSON.stringify(named)} already bound to a different claim.`);
    }
    // A volume and a claim that name each other are bound whatever they ask for.
    const problem = volume.spec?.claimRef ? null : mismatch(volume, claim);
    if (problem !== null) {
      const message = `Cannot bind to requested volume ${JSON.stringify(named)}: ${problem}`;
      return { step: 'wait', type: 'Warning', reason: 'VolumeMismatch', message };
    }
    return { step: 'bind', volume };
  }
  const waitsForPod =
    storageClass?.volumeBindingMode === 'WaitForFirstConsumer' &&
    claim.metadata?.annotations?.[SELECTED_NODE] === undefined;
  const found = findVolume(claim, volumes, { onlyReserved: waitsForPod });
  if (found) return { step: 'bind', volume: found };
  if (waitsForPod) {
    return waiting('WaitForFirstConsumer', 'waiting for first consumer to be created before binding');
  }
  const name = classOf(claim);
  if (name === '') {
    const message = 'no persistent volumes available for this claim and no storage class is set';
    return waiting('FailedBinding', message);
  }
  if (!storageClass) {
    const message = `storageclass.storage.k8s.io ${JSON.stringify(name)} not found`;
    return { step: 'wait', type: 'Warning', reason: 'ProvisioningFailed', message };
  }
  return { step: 'provision', storageClass };
}

function waiting(reason: string, message: string): ClaimStep {
  return { step: 'wait', type: 'Normal', reason, message };
}

/** Returns the volume as bound to the claim; the same object if it already is. */
export function boundVolume(volume: PersistentVolume, claim: PersistentVolumeClaim): PersistentVolume {
  const { name, namespace, uid, resourceVersion } = claim.metadata ?? {};
  const before = volume.spec?.claimRef;
  if (before?.uid !== undefined && before.uid === uid) return volume;
  return {
    ...volume,
    metadata: {
      ...volume.metadata,
      annotations: {
        ...volume.metadata?.annotations,
        // A volume that a user reserved remains reserved when the claim is deleted.
        ...(before ? {} : { [BOUND_BY_CONTROLLER]: 'yes' }),
      },
    },
    spec: {
      ...volume.spec,
      claimRef: {
        kind: 'PersistentVolumeClaim',
        apiVersion: 'v1',
        ...(namespace ? { namespace } : {}),
        ...(name ? { name } : {}),
        ...(uid ? { uid } : {}),
        ...(resourceVersion ? { resourceVersion } : {}),
      },
    },
  };
}

/** Returns the claim as bound to the volume; the same object if it already is. */
export function boundClaim(claim: PersistentVolumeClaim, volume: PersistentVolume): PersistentVolumeClaim {
  if (isFullyBound(claim) && claim.spec?.volumeName === volume.metadata?.name) return claim;
  return {
    ...claim,
    metadata: {
      ...claim.metadata,
      annotations: {
        ...claim.metadata?.annotations,
        [BIND_COMPLETED]: 'yes',
        ...(claim.spec?.volumeName ? {} : { [BOUND_BY_CONTROLLER]: 'yes' }),
      },
    },
    spec: { ...claim.spec, volumeName: volume.metadata?.name ?? '' },
  };
}

/** Returns the status of a claim that becomes bound; the class of its volume is its current one (KEP-3751). */
export function boundStatus(volume: PersistentVolume): NonNullable<PersistentVolumeClaim['status']> {
  const { accessModes = [], capacity = {}, volumeAttributesClassName } = volume.spec ?? {};
  return {
    phase: 'Bound',
    accessModes,
    capacity,
    ...(volumeAttributesClassName ? { currentVolumeAttributesClassName: volumeAttributesClassName } : {}),
  };
}

export interface VolumeView {
  readonly volume: PersistentVolume;
  /** The claim with the claimRef's name, if the uid is also equal. */
  readonly claim: PersistentVolumeClaim | undefined;
}

/** The next step of a volume. */
export type VolumeStep =
  | { readonly step: 'phase'; readonly phase: 'Available' | 'Bound' }
  /** Its claim is gone: the reclaim policy applies. */
  | { readonly step: 'release' }
  /** It was selected for a claim that was bound to another volume: it is free again. */
  | { readonly step: 'unbind' };

/** Decides the next step of a volume (upstream's syncVolume). Pure. */
export function stepOfVolume({ volume, claim }: VolumeView): VolumeStep {
  const reference = volume.spec?.claimRef;
  if (!reference?.uid) return { step: 'phase', phase: 'Available' };
  if (!claim) return { step: 'release' };
  const taken = claim.spec?.volumeName;
  if (taken === volume.metadata?.name) return { step: 'phase', phase: 'Bound' };
  // The claim is about to be bound to it.
  if (!taken) return { step: 'phase', phase: volume.status?.phase === 'Bound' ? 'Bound' : 'Available' };
  const provisioned = volume.metadata?.annotations?.[PROVISIONED_BY] !== undefined;
  return provisioned && volume.spec?.persistentVolumeReclaimPolicy === 'Delete'
    ? { step: 'release' }
    : { step: 'unbind' };
}

/** Returns the volume without its claim: a volume that a user reserved for a claim's name remains reserved. */
export function unboundVolume(volume: PersistentVolume): PersistentVolume {
  const { [BOUND_BY_CONTROLLER]: chosen, ...annotations } = volume.metadata?.annotations ?? {};
  const { claimRef, ...spec } = volume.spec ?? {};
  const { uid: _uid, resourceVersion: _version, ...reserved } = claimRef ?? {};
  return {
    ...volume,
    metadata: { ...volume.metadata, annotations },
    spec: chosen !== undefined ? spec : { ...spec, claimRef: reserved },
  };
}
