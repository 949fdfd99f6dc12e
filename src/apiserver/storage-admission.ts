import { timestamp } from '../kube/timestamp.ts';
import {
  DEFAULT_CLASS_ANNOTATION,
  STORAGE_CLASS_ANNOTATION,
  VOLUME_PROTECTION_FINALIZER,
} from '../kube/well-known-labels.ts';
import type { StrategyContext } from './kind.ts';
import { type ApiObject, isObject } from './object.ts';

/** Adds a finalizer that protects volumes in use from deletion (upstream's StorageObjectInUseProtection). */
function protect(object: ApiObject, finalizer: string): void {
  const finalizers = object.metadata.finalizers ?? [];
  if (!finalizers.includes(finalizer)) object.metadata.finalizers = [...finalizers, finalizer];
}

/** Sets the initial state of a new PersistentVolume. */
export function prepareVolume(volume: ApiObject, context: StrategyContext): void {
  volume['status'] = { phase: 'Pending', lastPhaseTransitionTime: timestamp(context.now.getTime()) };
  protect(volume, VOLUME_PROTECTION_FINALIZER);
}

/** Protects a VolumeAttributesClass while volumes use it. */
export function protectAttributes(attributes: ApiObject): void {
  protect(attributes, 'kubernetes.io/vac-protection');
}

/**
 * Sets the initial state of a new PersistentVolumeClaim; one without a class gets the default class, the newest if
 * several are marked (upstream's DefaultStorageClass).
 */
export function prepareClaim(claim: ApiObject, context: StrategyContext): void {
  claim['status'] = { phase: 'Pending' };
  protect(claim, 'kubernetes.io/pvc-protection');
  const { spec } = claim;
  if (!isObject(spec) || spec['storageClassName'] !== undefined) return;
  if (claim.metadata.annotations?.[STORAGE_CLASS_ANNOTATION] !== undefined) return;
  const name = defaultStorageClassName(context);
  if (name !== undefined) spec['storageClassName'] = name;
}

function defaultStorageClassName(context: StrategyContext): string | undefined {
  const classes = context
    .list('storageclasses.storage.k8s.io')
    .filter(({ metadata }) => metadata.annotations?.[DEFAULT_CLASS_ANNOTATION] === 'true');
  const created = ({ metadata }: ApiObject) => metadata.creationTimestamp ?? '';
  classes.sort((a, b) =>
    created(a) === created(b)
      ? (a.metadata.name ?? '') < (b.metadata.name ?? '')
        ? -1
        : 1
      : created(a) > created(b)
        ? -1
        : 1,
  );
  return classes[0]?.metadata.name;
}
